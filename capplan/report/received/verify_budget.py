"""Check a budget.json: its bill from its own rows, and all of it budgeted again."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from capplan.bounds.certificate import MALFORMED
from capplan.planning.budget.budget import budget
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.report.pages.budget import SCHEMA, budget_values
from capplan.report.received.allowed import received
from capplan.report.received.plan_document import read_made_by
from capplan.report.received.verify import changed
from capplan.report.render.json_text import json_text

_MOST_REASONS = 10
_CENT = 0.005
"""Amounts agree within it. [$]"""

Row = Mapping[str, Any]
Claim = tuple[str, float, float]
"""Where a figure stands, what it is, and what the rows make of it."""


def verify_budget(path: Path, *, simulate: bool, **taken: Any) -> list[str]:
    """Return why a budget cannot be accepted; empty when it holds.

    The bill of each month, each commitment and the totals are reckoned from the rows:
    nodes times their price over a month of 730 h, what is used and what is owed. Then
    the budget is made again from its settings and compared, so that rows which were
    all changed together differ. The parameters are those of
    :func:`capplan.report.received.verify.verify`.
    """
    document = read_made_by("budget", path, SCHEMA)
    try:
        reasons = [
            f"{where} is {claimed:,.2f}; its rows make it {expected:,.2f}"
            for where, claimed, expected in _claims(document)
            if not math.isclose(claimed, expected, rel_tol=1e-9, abs_tol=_CENT)
        ]
    except MALFORMED as problem:
        return [f"it is malformed: {type(problem).__name__}: {problem}"]
    if reasons or not simulate:
        return reasons[:_MOST_REASONS]
    settings, named = received(document, path, BudgetSettings, **taken)
    again = json_text(budget_values(budget(BudgetSettings(**settings))))
    return changed(document, again, "budgeted", named, ())


def _claims(document: Row) -> Iterator[Claim]:
    """Yield the figures of a budget beside what its own rows make of them."""
    months, held = document["months"], document["commitments"]
    if not months:
        return
    horizon = len(months)
    for index, each in enumerate(held):
        yield from _of_commitment(f"commitments[{index}].", each, horizon, document)
    for index, month in enumerate(months):
        yield f"months[{index}].month", month["month"], index + 1
        yield from _of_month(f"months[{index}].", month, held, document)
    names = ("usd_owed_after", "usd_prepaid_after")
    totals = {name: sum(each[name] for each in held) for name in names}
    yield from _of("", document, usd=sum(month["usd"] for month in months), **totals)
    used = sum(_used_h(month) for month in months)
    committed_h = HOURS_PER_MONTH * sum(month["committed_nodes"] for month in months)
    wanted = sum(month["node_hours"] for month in months)
    by_commitment = sum(each["utilisation"] * _held_h(each, horizon) for each in held)
    yield "commitments' node-hours used", by_commitment, used
    if committed_h:
        share = document["commitment_utilisation"]
        yield "commitment_utilisation x node-hours", share * committed_h, used
    if wanted:
        share = document["commitment_coverage"]
        yield "commitment_coverage x node-hours", share * wanted, used


def _of(where: str, row: Row, **expected: float) -> Iterator[Claim]:
    for name, value in expected.items():
        yield f"{where}{name}", row[name], value


def _of_commitment(
    where: str, each: Row, horizon: int, document: Row
) -> Iterator[Claim]:
    per_month = each["nodes"] * each["usd_per_node_h"] * HOURS_PER_MONTH
    first, last = each["first_month"], each["last_month"]
    left, upfront = max(0, last - horizon), each["upfront_share"]
    unused = (1 - each["utilisation"]) * _held_h(each, horizon) * each["usd_per_node_h"]
    yield from _of(
        where,
        each,
        usd=per_month * (last - first + 1),
        usd_unused=unused,
        usd_owed_after=left * (1 - upfront) * per_month,
        usd_prepaid_after=left * upfront * per_month,
    )
    ratio = each["usd_per_node_h"] / document["usd_per_node_h"]
    yield f"{where}break_even x price", each["break_even"] * 1e6, ratio * 1e6


def _of_month(
    where: str, month: Row, held: Sequence[Row], document: Row
) -> Iterator[Claim]:
    """Yield the figures of one month; of spot its price is what two of them say."""
    at = month["month"]
    running = [each for each in held if each["first_month"] <= at <= each["last_month"]]
    by_name: dict[str, float] = {}
    upfront = owed = 0.0
    for each in running:
        usd = each["nodes"] * each["usd_per_node_h"] * HOURS_PER_MONTH
        by_name[each["name"]] = by_name.get(each["name"], 0.0) + usd
        ahead = each["upfront_share"] * usd
        months = each["last_month"] - each["first_month"] + 1
        upfront += ahead * (months if at == each["first_month"] else 0) - ahead
        until = each.get("firm_month") or each["last_month"]
        owed += max(0, until - at) * (usd - ahead)
    claimed = month["usd_by_commitment"]
    for name in dict.fromkeys((*by_name, *claimed)):
        usd, made = claimed.get(name, 0.0), by_name.get(name, 0.0)
        yield f"{where}usd_by_commitment[{name}]", usd, made
    committed_usd = sum(by_name.values())
    rent = month["usd_on_demand"] + month["usd_spot"] + month["usd_to_minimum"]
    rent += month.get("usd_beside", 0.0)
    used, spot_usd = _used_h(month), document.get("spot_usd_per_node_h") or 0.0
    yield from _of(
        where,
        month,
        committed_nodes=sum(each["nodes"] for each in running),
        usd_committed=committed_usd,
        usd_on_demand=month["on_demand_node_hours"] * document["usd_per_node_h"],
        usd_spot=month["spot_node_hours"] * spot_usd,
        usd=committed_usd + rent,
        usd_paid=month["usd"] + upfront,
        usd_owed=owed,
    )
    if month["node_hours"]:
        covered = month["commitment_coverage"] * month["node_hours"]
        yield f"{where}commitment_coverage x node-hours", covered, used
    if not month["spot_node_hours"]:
        served = used + month["on_demand_node_hours"]
        yield f"{where}node_hours", month["node_hours"], served


def _used_h(month: Row) -> float:
    """Return the node-hours of commitments that a month uses. [h]"""
    share = month["commitment_utilisation"] or 0.0
    return float(share * month["committed_nodes"] * HOURS_PER_MONTH)


def _held_h(each: Row, horizon: int) -> float:
    """Return the node-hours of a commitment within the horizon. [h]"""
    months = min(each["last_month"], horizon) - each["first_month"] + 1
    return float(each["nodes"] * HOURS_PER_MONTH * months)
