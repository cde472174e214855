"""The page of an export: its files, and what is to be known of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capplan.report.exports.export import Export
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table

_NOTES = {
    "lacks": "Not in the files",
    "needs": "Needed before they run",
    "unverified": "Not verified",
}
"""Headings of what is to be known, by the fields of an export."""


def exported_page(
    path: Path, target: str, found: str | tuple[Mapping[str, str], Export]
) -> Page:
    """Return the page of a plan's deployment, or of why it has none."""
    texts: Mapping[str, str] = {}
    notes: dict[str, Any] = {}
    if isinstance(found, str):
        status = headline = found
        rows, sections = [("status", found)], [Section(notes=[found])]
    else:
        texts, export = found
        status, headline = "exported", f"{target}: {', '.join(texts)}"
        notes = {name: getattr(export, name) for name in _NOTES}
        rows = [(name, text) for name, lines in notes.items() for text in lines]
        sections = [Section(_NOTES[name], notes=list(notes[name])) for name in notes]
    values = {"schema": "capplan.export/1", "target": target, "status": status}
    return Page(
        "export",
        headline,
        str(path),
        sections,
        values=lambda: {**values, "files": dict(texts), **notes},
        csv={"export.csv": Table(fields("export"), rows)},
        is_failure=isinstance(found, str),
    )
