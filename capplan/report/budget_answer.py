"""The first screen of a budget: what to reserve, the bill, whether each hour holds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from capplan.planning.budget.fleets import HOURS
from capplan.planning.budget.result import Alternative, Budget, ScenarioRow
from capplan.planning.budget.settings import STATIC
from capplan.planning.money.bill import Held
from capplan.planning.money.commitments import Term
from capplan.report import uncertain
from capplan.report.columns import format_count, format_list, format_share, plural
from capplan.report.first_screen import Way, dollars, no_answer, ways
from capplan.report.page import Answer, Said, Table
from capplan.units import format_usd

MOST_ROWS = 5
"""Ways that it shows: its labels take more lines than those of other pages."""
_WAYS = {
    "static, on demand": "peak at all hours, on demand",
    "scheduled, on demand": "by traffic, on demand",
    "static, committed": "peak at all hours, reserved",
    "scheduled, committed": "by traffic, base reserved",
    "static, owned": "peak at all hours, owned",
}
"""Names of other ways to pay, for people."""


def budget_title(budget: Budget) -> str:
    """Return the bill and what to buy in a line, of a fixed form."""
    if budget.infeasible_reason:
        month = budget.infeasible_reason.partition(", and ")[0]
        return f"No budget within these quotas: {month}."
    usd = dollars(budget.usd, _is_uncertain(budget))
    return f"Budget {usd} for {_span(budget)}: {_deal(budget)}."


def budget_subject(budget: Budget) -> str:
    """Return whose budget it is, what arrives, how it grows and what is promised."""
    settings, curve = budget.settings, budget.curve
    hours = "a typical week*" if curve.is_typical else f"{curve.days_text} of requests"
    grows = settings.growing != type(settings.growing)()
    growth = f"growth {settings.growth.replace(',', ', ')}" if grows else "no growth"
    return (
        f"{settings.llm or 'given iteration times'} · "
        f"{format_count(curve.busiest_per_s)} requests/s at the peak of {hours}, "
        f"{growth} · each hour at {budget.slo.describe_targets(budget.class_names)}"
    )


def budget_lead(budget: Budget) -> str:
    """Return what the budget rests on, what to buy, and what is owed in the end."""
    if budget.infeasible_reason:
        return f"The quotas are too small: {budget.infeasible_reason}."
    curve, seen = budget.curve, ""
    if curve.is_typical:
        seen = "Based on a typical week, not on hours of your own: "
    elif curve.is_short:
        days = "one day" if curve.days == 1 else curve.days_text
        seen = f"Based on {days} of traffic (a week is better): "
    text = ", ".join(filter(None, (f"{seen}{_deal(budget)}", _saved(budget))))
    owed = _owed(budget) or "Nothing owed"
    last = budget.settings.horizon_months
    return f"{text[0].upper()}{text[1:]}. {owed} after month {last}."


def budget_answer(budget: Budget) -> Answer:
    """Return the first screen of a budget."""
    if budget.infeasible_reason:
        misses = Said("misses", budget.infeasible_reason)
        step = Said("ask the provider for more nodes", "--quota on-demand=N")
        return no_answer(misses, step)
    said = (_buy(budget), _cost(budget), _peak(budget), _sure(budget))
    left_out = len(budget.scenarios) + 1 - MOST_ROWS
    more = f"{plural(left_out, 'more scenario')}: --explain price"
    notes = [more] if left_out > 0 else []
    return Answer(*said, next(budget_steps(budget)), _table(budget), notes)


def budget_steps(budget: Budget) -> Iterator[Said]:
    """Yield what to do now, the most valuable first."""
    prices, curve, gpu = budget.prices, budget.curve, budget.configuration.gpu
    if _missing(budget) and curve.window_s > 60:
        yield Said("count the busiest minute of each hour", "--window 1m")
    elif _missing(budget):
        yield Said("keep the peak of the month at all hours", "--fleet static")
    if terms := _assumed(budget):
        given = ",".join(f"reserved:{each.months}=USD" for each in terms)
        asked = f"ask {prices.provider or 'your provider'} for its price of"
        yield Said(f"{asked} {_months(terms)}", f"--commit {given}")
    if prices.is_doubtful:
        yield Said("ask for the price on demand", f"--price {gpu}=USD")
    if curve.is_typical or curve.is_short:
        yield Said("give a week of your own hours", "--trace log.csv")
    if any(month.is_estimated for month in budget.months):
        yield Said("simulate later months too", "leave out --anchor-months")
    for row in sorted(budget.alternatives, key=lambda row: row.usd)[:1]:
        if row.usd < budget.usd - 0.5:
            saved = dollars(budget.usd - row.usd, row.is_estimated)
            yield Said(f"look at {_WAYS.get(row.name, row.name)}: {saved} less")
    for held in _bought(budget)[:1]:
        yield Said(f"sign {_purchase(budget, held)}")
    yield Said("budget again when traffic or prices change")


def _is_uncertain(budget: Budget) -> bool:
    return any(month.is_uncertain for month in budget.months)


def _span(budget: Budget) -> str:
    return plural(budget.settings.horizon_months, "month")


def _rents(budget: Budget) -> str:
    return "at all hours" if budget.settings.fleet == STATIC else "by the hour"


def _on_demand(budget: Budget) -> str:
    return f"{'static' if budget.settings.fleet == STATIC else 'scheduled'}, on demand"


def _own(budget: Budget) -> str:
    """Return which of the other ways is the budget's own, without quotas and spot."""
    name = _on_demand(budget)
    return name.replace("on demand", "committed") if _bought(budget) else name


