"""The candidates of a plan, and their classes, as CSV."""

from collections.abc import Iterable

from capplan.planning.result import Plan
from capplan.planning.run import Run
from capplan.report.class_columns import IN_FILES
from capplan.report.columns import COLUMNS
from capplan.report.tables import csv_text


def plan_csv(plan: Plan) -> str:
    """Return the candidates as CSV, one row each, best first."""
    return csv_text(
        [column.name for column in COLUMNS],
        ([column.value(row) for column in COLUMNS] for row in plan.candidates),
    )


def plan_classes_csv(plan: Plan) -> str:
    """Return the classes of all feasible candidates; empty where there is one class."""
    return classes_csv(row.run for row in plan.candidates if row.run is not None)


def classes_csv(runs: Iterable[Run]) -> str:
    """Return the classes of runs as CSV; empty where there is one class."""
    rows = [
        [run.gpu, run.tp, run.replica_count, *(x.value(row) for x in IN_FILES)]
        for run in runs
        for row in run.judgement.classes
    ]
    heading = ["gpu", "tp", "replica_count", *(column.name for column in IN_FILES)]
    return csv_text(heading, rows) if rows else ""
