"""The page of a change of scenarios: each before and after, and what fails."""

from collections.abc import Sequence

from capplan.report.columns import column, plural
from capplan.report.page import Page, Section, Table
from capplan.report.received.scenario_change import Changes

SCHEMA = "capplan.ci/1"
_COLUMNS = [
    column("scenario", "scenario", justify="left"),
    column("what", "figure", justify="left"),
    column("old", "before"),
    column("new", "after"),
    column("change", "change"),
]


def ci_page(changes: Changes, headline: str, failures: Sequence[str]) -> Page:
    """Return what a change does to the bill, and why its check fails."""
    rows = [
        {"scenario": change.scenario, **row._asdict()}
        for change in changes.each
        for row in change.rows
    ]
    notes = [
        f"{c.scenario} before: {c.why_no_old}" for c in changes.each if c.why_no_old
    ]
    values = {"outputs": changes.outputs(headline), "failures": list(failures)}
    return Page(
        "ci",
        headline,
        plural(len(changes.each), "scenario"),
        [Section(tables=[Table(_COLUMNS, rows, is_whole=True)], notes=notes)],
        values=lambda: {"schema": SCHEMA, **values, "rows": rows},
        csv={"ci.csv": Table(_COLUMNS, rows)},
        is_failure=bool(failures),
        is_alone=True,
    )
