"""The page of an export: its files, and what is to be known of them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from capplan.report.columns import column
from capplan.report.exports.export import Export
from capplan.report.page import Page, Section, Table

_NOTES = {
    "lacks": "Not in the files",
    "needs": "Needed before they run",
    "unverified": "Not verified",
}
"""Headings of what is to be known, by the fields of an export."""


def exported_page(
    path: Path, target: str, texts: Mapping[str, str], export: Export
) -> Page:
    """Return the page of a plan's deployment."""
    rows = [
        {"what": name, "text": text}
        for name in _NOTES
        for text in getattr(export, name)
    ]
    table = Table([column("what"), column("text")], rows)
    notes = {name: getattr(export, name) for name in _NOTES}
    return Page(
        "export",
        f"{target}: {', '.join(texts)}",
        str(path),
        sections=[
            Section(title, notes=list(getattr(export, name)))
            for name, title in _NOTES.items()
        ],
        values=partial(_values, target, "exported", texts=texts, **notes),
        csv={"export.csv": table},
    )


def no_export_page(path: Path, target: str, reason: str) -> Page:
    """Return that a plan has no deployment, and why."""
    table = Table(
        [column("what"), column("text")], [{"what": "status", "text": reason}]
    )
    return Page(
        "export",
        reason,
        str(path),
        sections=[Section(notes=[reason])],
        values=partial(_values, target, reason, texts={}),
        csv={"export.csv": table},
        is_failure=True,
    )


def _values(
    target: str, status: str, texts: Mapping[str, str], **notes: Any
) -> dict[str, Any]:
    return {
        "schema": "capplan.export/1",
        "target": target,
        "status": status,
        "files": dict(texts),
        **notes,
    }
