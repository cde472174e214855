"""Write the files of a page: JSON, CSV, HTML and Markdown."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from capplan.files import write_texts
from capplan.planning.plan.result import Plan
from capplan.report.page import Page
from capplan.report.received.explained import FILE, Explained
from capplan.report.render.csv_table import table_csv
from capplan.report.render.html_page import html
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown

Written = tuple[Path, ...]
"""Paths of the files written."""


def write_page(
    page: Page,
    folder: str | Path,
    also: Mapping[str, str | bytes] = MappingProxyType({}),
) -> Written:
    """Write all files of a page into a folder, or none of them.

    ``also`` are further files by name. A text that is empty is no file: one of an
    earlier result is removed.
    """
    document = json_text(page.values())
    texts: dict[str, str | bytes] = {f"{page.name}.json": document}
    if page.answer is not None:
        told = Explained.of(page, sha256(document.encode()).hexdigest())
        texts[FILE] = json_text(told.model_dump())
    texts |= {name: table_csv(table) for name, table in page.csv.items()}
    texts |= {"report.html": html(page, folder), "report.md": markdown(page), **also}
    written = write_texts({name: text for name, text in texts.items() if text}, folder)
    for name in (name for name, text in texts.items() if not text):
        Path(folder, name).unlink(missing_ok=True)
    return written


def plan_files(plan: Plan, *, xlsx: bool = False) -> dict[str, str | bytes]:
    """Return a plan's further files by name; empty where it has no such file."""
    from capplan.report.pages.plan import plan_page
    from capplan.report.render.markdown import brief
    from capplan.report.workbook.plan_book import plan_workbook
    from capplan.report.writers.focus import focus_csv, plan_charges

    return {
        "plan.md": brief(plan_page(plan)),
        "plan.focus.csv": focus_csv(plan_charges(plan)),
        "plan.xlsx": plan_workbook(plan) if xlsx else b"",
    }
