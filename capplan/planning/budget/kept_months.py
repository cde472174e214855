"""Nodes rented for some months at least: for whole months, and never for fewer."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from capplan.errors import InputError
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.money.bill import Held
from capplan.planning.money.commitments import Hours, Term
from capplan.planning.money.node_prices import NodePrices


def refuse_with_least_months(settings: BudgetSettings, prices: NodePrices) -> None:
    """Refuse what needs nodes by the hour, where they are rented by the month."""
    for name in ("quota", "spot_share"):
        if prices.min_months and getattr(settings, name):
            raise InputError(
                f"{prices.provider or 'the offer'} rents nodes for {prices.min_months} "
                f"months at least; expected no {name}, which is for nodes by the hour"
            )


def lengths_on_sale(prices: NodePrices, horizon: int) -> list[Term]:
    """Return a rental of each length: that many months, or any more; none by the hour.

    The ladder chooses among them, so that each node is kept as long as it should be.
    """
    if not prices.min_months:
        return []
    longest = max(prices.min_months, horizon)
    name = f"{prices.kind}, {prices.min_months} months or more"
    return [
        Term(name, months, prices.usd_per_node_h, is_assumed=prices.is_doubtful)
        for months in range(prices.min_months, longest + 1)
    ]


def peaks_of(wanted: Sequence[Hours]) -> list[Hours]:
    """Return each month's peak at all hours: what is rented by the month is kept."""
    return [Hours.of(np.full(1, hours.most)) for hours in wanted]


def rentals(terms: Sequence[Term], bought: np.ndarray, least: int) -> list[Held]:
    """Return what the ladder rents of all lengths, as few and long rentals.

    Only the nodes kept in each month cost anything. Of these the oldest are given back
    first, which keeps each as long as any order does.
    """
    horizon = bought.shape[1]
    kept = np.zeros(horizon + 1, np.int64)  # and none is wanted after the last month
    for term, row in zip(terms, bought, strict=True):
        for start in np.flatnonzero(row).tolist():
            kept[start : min(start + term.months, horizon)] += row[start]
    changes = np.diff(kept, prepend=0)
    running: deque[list[int]] = deque()
    found: list[tuple[int, int, int]] = []
    for month, change in enumerate(changes.tolist()):
        if change > 0:
            running.append([month, change])
        while change < 0:
            start, count = running[0]
            gone = min(count, -change)
            found.append((start, max(month, start + least), gone))
            change += gone
            running[0][1] -= gone
            if running[0][1] == 0:
                running.popleft()
    return [
        Held(
            terms[0].name,
            count,
            start + 1,
            end,
            terms[0].usd_per_node_h,
            is_assumed=terms[0].is_assumed,
            firm_month=start + least,
        )
        for start, end, count in found
    ]
