"""Charts of a budget: dollars by month, and hours against commitments."""

from collections.abc import Sequence

import numpy as np

from capplan.planning.budget.result import Budget
from capplan.report.charts.fleet import digits, hour_axis
from capplan.report.charts.motion import stacked, steps
from capplan.report.charts.svg_chart import Axis, Line, Rule, figure
from capplan.report.page import Figure
from capplan.units import format_usd, in_shown_currency


def finding(budget: Budget) -> Figure | None:
    """Return what is paid for each kind of nodes, month on month."""
    if not budget.months:
        return None
    bills = [month.bill for month in budget.months]
    names = dict.fromkeys(name for bill in bills for name in bill.usd_by_commitment)
    layers = {
        name: np.array([bill.usd_by_commitment.get(name, 0.0) for bill in bills])
        for name in names
    }
    layers["on demand"] = np.array([bill.usd_on_demand for bill in bills])
    layers["spot"] = np.array([bill.usd_spot for bill in bills])
    layers["to the least bill"] = np.array([bill.usd_to_minimum for bill in bills])
    symbol, rate = in_shown_currency(1.0)
    layers = {name: rate * usd for name, usd in layers.items()}
    most = float(np.sum(list(layers.values()), axis=0).max())
    thousands = 1000 if most >= 1000 else 1
    paid = [(name, usd / thousands) for name, usd in layers.items() if usd.any()]
    said = [f"{format_usd(x.usd, 0)} in month {x.month}" for x in (bills[0], bills[-1])]
    return figure(
        said[0] if len(bills) == 1 else f"From {said[0]} to {said[1]}",
        Axis("month", digits, 0.5, len(bills) + 0.5),
        Axis(
            f"{'1,000 ' if thousands > 1 else ''}{symbol.strip()} a month",
            digits,
            0,
            1.08 * max(most / thousands, 1e-9),
        ),
        stacked(np.arange(len(bills) + 1) + 0.5, paid),
        caption="Stacked; what was paid upfront is spread evenly.",
    )


def budget_figures(budget: Budget) -> Sequence[Figure]:
    """Return the nodes of each hour, and how many of them are committed."""
    if not budget.months:
        return ()
    first, last = budget.months[0], budget.months[-1]
    count = len(first.nodes)
    edges = np.arange(count + 1, dtype=float)
    lines = [Line("nodes, month 1", *steps(edges, first.nodes.astype(float)))]
    if last is not first:
        y = last.nodes.astype(float)
        lines.append(Line(f"nodes, month {last.month}", *steps(edges, y)))
    committed = {
        month.bill.committed_nodes: f"committed, month {month.month}"
        for month in (last, first)
        if month.bill.committed_nodes
    }
    rules = [Rule(f"{n:,} {of}", y=float(n)) for n, of in committed.items()]
    drawn = figure(
        "Hours against commitments",
        hour_axis(count),
        Axis.above("nodes", digits, lines, max((*committed, 1.0))),
        lines,
        rules,
        caption="Nodes above a line are on demand or spot. Space below it is committed "
        "and unused.",
    )
    return (drawn,)
