"""Tables as CSV."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from capplan.files import new_file
from capplan.report.page import Page, Table


def table_csv(table: Table) -> str:
    """Return a table with all its columns that have a name; empty without rows."""
    columns = [column for column in table.columns if column.name]
    rows = [[column.value(row) for column in columns] for row in table.rows]
    return csv_text([column.name for column in columns], rows) if rows else ""


def first_csv(page: Page) -> str:
    """Return the page's first table as CSV; its heading alone where it has no rows."""
    for table in page.csv.values():
        columns = [column.name for column in table.columns if column.name]
        return table_csv(table) or csv_text(columns, [])
    return ""


def csv_text(heading: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table as CSV; None and what is not finite are empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return f"'{value}"  # a spreadsheet would run it as a formula
    return value


def write_csv_file(
    path: str | Path, heading: Sequence[str], rows: Iterable[Iterable[Any]]
) -> Path:
    """Write a long table row by row, so that it is never whole in memory."""
    with new_file(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(heading)
        writer.writerows(rows)
    return Path(path)