def _bought(budget: Budget) -> list[Held]:
    """Return the commitments that are new."""
    return [each.held for each in budget.commitments if not each.held.is_contract]


def _assumed(budget: Budget) -> list[Term]:
    """Return the terms without a quote: those that are bought, else all on sale."""
    terms = [each for each in budget.prices.terms if each.is_assumed]
    bought = {each.name for each in _bought(budget)}
    return [each for each in terms if each.name in bought] or terms


def _months(terms: Sequence[Term]) -> str:
    return f"{format_list([str(each.months) for each in terms])} months"


def _deal(budget: Budget) -> str:
    """Return what to reserve and to rent, in few words."""
    of = f"{budget.configuration.gpu} GPU".strip()
    new, months = _bought(budget), budget.months
    if not budget.commitments:
        if any(month.bill.usd_beside for month in months):
            return f"rent {of}s {_rents(budget)}"
        nodes = [count for month in months for count in month.nodes.tolist()]
        return f"rent {_gpus(budget, nodes, of)} {_rents(budget)}"
    held = new or [each.held for each in budget.commitments]
    nodes = [sum(x.nodes for x in held if x.runs(month.month)) for month in months]
    more = "more " if 0 < len(new) < len(budget.commitments) else ""  # than contracts
    text = f"reserve {_gpus(budget, nodes, more + of)}"
    if least := budget.prices.min_months:
        return f"{text} for {plural(least, 'month')} or more".replace("reserve", "rent")
    if not new:
        text = f"use {_gpus(budget, nodes, of)} under contract"
    return f"{text}, rent the rest {_rents(budget)}" if _rented(budget) else text


def _rented(budget: Budget) -> bool:
    """Return whether anything is paid for beside commitments."""
    bills = [month.bill for month in budget.months]
    return any(bill.usd_on_demand + bill.usd_spot + bill.usd_beside for bill in bills)


def _gpus(budget: Budget, nodes: Sequence[int], of: str) -> str:
    """Return the GPUs of so many nodes: "5 to 9 B200-SXM GPUs"."""
    low, high = (end(nodes) * budget.prices.gpus_per_node for end in (min, max))
    text = plural(high, of)
    return text if low == high else f"{low:,} to {text}" if low else f"up to {text}"


def _purchase(budget: Budget, held: Held) -> str:
    """Return a purchase: "5 × RunPod 1x-B200 for 12 months from month 3"."""
    prices = budget.prices
    node = f"{prices.provider} {prices.node}".strip() or budget.configuration.gpu
    start = "now" if held.first_month == 1 else f"from month {held.first_month}"
    return f"{held.nodes:,} × {node} for {plural(held.months, 'month')} {start}"


def _buy(budget: Budget) -> Said:
    prices, rent, new = budget.prices, budget.rent, _bought(budget)
    price = f"at {format_usd(prices.usd_per_gpu_h)} a GPU-hour"
    if rent.spot is not None:
        price += f", {format_usd(rent.spot / prices.gpus_per_node)} spot"
    if not budget.commitments:
        return Said(_deal(budget), f"{prices.provider} {prices.node} {price}".strip())
    shown = [_purchase(budget, held) for held in new[:1]]
    if new[1:]:
        shown.append(plural(len(new) - 1, "more purchase"))
    held = [x.held.nodes for x in budget.commitments if x.held.is_contract]
    if held:
        of = "GPU" if prices.is_per_gpu else "node"
        shown.append(f"{plural(sum(held), of)} under contract")
    if not _rented(budget):
        return Said(format_list(shown))
    most = max(m.bill.nodes - m.bill.committed_nodes for m in budget.months)
    many = f"up to {most:,} more" if most > 0 else "smaller nodes"
    return Said(format_list(shown), f"{many} {_rents(budget)} {price}")


