"""The page of a budget: months, commitments, and other ways to pay."""

from functools import partial
from typing import Any

from capplan.planning.budget.result import Budget, Month
from capplan.planning.budget.settings import STATIC
from capplan.report import sentences
from capplan.report.charts.budget import budget_figures, finding
from capplan.report.columns import format_list, format_share, record
from capplan.report.fields import fields
from capplan.report.money import in_its_currency
from capplan.report.page import FILES, Fact, Page, Section, Table, Tile
from capplan.report.pages.autoscale import OF_RESULT
from capplan.report.pages.budget_columns import (
    ALTERNATIVES,
    ASSUMPTIONS,
    COMMITMENTS,
    FLEETS,
    HOURS,
    MONTHS,
    SCENARIOS,
    WAYS,
    hour_rows,
    node_columns,
    starred_usd,
)
from capplan.report.pages.plan import launch_section
from capplan.report.panels import budget_panel
from capplan.units import format_duration, format_usd

SCHEMA = "capplan.budget/1"


@in_its_currency
def budget_page(budget: Budget) -> Page:
    """Return the months of a budget, its commitments, and what else was tried."""
    months = Table(MONTHS, budget.months, note=_months_note(budget))
    held = Table(COMMITMENTS, budget.commitments, note=_held_note(budget))
    others = Table(ALTERNATIVES, budget.alternatives, note=_others_note())
    fleets = Table(FLEETS, budget.fleets, note=_fleets_note(budget))
    ways = Table(WAYS, budget.ways, note=_ways_note(budget))
    rows = hour_rows(budget)
    named = Table(SCENARIOS, budget.scenarios, note=_scenarios_note())
    hours, nodes = Table(HOURS, rows), Table(node_columns(budget), rows)
    rests = Table(ASSUMPTIONS, budget.assumptions, note="Starred: assumed, not known.")
    llm = budget.settings.llm or "given iteration times"
    gpu = budget.configuration.gpu
    return Page(
        "budget",
        _headline(budget),
        f"{llm} on {budget.configuration}" if gpu else llm,
        [
            Section("Months", _facts(budget), [months]),
            launch_section(budget.launch),
            Section("Scenarios", tables=[named]),
            Section("Commitments", tables=[held]),
            Section("Other ways to pay", tables=[others]),
            Section("Fleets on the trace", tables=[fleets]),
            Section("A GPU-hour", tables=[ways]),
            Section("Over time", figures=partial(budget_figures, budget)),
            Section("What it rests on", tables=[rests]),
            Section("Hours", tables=[hours], only=FILES),
        ],
        values=partial(budget_values, budget),
        csv={
            "budget.csv": months,
            "commitments.csv": held,
            "hours.csv": hours,
            "nodes.csv": nodes,
            "alternatives.csv": others,
            "fleets.csv": fleets,
            "scenarios.csv": named,
            "ways.csv": ways,
        },
        panel=budget_panel(budget),
        chart=finding(budget),
        lead=_lead(budget),
        tiles=_tiles(budget),
        warnings=budget.warnings,
        is_failure=bool(budget.infeasible_reason),
    )


def _headline(budget: Budget) -> str:
    if budget.infeasible_reason:
        return "Infeasible"
    return f"{starred_usd(budget, budget.usd)} over {_span(budget)}"


def _span(budget: Budget) -> str:
    return sentences.plural(budget.settings.horizon_months, "month")


def _lead(budget: Budget) -> str:
    """Return the answer in a sentence; of less than a week it says so first."""
    if budget.infeasible_reason:
        return f"The quotas are too small: {budget.infeasible_reason}."
    text = _seen(budget) + _bought(budget)
    if budget.commitments:
        used, covered = budget.utilisation or 0.0, budget.coverage or 0.0
        text += (
            f"; commitments are used {format_share(used)} of their time and serve "
            f"{format_share(covered)} of the node-hours"
        )
    return f"{text}. {_owed(budget)}"


def _seen(budget: Budget) -> str:
    curve = budget.curve
    if curve.is_typical:
        return f"On {curve.source}, not on hours of your own: "
    if curve.is_short:
        return f"From {curve.days_text} of requests, which are no whole week: "
    return ""


def _bought(budget: Budget) -> str:
    new = [use.held for use in budget.commitments if not use.held.is_contract]
    parts = [
        f"{sentences.plural(each.nodes, _unit(budget))} for {each.months} months "
        + ("now" if each.first_month == 1 else f"from month {each.first_month}")
        for each in new[:4]
    ]
    if len(new) > len(parts):
        parts.append(f"{len(new) - len(parts)} more purchases")
    none = "Commit nothing more" if budget.commitments else "Commit nothing"
    text = f"Commit {format_list(parts)}: " if parts else f"{none}: "
    text += f"{starred_usd(budget, budget.usd)} over {_span(budget)}"
    rows = {row.name: row for row in budget.alternatives}
    static = budget.settings.fleet == STATIC
    name = f"{'static' if static else 'scheduled'}, on demand"
    other = rows.get(name)
    if other is None or not other.usd > 0:
        return text
    saved = other.usd - budget.usd
    if abs(saved) < 0.5:
        return text
    word = "less" if saved >= 0 else "more"
    return (
        f"{text}, {format_usd(abs(saved))} ({format_share(abs(saved) / other.usd)}) "
        f"{word} than {name}"
    )


