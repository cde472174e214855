"""Why so many nodes are reserved, and why the peak of a budget needs what it needs."""

from collections.abc import Sequence

import numpy as np

from capplan.planning.budget.replicas_by_rate import ABOVE, EXTRAPOLATED, LAW, SIMULATED
from capplan.planning.budget.result import Budget, Month
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.report.columns import format_count, plural
from capplan.report.page import Fact
from capplan.report.window_sentences import window_length

_KNOWN = {
    SIMULATED: "as simulated",
    LAW: "by the line through the rates simulated",
    ABOVE: "as at the lowest rate simulated",
    EXTRAPOLATED: "extrapolated beyond the rates simulated",
}
"""How the replicas of a rate are known."""


def budget_why(budget: Budget) -> list[Fact]:
    """Return in how many hours nodes are used and a term pays, and what peaks take."""
    if not budget.months:
        return []
    peak = max(budget.months, key=lambda month: month.replicas)
    most, fewer = peak.hours.most, _fewer(budget, peak)
    shown = f"{plural(most, 'node')} for {format_count(_used_h(peak, most))} of"
    return [
        ("reserved", _reserved(budget)),
        (f"peak of month {peak.month}", f"{_replicas(budget, peak)}{fewer}"),
        ("at that peak", f"{shown} {HOURS_PER_MONTH} h of the month"),
    ]


def _used_h(month: Month, node: int) -> float:
    """Return the hours of a month in which so many nodes are paid. [h]"""
    return float(month.hours.hours[month.hours.nodes >= node].sum())


def _reserved(budget: Budget) -> str:
    """Return the hours of the last node reserved and of one more, and the break-even.

    One more is told where its hours are too few; with later months it may pay.
    """
    if budget.prices.min_months or not budget.prices.terms:
        return ""
    new = [use for use in budget.commitments if not use.held.is_contract]
    months = [x for x in budget.months if not new or new[0].held.runs(x.month)]
    node = months[0].bill.committed_nodes
    if new:
        pays, name = new[0].break_even, new[0].held.name
    else:
        terms = {term.name for term in budget.prices.terms}
        ways = [row for row in budget.ways if row.name in terms]
        pays, name = min((row.break_even or 1.0, row.name) for row in ways)
    least_h, more_h = pays * HOURS_PER_MONTH, _mean_h(months, node + 1)
    if not new and more_h >= least_h:
        last = plural(budget.settings.horizon_months, "month")
        return f"none: no term pays within the {last} of the budget"
    used = [f"node {node} is used {_mean_h(months, node):,.0f} h"] if new else ["none"]
    if more_h < least_h:
        used.append(f"node {node + 1} would be used {more_h:,.0f} h")
    return (
        f"{', '.join(used)} a month; {name} pays from {least_h:,.0f} of "
        f"{HOURS_PER_MONTH} h on"
    )


def _mean_h(months: Sequence[Month], node: int) -> float:
    return float(np.mean([_used_h(month, node) for month in months]))


def _replicas(budget: Budget, month: Month) -> str:
    busiest = window_length(budget.curve.window_s)
    return (
        f"{format_count(month.busiest_per_s)} requests/s in its busiest {busiest} take "
        f"{plural(month.replicas, 'replica')}, {_KNOWN[month.known_by]}"
    )


def _fewer(budget: Budget, peak: Month) -> str:
    """Return the highest rate simulated that fewer replicas carry; empty without."""
    known = budget.by_rate
    enough = np.flatnonzero(known.counts < peak.replicas)
    if not len(enough) or budget.settings.growing.tokens:  # other requests by then
        return ""
    count, rate_per_s = int(known.counts[enough[-1]]), known.rates_per_s[enough[-1]]
    return f"; {count:,} are enough for {format_count(rate_per_s)} requests/s"
