"""Panels of pages: the bill by prices, discount and hours, and what was simulated."""

from collections.abc import Mapping, Sequence
from itertools import product

from capplan.planning.budget.result import Budget
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.plan.result import Plan
from capplan.planning.what_if.what_if import WhatIf
from capplan.report.columns import plural
from capplan.report.page import Cell, Choice, Fixed, Panel
from capplan.report.paid import Paid, paid
from capplan.report.provenance import command_line
from capplan.units import in_shown_currency

MONTHS = 12
"""Months that a panel shows."""
_TIMES = "All prices, times"


def plan_panel(plan: Plan) -> Panel | None:
    """Return the bill of a plan by the prices of its GPU-hours; None without one."""
    best = plan.best
    rows = () if best is None else paid(best)
    if best is None or not rows:
        return None
    usd: dict[tuple[str, float], float] = {}  # a month's, by GPU and price
    for row in rows:
        key = row.gpu, row.price.usd_per_gpu_h
        month = HOURS_PER_MONTH * row.unit_count * row.price.usd_per_node_h
        usd[key] = usd.get(key, 0.0) + month
    symbol, _ = in_shown_currency(0.0)
    gpus = plural(sum(row.gpus_paid for row in rows), "GPU")
    note = f"{gpus} in every month, at the traffic as planned."
    parts = [_shown(each) for each in usd.values()]
    return Panel(
        symbol,
        [Cell([parts] * MONTHS, note, _is_hourly(rows))],
        [(_label(key, list(usd), rows, symbol), _shown(key[1])) for key in usd],
        fixed=_fixed(plan),
        discount_of="these prices" if len(usd) > 1 else "this price",
    )


def _shown(usd: float) -> float:
    return in_shown_currency(usd)[1]


def _label(
    key: tuple[str, float],
    keys: Sequence[tuple[str, float]],
    rows: Sequence[Paid],
    symbol: str,
) -> str:
    """Return which price it is; starred where nobody asks it, or it is old."""
    of = [row.price for row in rows if (row.gpu, row.price.usd_per_gpu_h) == key]
    star = "*, assumed" if any(x.is_guess or x.is_stale for x in of) else ""
    which = ""
    if len(keys) > 1:
        alone = [gpu for gpu, _ in keys].count(key[0]) == 1
        which = f" of {key[0]}" if alone else f" of {key[0]}, {of[0].unit}"
    return f"Price of a GPU-hour{which}, {symbol.strip()}{star}"


def _is_hourly(rows: Sequence[Paid]) -> bool:
    """Return whether all is paid by the hour, and no node for months at least."""
    kinds = {row.price.kind for row in rows}
    least = any("months at least" in row.price.note for row in rows)
    return kinds <= {"on-demand", "spot"} and not least


def _fixed(plan: Plan) -> list[Fixed]:
    """Return growth and target: a plan has simulated no other ones."""
    growth = Fixed(
        "Growth of traffic a month",
        "0 %",
        "capplan budget PLAN.json --growth 3%/month",
    )
    users = plan.settings.get("users")
    if plan.asked_by is not None:
        more = f"--vary users={users},{2 * int(users or 1)}"
        growth = Fixed("Users", f"{users}", f"capplan what-if PLAN.json {more}")
    target = "capplan what-if PLAN.json --attainment 0.95,0.99,0.999"
    return [growth, Fixed("Requests in time", plan.attainment_text, target)]


def what_if_panel(result: WhatIf, headings: Mapping[str, str]) -> Panel | None:
    """Return the bills of a what-if by what was varied; None without a price."""
    cells, (symbol, _) = [], in_shown_currency(0.0)
    for cell in result.cells:
        best = cell.best
        if best is None or best.cost is None:
            why = cell.reason if best is None else "no price is known"
            cells.append(Cell((), f"No bill: {why}."))
            continue
        month = [_shown(best.cost.usd_per_month)]
        note = f"{plural(best.gpu_count or 0, 'GPU')}: {best}."
        cells.append(Cell([month] * MONTHS, note, _is_hourly(paid(best))))
    if not any(cell.usd for cell in cells):
        return None
    choices = [
        Choice(headings.get(name, name), values)
        for name, values in result.vary.items()
        if len(values) > 1
    ]
    return Panel(symbol, cells, [(_TIMES, 1.0)], choices)


def budget_panel(budget: Budget) -> Panel | None:
    """Return the months of a budget and of its scenarios; None of an infeasible one.

    With contracts, other prices may choose other commitments: then they stay.
    """
    if not budget.months:
        return None
    named = {"as asked": [month.bill.usd for month in budget.months]}
    named |= {row.name: list(row.usd_by_month) for row in budget.scenarios}
    last = len(budget.months)
    years = range(0, last, MONTHS)
    cells = []
    for (name, usd), first in product(named.items(), years):
        year = [[_shown(each)] for each in usd[first : first + MONTHS]]
        note = f"Months {first + 1} to {min(first + MONTHS, last)}, {name}."
        cells.append(Cell(year, note if usd else f"{name}: infeasible."))
    command = f"{command_line() or 'capplan budget …'} --scenarios"
    growth = budget.settings.growth
    fixed = [Fixed("Growth", growth, f"{command} high:growth=5%/month")]
    prices = [(_TIMES, 1.0)]
    if budget.settings.contract:
        prices = []
        fixed.append(Fixed("Prices", "as planned", f"{command} dear:price=1.1"))
    spans = [f"{first + 1} to {min(first + MONTHS, last)}" for first in years]
    choices = [Choice("Scenario", list(named)), Choice("Months", spans)]
    symbol, _ = in_shown_currency(0.0)
    kept = [choice for choice in choices if len(choice.options) > 1]
    return Panel(symbol, cells, prices, kept, fixed)
