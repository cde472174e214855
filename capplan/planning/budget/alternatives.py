"""Other ways to pay for the months of a budget, and what a GPU-hour costs in each."""

from collections.abc import Callable, Sequence

import numpy as np

from capplan.planning.budget.result import Alternative, FleetRow, Month, PriceRow
from capplan.planning.money.bill import MonthBill, Rent
from capplan.planning.money.commitments import (
    Hours,
    Term,
    base_quantile,
    committed_base,
)
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.node_prices import NodePrices
from capplan.planning.money.owned import Owned

BillsOf = Callable[[Sequence[Hours], Sequence[Term]], list[MonthBill]]
"""Bills of replicas over the months, with the cheapest ladder of some terms."""


def alternatives(
    bills_of: BillsOf,
    static: Sequence[Hours],
    scheduled: Sequence[Hours],
    months: Sequence[Month],
    prices: NodePrices,
    owned: Owned | None,
) -> tuple[Alternative, ...]:
    """Return other ways to pay for the same traffic, without quotas and spot.

    ``static`` and ``scheduled`` are replicas.
    """
    found = [
        _billed("static, on demand", bills_of(static, ()), prices),
        _billed("scheduled, on demand", bills_of(scheduled, ()), prices),
    ]
    if prices.terms:
        found += [
            _billed("static, committed", bills_of(static, prices.terms), prices),
            _billed("scheduled, committed", bills_of(scheduled, prices.terms), prices),
        ]
    if owned is not None:
        found.append(_owned(owned, months, prices))
    return tuple(found)


def _billed(name: str, bills: Sequence[MonthBill], prices: NodePrices) -> Alternative:
    usd = [bill.usd for bill in bills]
    assumed = {term.name for term in prices.terms if term.is_assumed}
    doubtful = prices.is_doubtful or any(
        assumed & set(bill.usd_by_commitment) for bill in bills
    )
    return Alternative(
        name, sum(usd), usd[0], usd[-1], bills[-1].usd_owed, is_estimated=doubtful
    )


def autoscaled(
    fleets: Sequence[FleetRow], static: Alternative
) -> tuple[Alternative, ...]:
    """Return what policies cost, by what they cost of a fixed fleet on the trace."""
    return tuple(
        Alternative(
            f"{row.name}, on demand",
            share * static.usd,
            share * static.usd_first_month,
            share * static.usd_last_month,
            note=f"{100 * share:.3g} % of static, as on the trace in month 1",
            is_estimated=True,
        )
        for row in fleets
        if row.is_autoscaled and row.meets and (share := row.of_static) is not None
    )


def _owned(owned: Owned, months: Sequence[Month], prices: NodePrices) -> Alternative:
    """Return the cost of owning the most nodes wanted so far, month by month."""
    gpus = np.array([int(month.nodes.max()) for month in months]) * prices.gpus_per_node
    nodes = np.maximum.accumulate(-(-gpus // owned.gpus))
    hour = owned.usd_per_gpu_h() * owned.gpus
    usd = (nodes * hour * HOURS_PER_MONTH).tolist()
    note = (
        f"{nodes[0]} to {nodes[-1]} nodes of {owned.gpus} GPUs bought as the peak "
        "grows, at an even cost over their life"
    )
    return Alternative("static, owned", sum(usd), usd[0], usd[-1], 0.0, note, True)


def ways_to_pay(
    prices: NodePrices,
    rent: Rent,
    owned: Owned | None,
    wanted: Sequence[Hours],
    wacc: float,
) -> tuple[PriceRow, ...]:
    """Return what a GPU-hour costs on demand, committed, as spot and owned."""
    gpus, on_demand = prices.gpus_per_node, prices.usd_per_gpu_h

    def against(usd_per_gpu_h: float) -> float | None:
        return None if owned is None else owned.break_even(usd_per_gpu_h)

    rows = [
        PriceRow(
            "on demand",
            on_demand,
            prices.is_doubtful,
            owned_break_even=against(on_demand),
        )
    ]
    for term in prices.terms:
        usd = term.present_usd_per_node_h(wacc)
        hourly = term.usd_per_node_h / gpus
        whole = prices.usd_per_node_h
        rows.append(
            PriceRow(
                term.name,
                hourly,
                term.is_assumed or prices.is_doubtful,
                break_even=usd / whole,
                owned_break_even=against(hourly),
                upfront_usd_per_gpu_h=usd / gpus if term.upfront_share else None,
                base_nodes=committed_base(wanted[0], usd, whole),
                base_nodes_last=committed_base(wanted[-1], usd, whole),
                base_quantile=base_quantile(usd, whole),
            )
        )
    if rent.spot is not None:
        usd = rent.spot / gpus
        rows.append(PriceRow("spot", usd, False, owned_break_even=against(usd)))
    if owned is not None:
        usd = owned.usd_per_gpu_h()
        rows.append(PriceRow("owned", usd, True, break_even=usd / on_demand))
        line = owned.usd_per_gpu_h(straight_line=True)
        rows.append(PriceRow("owned, straight line", line, True))
    return tuple(rows)
