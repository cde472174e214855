"""Panels of pages: the bill by prices, discount and hours, and what was simulated."""

from collections.abc import Mapping, Sequence
from itertools import product

from capplan.fleet.price import Price
from capplan.planning.budget.result import Budget
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.plan.result import Plan
from capplan.planning.what_if.what_if import WhatIf
from capplan.report.columns import plural
from capplan.report.page import Cell, Panel
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
    of: dict[tuple[str, float], Price] = {}
    for row in rows:
        key = row.gpu, row.price.usd_per_gpu_h
        month = HOURS_PER_MONTH * row.unit_count * row.price.usd_per_node_h
        usd[key] = usd.get(key, 0.0) + month
        of.setdefault(key, row.price)
    symbol, _ = in_shown_currency(0.0)
    gpus = plural(sum(row.gpus_paid for row in rows), "GPU")
    note = f"{gpus} in every month. At other prices another plan may cost less."
    prices = []
    for (gpu, usd_per_h), price in of.items():
        which = f" of {gpu}, {price.unit}" if len(of) > 1 else ""
        star = "*, assumed" if price.is_guess or price.is_stale else ""
        label = f"Price of a GPU-hour{which}, {symbol.strip()}{star}"
        prices.append((label, _shown(usd_per_h)))
    return Panel(
        symbol,
        [Cell([[*map(_shown, usd.values())]] * MONTHS, note, _is_hourly(rows))],
        prices,
        fixed=_fixed(plan),
        discount_of="these prices" if len(usd) > 1 else "this price",
    )


def _shown(usd: float) -> float:
    return in_shown_currency(usd)[1]


def _is_hourly(rows: Sequence[Paid]) -> bool:
    """Return whether all is paid by the hour, and no node for months at least."""
    kinds = {row.price.kind for row in rows}
    least = any("months at least" in row.price.note for row in rows)
    return kinds <= {"on-demand", "spot"} and not least


def _fixed(plan: Plan) -> list[tuple[str, str, str]]:
    """Return growth and target: a plan has simulated no other ones."""
    growth = "capplan budget PLAN.json --growth 3%/month"
    target = "capplan what-if PLAN.json --attainment 0.95,0.99,0.999"
    first = "Growth of traffic a month", "0 %", growth
    if users := plan.settings.get("users"):
        more = f"capplan what-if PLAN.json --vary users={users},{2 * int(users)}"
        first = "Users", f"{users:,}", more
    return [first, ("Requests in time", plan.attainment_text, target)]


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
        (headings.get(name, name), values)
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
    named = [("as asked", tuple(month.bill.usd for month in budget.months))]
    named += [(row.name, row.usd_by_month) for row in budget.scenarios]
    last = len(budget.months)
    spans = [f"{k + 1} to {min(k + MONTHS, last)}" for k in range(0, last, MONTHS)]
    cells = []
    for (name, usd), (k, span) in product(named, enumerate(spans)):
        year = [[_shown(each)] for each in usd[k * MONTHS : (k + 1) * MONTHS]]
        note = f"Months {span}, {name}." if usd else f"{name}: infeasible."
        cells.append(Cell(year, note))
    command = f"{command_line() or 'capplan budget …'} --scenarios"
    fixed = [("Growth", budget.settings.growth, f"{command} high:growth=5%/month")]
    prices = [(_TIMES, 1.0)]
    if budget.settings.contract:
        prices = []
        fixed.append(("Prices", "as planned", f"{command} dear:price=1.1"))
    choices = [("Scenario", [name for name, _ in named]), ("Months", spans)]
    symbol, _ = in_shown_currency(0.0)
    kept = [choice for choice in choices if len(choice[1]) > 1]
    return Panel(symbol, cells, prices, kept, fixed)
