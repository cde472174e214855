"""Columns of the tables of a budget."""

from typing import Any

import numpy as np

from capplan.planning.budget.result import Budget, Month
from capplan.planning.load.demand_curve import hour_name
from capplan.report.columns import Column
from capplan.report.fields import fields

MONTHS = fields("budget_month")
COMMITMENTS = fields("budget_commitment")
ALTERNATIVES = fields("budget_alternative")
SCENARIOS = fields("budget_scenario")
FLEETS = fields("budget_fleet")
WAYS = fields("budget_way")
ASSUMPTIONS = fields(
    "budget_assumption", value=lambda row: row.value + "*" * (row.how == "assumed")
)
HOURS = fields("budget_hour")


def hour_rows(budget: Budget) -> list[tuple[Any, ...]]:
    """Return the hours of a budget, as they come again: values of ``HOURS``."""
    if not budget.months:
        return []
    first, last = budget.months[0], budget.months[-1]
    curve, ends = budget.curve, (first.bill.committed_nodes, last.bill.committed_nodes)
    columns = (curve.peak_per_s, curve.mean_per_s, first.nodes, last.nodes)
    return [
        (hour, hour_name(hour, of_week=curve.is_typical), *of_hour, *ends)
        for hour, of_hour in enumerate(
            zip(*(np.asarray(each).tolist() for each in columns), strict=True)
        )
    ]


def node_columns(budget: Budget) -> tuple[Column, ...]:
    """Return the columns of the nodes of each hour, one for each month."""

    def of(month: Month) -> Column:
        return Column(f"month_{month.month}", lambda row: int(month.nodes[row[0]]))

    return (HOURS[0], *map(of, budget.months))
