"""A page as one document: for standard output, or a file of its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from capplan.report.page import Page
from capplan.report.render.csv_table import first_csv
from capplan.report.render.html_page import html
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown

DOCUMENTS: Mapping[str, Callable[[Page], str]] = {
    "json": lambda page: json_text(page.values()),
    "md": markdown,
    "csv": first_csv,
    "html": html,
}


def document(page: Page, form: str) -> str:
    """Return a page as one of ``DOCUMENTS``, with no file beside it."""
    return DOCUMENTS[form](replace(page, is_alone=True))
