"""A plan as one HTML page that opens offline and prints."""

from capplan.planning.classes import own_targets
from capplan.planning.result import Assumption, Plan
from capplan.report import answer, class_columns
from capplan.report.bill import STARRED, bill, line_texts
from capplan.report.columns import SHOWN
from capplan.report.page import render_page
from capplan.report.plan_charts import figures

HOW = {
    "measured": "Measured",
    "fitted": "Fitted to measurements",
    "published": "Published",
    "assumed": "Assumed",
    "given": "Given by you",
}
"""Headings of the assumptions by how each was obtained, most certain first."""


def plan_html(plan: Plan) -> str:
    """Return the report of a plan as a self-contained page."""
    best = plan.best
    return render_page(
        "plan.html.j2",
        plan=plan,
        best=best,
        answer=answer,
        costs=bill(plan),
        line_texts=line_texts,
        starred=STARRED,
        columns=SHOWN,
        class_columns=class_columns,
        has_own_targets=best is not None and own_targets(best.classes),
        figures=figures(plan),
        assumptions=grouped(plan.assumptions),
    )


def grouped(assumptions: tuple[Assumption, ...]) -> list[tuple[str, list[Assumption]]]:
    """Return the assumptions by how each was obtained, most certain first."""
    # Kinds without a heading of ours come last, under their own name.
    kinds = [*HOW, *sorted({row.how for row in assumptions} - set(HOW))]
    groups = [
        (HOW.get(kind, kind), [row for row in assumptions if row.how == kind])
        for kind in kinds
    ]
    return [(heading, rows) for heading, rows in groups if rows]
