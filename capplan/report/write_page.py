"""Write the files of a page: JSON, CSV, HTML and Markdown."""

from pathlib import Path

from capplan.files import write_texts
from capplan.report.page import Page
from capplan.report.render.csv_table import table_csv
from capplan.report.render.html_page import html
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown

Written = tuple[Path, ...]
"""Paths of the files written."""


def write_page(page: Page, folder: str | Path) -> Written:
    """Write all files of a page into a folder, or none of them."""
    texts = {f"{page.name}.json": json_text(page.values())}
    texts |= {name: table_csv(table) for name, table in page.csv.items()}
    texts |= {"report.html": html(page), "report.md": markdown(page)}
    written = write_texts({name: text for name, text in texts.items() if text}, folder)
    for name in (name for name, text in texts.items() if not text):
        Path(folder, name).unlink(missing_ok=True)
    return written
