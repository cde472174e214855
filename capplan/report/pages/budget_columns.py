"""Columns of the tables of a budget."""

from typing import Any

import numpy as np

from capplan.planning.budget.result import Budget, Month
from capplan.planning.load.demand_curve import hour_name
from capplan.report.columns import Column
from capplan.report.fields import fields
from capplan.units import format_usd


def starred_usd(budget: Budget, amount: float) -> str:
    """Return dollars, starred where they rest on assumed prices or counts."""
    return format_usd(amount) + ("*" if any(map(_is_starred, budget.months)) else "")


def _is_starred(month: Month) -> bool:
    return month.is_doubtful or month.is_estimated


def _usd_of(month: Month) -> str:
    return format_usd(month.bill.usd) + ("*" if _is_starred(month) else "")


MONTHS = fields("budget_month", usd=_usd_of)
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
