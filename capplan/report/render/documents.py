"""A page as one document for standard output."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from capplan.report.page import Page
from capplan.report.render.csv_table import csv_text, table_csv
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown


def first_csv(page: Page) -> str:
    """Return the page's first table as CSV; its heading alone where it has no rows."""
    for table in page.csv.values():
        columns = [column.name for column in table.columns if column.name]
        return table_csv(table) or csv_text(columns, [])
    return ""


_DOCUMENTS: Mapping[str, Callable[[Page], str]] = {
    "json": lambda page: json_text(page.values()),
    "md": markdown,
    "csv": first_csv,
}


def document(page: Page, form: str) -> str:
    """Return a page as ``json``, ``md`` or ``csv``."""
    return _DOCUMENTS[form](replace(page, is_alone=True))