def _owed(budget: Budget) -> str:
    last = budget.settings.horizon_months
    text = "Nothing is"
    if budget.usd_owed_after >= 0.5:
        text = f"{format_usd(budget.usd_owed_after)} is"
    text += f" owed after month {last}"
    if budget.usd_prepaid_after >= 0.5:
        text += f"; {format_usd(budget.usd_prepaid_after)} is paid ahead for then"
    return f"{text}."


def _unit(budget: Budget) -> str:
    return "GPU" if budget.prices.is_per_gpu else "node"


def _tiles(budget: Budget) -> list[Tile]:
    if not budget.months:
        return []
    first, last = budget.months[0], budget.months[-1]
    tiles = [
        Tile("month 1", starred_usd(budget, first.bill.usd), _peak(budget, first)),
        Tile(
            f"month {last.month}",
            starred_usd(budget, last.bill.usd),
            _peak(budget, last),
        ),
        Tile("owed after", format_usd(budget.usd_owed_after)),
    ]
    co2 = [month.t_co2e for month in budget.months]
    known = [each for each in co2 if each is not None]
    if known:
        energy = sum(month.kwh or 0.0 for month in budget.months)
        tiles.append(
            Tile("electricity", f"{energy:,.0f} kWh*", f"{sum(known):.3g} t CO2e*")
        )
    return tiles


def _peak(budget: Budget, month: Month) -> str:
    return f"{sentences.plural(month.bill.nodes, _unit(budget))} at the peak"


def _facts(budget: Budget) -> list[Fact]:
    names, prices = budget.class_names, budget.prices
    size = f"{prices.gpus_per_node} GPUs"
    if prices.is_per_gpu:
        size = "price per GPU: node size not known"
    return [
        ("within", budget.slo.describe(names)),
        ("asked", f"{budget.slo.describe_targets(names)}, in each hour"),
        ("node", " ".join(filter(None, (prices.provider, prices.node, f"({size})")))),
        ("hours", budget.curve.source),
        ("growth", budget.settings.growth),
        (
            "node-hours",
            "paid from the order of a node, "
            f"{format_duration(budget.cold_start_s)} before its first request"
            if budget.settings.fleet != STATIC
            else "all hours at the peak of the month",
        ),
    ]


def _months_note(budget: Budget) -> str:
    parts = []
    if budget.prices.is_doubtful or any(t.is_assumed for t in budget.prices.terms):
        parts.append("dollars rest on assumed prices")
    if any(month.is_estimated for month in budget.months):
        parts.append("replicas are extrapolated beyond the rates simulated")
    if any(month.kwh is not None for month in budget.months):
        parts.append("energy rests on assumed power")
    note = (
        "A month has 730 h. “used” is the share of the committed node-hours that is "
        "used, “covered” that of the node-hours wanted which commitments serve; “owed” "
        "is still to be paid of commitments after the month."
    )
    return note + (f" Starred: {'; '.join(parts)}." if parts else "")


def _held_note(budget: Budget) -> str:
    return (
        "Used in the order of the table. “pays from” is the utilisation from which on "
        "a commitment is cheaper than on demand; “owed after” is still to be paid of "
        f"it after month {budget.settings.horizon_months}."
    )


def _others_note() -> str:
    return (
        "Static is the peak of each month at all hours. Each without quotas and spot; "
        "contracts that run already are in all of them but the owned one."
    )


def _scenarios_note() -> str:
    return (
        "Each is a budget of its own, simulated again where its traffic or answers "
        "differ, with the commitments that are best for it: what it costs if it is "
        "known from the start. A price factor is not on contracts that run already."
    )


def _fleets_note(budget: Budget) -> str:
    return (
        "The trace itself, at the traffic of month 1; “fixed, as good” is the smallest "
        "fleet of a fixed size that attains as much, in all and in the worst hour. The "
        "budget's hours attain the target in each hour at a steady rate, the fixed "
        f"fleet {_fleets_asked(budget)}."
    )


def _fleets_asked(budget: Budget) -> str:
    asked = budget.settings.attain_in
    if asked == "trace":
        return "over the whole trace, so that it may have fewer nodes at the peak"
    return f"in every {'hour' if asked is None else asked} of the trace, as it is"


def _ways_note(budget: Budget) -> str:
    text = (
        "“pays from” is the share of hours in use from which on it is cheaper than on "
        "demand; the base is the nodes worth committing by it alone: the quantile of "
        "the hours that is 1 - its price over that on demand."
    )
    if budget.owned is not None:
        text += (
            " Owned: capital by the recovery factor at the cost of capital; straight "
            "line as finance books it."
        )
    return text


def budget_values(budget: Budget) -> dict[str, Any]:
    """Return the keys and values of ``budget.json``."""
    columns = fields(
        "budget",
        status=lambda of: "infeasible" if of.infeasible_reason else "feasible",
        usd=lambda of: of.usd if of.months else None,
        usd_owed_after=lambda of: of.usd_owed_after if of.months else None,
        usd_prepaid_after=lambda of: of.usd_prepaid_after if of.months else None,
        hours=lambda of: [record(HOURS, row) for row in hour_rows(of)],
        **OF_RESULT,
    )
    return {"schema": SCHEMA, **record(columns, budget)}
