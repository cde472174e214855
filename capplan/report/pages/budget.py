"""The page of a budget: months, commitments, and other ways to pay."""

from functools import partial
from typing import Any

import numpy as np

from capplan.planning.budget.result import Budget, Month
from capplan.planning.budget.settings import STATIC
from capplan.planning.load.demand_curve import hour_name
from capplan.report.budget_answer import (
    budget_answer,
    budget_lead,
    budget_steps,
    budget_subject,
    budget_title,
)
from capplan.report.budget_why import budget_why
from capplan.report.charts.budget import budget_figures, finding
from capplan.report.columns import Column, record
from capplan.report.fields import fields
from capplan.report.first_screen import prices_told
from capplan.report.money import in_its_currency
from capplan.report.page import (
    FILES,
    Fact,
    Page,
    Section,
    Table,
    next_section,
    why_section,
)
from capplan.report.pages.autoscale import OF_RESULT
from capplan.report.pages.plan import launch_section
from capplan.report.panels import budget_panel
from capplan.units import format_duration

SCHEMA = "capplan.budget/1"
_HOURS = fields("budget_hour")


@in_its_currency
def budget_page(budget: Budget) -> Page:
    """Return the months of a budget, its commitments, and what else was tried."""
    months = Table(fields("budget_month"), budget.months, note=_months_note(budget))
    held = Table(
        fields("budget_commitment"), budget.commitments, note=_held_note(budget)
    )
    others = Table(fields("budget_alternative"), budget.alternatives, note=_OTHERS_NOTE)
    fleets = Table(fields("budget_fleet"), budget.fleets, note=_fleets_note(budget))
    ways = Table(fields("budget_way"), budget.ways, note=_ways_note(budget))
    rows = hour_rows(budget)
    named = Table(fields("budget_scenario"), budget.scenarios, note=_SCENARIOS_NOTE)
    hours, nodes = Table(_HOURS, rows), Table(node_columns(budget), rows)
    stated = fields(
        "budget_assumption", value=lambda row: row.value + "*" * (row.how == "assumed")
    )
    rests = Table(stated, budget.assumptions, note="Starred: assumed, not known.")
    first = budget_answer(budget)
    sure = [("in all", first.sure.text), ("latency", budget.configuration.note)]
    return Page(
        "budget",
        budget_title(budget),
        budget_subject(budget),
        [
            why_section("many nodes", budget_why(budget)),
            Section("Months", _facts(budget), [months], topic="price"),
            launch_section(budget.launch),
            Section("Scenarios", tables=[named], topic="price"),
            Section("Commitments", tables=[held], topic="price"),
            Section("Other ways to pay", tables=[others], topic="price"),
            Section("Fleets on the trace", tables=[fleets], topic="peak"),
            Section("A GPU-hour", tables=[ways], topic="price"),
            Section("How sure it is", sure, topic="sure"),
            Section("Over time", figures=partial(budget_figures, budget)),
            Section("What it rests on", tables=[rests], topic="assumptions"),
            Section("Hours", tables=[hours], only=FILES, topic="peak"),
            next_section(budget_steps(budget)),
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
        prices=prices_told(budget.configuration.price),
        answer=first,
        chart=finding(budget),
        lead=budget_lead(budget),
        warnings=budget.warnings,
        is_failure=bool(budget.infeasible_reason),
    )


def _facts(budget: Budget) -> list[Fact]:
    names, prices = budget.class_names, budget.prices
    size = f"{prices.gpus_per_node} GPUs"
    if prices.is_per_gpu:
        size = "price per GPU: node size not known"
    return [
        ("within", budget.slo.describe(names)),
        ("replicas of", str(budget.configuration)),
        ("node", " ".join(filter(None, (prices.provider, prices.node, f"({size})")))),
        (
            "node-hours",
            "paid from a node's order, "
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
        parts.append("replicas are beyond the rates simulated")
    if any(month.kwh is not None for month in budget.months):
        parts.append("energy rests on assumed power")
    note = (
        "A month has 730 h. “used”: share of the committed node-hours in use; "
        "“covered”: share of all node-hours that commitments serve; “owed”: still to "
        "be paid for commitments after the month."
    )
    return note + (f" Starred: {'; '.join(parts)}." if parts else "")


def _held_note(budget: Budget) -> str:
    return (
        "Used in this order. “pays from”: share of hours in use above which it is "
        "cheaper than on demand; “owed after”: still to be paid after month "
        f"{budget.settings.horizon_months}."
    )


_OTHERS_NOTE = (
    "Static: the peak of each month at all hours. None has quotas or spot; contracts "
    "that run already are in all but the owned one."
)
_SCENARIOS_NOTE = (
    "Each is a budget of its own with the commitments that suit it best: what it costs "
    "if it is known from the start. Price factors leave running contracts as they are."
)


def _fleets_note(budget: Budget) -> str:
    return (
        "The trace itself, at the traffic of month 1. “fixed, as good”: the smallest "
        "fixed fleet with as many requests in time, in all and in the worst hour. The "
        "hours of the budget hold at a steady rate in each hour, the fixed fleet "
        f"{_fleets_asked(budget)}."
    )


def _fleets_asked(budget: Budget) -> str:
    asked = budget.settings.attain_in
    if asked == "trace":
        return "over the whole trace, so that it may have fewer nodes at the peak"
    return f"in every {'hour' if asked is None else asked} of the trace, as it is"


def _ways_note(budget: Budget) -> str:
    text = (
        "“pays from”: share of hours in use above which it is cheaper than on demand; "
        "base: nodes worth committing by it alone, which is the quantile 1 − its price "
        "/ that on demand of the hours."
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
        hours=lambda of: [record(_HOURS, row) for row in hour_rows(of)],
        **OF_RESULT,
    )
    return {"schema": SCHEMA, **record(columns, budget)}


def hour_rows(budget: Budget) -> list[tuple[Any, ...]]:
    """Return the hours of a budget, as they come again: values of ``_HOURS``."""
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

    return (_HOURS[0], *map(of, budget.months))
