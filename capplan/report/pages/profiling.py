"""Pages of profiling: what was measured, or what a dry run expects."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from capplan.profiling.expected import ExpectedRun
from capplan.profiling.runner import Measured
from capplan.report.columns import record
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table

_MEASURED = fields(
    "profile",
    profile_path=lambda row: _path(row.profile_path),
    points_path=lambda row: _path(row.points_path),
    log_path=lambda row: _path(row.log_path),
)
_EXPECTED = fields(
    "dry_run",
    points=lambda row: len(row.plan.points),
    skipped=lambda row: len(row.plan.skipped),
)


def _path(path: object) -> str | None:
    return None if path is None else str(path)


def measured_page(runs: Iterable[Measured]) -> Page:
    """Return a row per TP degree, with its profile or why there is none."""
    return _page("profile", "measured TP degrees", Table(_MEASURED, list(runs)))


def expected_page(runs: Iterable[ExpectedRun]) -> Page:
    """Return the points and the expected time of each TP degree."""
    return _page("dry-run", "TP degrees to measure", Table(_EXPECTED, list(runs)))


def _page(name: str, what: str, table: Table) -> Page:
    return Page(
        name,
        f"{len(table.rows)} {what}",
        "",
        [Section(tables=[table])],
        values=partial(_values, name, table),
        csv={f"{name}.csv": table},
    )


def _values(name: str, table: Table) -> dict[str, Any]:
    rows = [record(table.columns, row) for row in table.rows]
    return {"schema": f"capplan.{name}/1", "degrees": rows}
