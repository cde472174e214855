"""Pages of what was checked: a plan, or a scheduler against the laws."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capplan.report.columns import column
from capplan.report.page import Page, Section, Table
from capplan.simulator.laws.checking import Checked


def _page(name: str, about: str, row: dict[str, Any], notes: Sequence[str]) -> Page:
    """Return a page of one row, as a table and by its keys."""
    table = Table([column(key) for key in row if key != "reasons"], [row])
    return Page(
        name,
        row["verdict"],
        about,
        [Section(notes=notes)],
        values=lambda: {"schema": f"capplan.{name}/1", **row},
        csv={f"{name}.csv": table},
        is_failure=bool(row["reasons"]),
    )


def verified_page(
    path: Path, reasons: Sequence[str], *, simulated: bool, claim: str = ""
) -> Page:
    """Return whether a plan is verified, refused, or only in agreement with itself."""
    passed = "verified" if simulated else "not verified"
    row = {
        "file": str(path),
        "verdict": "refused" if reasons else passed,
        "is_simulated": simulated,
        "claim": claim,
        "reasons": list(reasons),
    }
    return _page("verify", str(path), row, [*reasons, *filter(None, [claim])])


def laws_page(checked: Checked) -> Page:
    """Return whether a scheduler obeys all laws."""
    row = {
        "verdict": "broken" if checked.broken else "all laws hold",
        **{k: v for k, v in checked._asdict().items() if k != "broken"},
        "reasons": list(checked.broken),
    }
    return _page("check-scheduler", checked.scheduler, row, checked.broken)