def _cost(budget: Budget) -> Said:
    first, last = (
        dollars(month.bill.usd, month.is_uncertain)
        for month in (budget.months[0], budget.months[-1])
    )
    text = f"month 1: {first}, month {budget.months[-1].month}: {last}"
    owed = f"{owed} later" if (owed := _owed(budget)) else ""
    more = "; ".join(filter(None, (_saved(budget), owed)))
    return Said(f"{first} a month" if first == last else text, more)


def _saved(budget: Budget) -> str:
    """Return what it saves against all on demand; empty where nothing."""
    rows = {row.name: row.usd for row in budget.alternatives}
    saved = rows.get(_on_demand(budget), budget.usd) - budget.usd
    if abs(saved) < 0.5:
        return ""
    return f"{dollars(abs(saved))} {'less' if saved > 0 else 'more'} than on demand"


def _owed(budget: Budget) -> str:
    """Return what is to be paid after the last month; empty where nothing."""
    due = {"owed": budget.usd_owed_after, "paid ahead": budget.usd_prepaid_after}
    return ", ".join(f"{dollars(usd)} {how}" for how, usd in due.items() if usd >= 0.5)


def _missing(budget: Budget) -> str:
    """Return how the hours of the budget miss on the trace; empty where they hold."""
    asked = budget.slo.describe_targets(budget.class_names)
    for row in budget.fleets:
        if row.name == HOURS and not row.meets:
            hour = row.worst_hour_attainment
            share = format_share(row.slo_attainment if hour is None else hour)
            where = "" if hour is None else " in its worst hour"
            return f"{share} in time{where}, asked {asked}"
    return ""


def _peak(budget: Budget) -> Said:
    if missing := _missing(budget):
        return Said("misses on your trace", missing)
    first, last = (
        (month.replicas, "*" * month.is_estimated, format_count(month.busiest_per_s))
        for month in (budget.months[0], budget.months[-1])
    )
    gpus = budget.configuration.gpus
    of = f" of {gpus} GPUs" if gpus > 1 else ""
    text = f"{plural(first[0], 'replica')}{first[1]}{of} for {first[2]} requests/s"
    if last != first:
        month = budget.months[-1].month
        text += f", {last[0]:,}{last[1]} for {last[2]} in month {month}"
    return Said("holds in each hour", text)


def _sure(budget: Budget) -> Said:
    """Return how sure it is; no range, for neither prices nor hours have one."""
    prices, curve, found = budget.prices, budget.curve, []
    if terms := _assumed(budget):
        off = [1 - each.usd_per_node_h / prices.usd_per_node_h for each in terms]
        less = format_list([f"{share * 100:.0f}" for share in off])
        found.append(f"no quote for {_months(terms)} ({less} % off assumed)")
    if prices.is_doubtful:
        found.append("price on demand uncertain")
    if curve.is_typical:
        found.append("not your hours*")
    elif curve.is_short:
        found.append(f"{curve.days_text} of traffic, no week")
    if any(month.is_estimated for month in budget.months):
        found.append("later months not simulated")
    return uncertain.known(budget.configuration, found)


def _table(budget: Budget) -> Table:
    """Return the chosen way with others beside."""
    first, last = (budget.months[at].bill.usd for at in (0, -1))
    name = _WAYS[_own(budget)]
    name += ", some spot" if budget.rent.spot is not None else ""
    name += ", within quotas" if budget.settings.quota else ""
    assumed = _is_uncertain(budget)
    own = Alternative(name, budget.usd, first, last, is_estimated=assumed)
    rows = [_way(own)._replace(is_chosen=True), *_others(budget)][:MOST_ROWS]
    end = budget.months[-1].month
    named = ("month 1", f"month {end}") if end > 1 else ("", "")
    table = ways(rows, told=named[1], gpus=named[0], usd=_span(budget))
    *columns, month = table.columns
    return replace(table, columns=[*columns, month._replace(justify="right")])


def _others(budget: Budget) -> Iterator[Way]:
    """Yield scenarios and other ways to pay, those first that were asked for."""
    for named in budget.scenarios:
        if named.usd != budget.usd:
            state = ": infeasible" if named.usd is None else ""
            yield _way(replace(named, name=f"scenario {named.name}{state}"))
    rows = sorted(budget.alternatives, key=lambda row: row.usd)
    for row in sorted(rows, key=lambda row: not row.name.endswith("owned")):
        if row.name != _own(budget) or abs(row.usd - budget.usd) >= 0.5:
            yield _way(row)


def _way(row: Alternative | ScenarioRow) -> Way:
    """Return a row: the months stand where other pages have GPUs and the peak."""
    months = (row.usd_first_month, row.usd_last_month)
    first, last = (dollars(usd, row.is_estimated) for usd in months)
    name = _WAYS.get(row.name, row.name)
    return Way(name, first, row.usd, last, is_assumed=row.is_estimated)
