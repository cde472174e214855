"""Pages of profiling: what was measured, or what a dry run expects."""

from collections.abc import Iterable
from functools import partial

from capplan.profiling.expected import ExpectedRun
from capplan.profiling.runner import Measured
from capplan.report.columns import record
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table

_PATHS = ("profile_path", "points_path", "log_path")


def _path(row: Measured, name: str) -> str | None:
    path = getattr(row, name)
    return None if path is None else str(path)


_MEASURED = fields("profile", **{name: partial(_path, name=name) for name in _PATHS})
_EXPECTED = fields(
    "dry_run",
    points=lambda row: len(row.plan.points),
    skipped=lambda row: len(row.plan.skipped),
)


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
        values=lambda: {
            "schema": f"capplan.{name}/1",
            "degrees": [record(table.columns, row) for row in table.rows],
        },
        csv={f"{name}.csv": table},
    )
