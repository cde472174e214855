"""The candidates of a plan as CSV."""

from capplan.planning.result import Plan
from capplan.report.columns import COLUMNS
from capplan.report.tables import csv_text


def plan_csv(plan: Plan) -> str:
    """Return the candidates as CSV, one row each, best first."""
    return csv_text(
        [column.name for column in COLUMNS],
        ([column.value(row) for column in COLUMNS] for row in plan.candidates),
    )
