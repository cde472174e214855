"""Tables as CSV."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capplan.files import new_file
from capplan.report.page import Page, Table

_DIGITS = 6
_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
"""Line breaks, tabs and other controls: a cell is one line."""
_FORMULA = re.compile(r"(?:^|(?<=;))(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet would begin a formula: at the start of a cell, also of one that
a semicolon begins where these separate cells; wide signs are taken too."""


def table_csv(table: Table) -> str:
    """Return a table with all its columns that have a name; empty without rows."""
    return _with_heading(table) if table.rows else ""


def first_csv(page: Page) -> str:
    """Return the page's first table as CSV; its heading alone where it has no rows."""
    return next(map(_with_heading, page.csv.values()), "")


def _with_heading(table: Table) -> str:
    rows = ([column.value(row) for column in table.named] for row in table.rows)
    return csv_text([column.name for column in table.named], rows)


def csv_text(heading: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table as CSV; None and what is not finite are empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return what stands in a cell: words and numbers, nothing of Python."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return rounded(value) if math.isfinite(value) else ""
    if isinstance(value, Mapping):
        value = "; ".join(f"{name}={_cell(each)}" for name, each in value.items())
    if isinstance(value, tuple | list):
        value = "; ".join(str(_cell(each)) for each in value)
    if isinstance(value, str):
        return _FORMULA.sub("'", _BREAKS.sub(" ", value))
    return "" if value is None else value


def rounded(value: float) -> float:
    """Return a number to six digits, and to the cent at least.

    Examples
    --------
    >>> rounded(0.9957216460011604), rounded(93206.40000000001), rounded(1234567.891)
    (0.995722, 93206.4, 1234567.89)
    """
    if value == 0:
        return 0.0
    return round(value, max(2, _DIGITS - 1 - math.floor(math.log10(abs(value)))))


def write_csv_file(
    path: str | Path, heading: Sequence[str], rows: Iterable[Iterable[Any]]
) -> Path:
    """Write a long table row by row, so that it is never whole in memory."""
    with new_file(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(heading)
        writer.writerows(rows)
    return Path(path)
