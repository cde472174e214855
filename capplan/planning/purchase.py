"""What the nodes of a plan cost in other ways to pay, scenarios and counts."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from capplan.deployment.pools import Pool
from capplan.errors import InputError, collected_warnings
from capplan.planning.bill import Held, Rent, month_bill
from capplan.planning.commitments import Hours
from capplan.planning.cost import (
    HOURS_PER_MONTH,
    HOURS_PER_YEAR,
    NodeCount,
    alike,
    at_offer,
    nodes_of,
)
from capplan.planning.node_prices import BASE_KINDS, NodePrices, node_prices
from capplan.planning.probe import Probe
from capplan.planning.purchase_result import CountCost, Purchase, Scenario, Way
from capplan.planning.purchase_texts import DEFAULT_COMMITMENTS, parse_commit
from capplan.planning.result import Candidate
from capplan.planning.setting_groups import PriceSettings
from capplan.planning.spot import INTERRUPTION_PER_MONTH, availability

SPOT_SHARE = 0.5
"""Most of the nodes that are taken as spot where an offer says nothing; assumed."""
EXPECTED = "expected: as planned"
PLANNED_COUNT = "planned"
_MONTHS_PER_YEAR = HOURS_PER_YEAR / HOURS_PER_MONTH
_MOST_COUNTS = 6
"""Replica counts told on either side of the planned one."""


Pick = Callable[..., NodeCount]
"""min or max."""


def purchase(settings: PriceSettings, best: Candidate) -> Purchase:
    """Return what else could be paid for the best candidate of a plan."""
    ways, no_ways = _ways(settings, best)
    return Purchase(ways, no_ways, _scenarios(best), _counts(best))


def _ways(settings: PriceSettings, best: Candidate) -> tuple[tuple[Way, ...], str]:
    """Return the ways to pay for the nodes, or why none can be told."""
    run = best.run
    if run is None or best.cost is None:
        return (), "no price is known"
    groups = alike(run.deployment.pools)
    if len(groups) > 1:
        return (), "the pools are on nodes of two kinds"
    if settings.kind.partition(":")[0] not in BASE_KINDS:
        return (), f"the plan is paid as {settings.kind} already"
    wishes = [parse_commit(text) for text in DEFAULT_COMMITMENTS]
    configuration = groups[0][1][0].configuration
    try:
        with collected_warnings():  # told of the plan's own price already
            prices = node_prices(settings, configuration, [w for w in wishes if w])
    except InputError as error:  # a price file may hold offers that it refuses here
        return (), str(error)
    (row,) = best.cost.nodes
    units = int(row.units)
    return tuple(_paid(prices, units, best)), ""


def _paid(prices: NodePrices, units: int, best: Candidate) -> list[Way]:
    """Return on demand, each term, and spot where it is offered."""
    whole = prices.usd_per_node_h
    hours = Hours.of(np.array([units]))
    on_demand = month_bill(1, hours, (), Rent(whole)).usd

    def way(name: str, usd: float, source: str, **values: float | bool | None) -> Way:
        saved = None if name == "on demand" else on_demand - usd
        return Way(
            name,
            usd / (units * HOURS_PER_MONTH),
            usd,
            usd * _MONTHS_PER_YEAR,
            saved,
            break_even=values.get("break_even"),
            is_assumed=bool(values.get("is_assumed")),
            source=source,
        )

    doubtful = prices.is_doubtful
    found = [way("on demand", on_demand, prices.source, is_assumed=doubtful)]
    for term in prices.terms:
        held = Held(term.name, units, 1, term.months, term.usd_per_node_h)
        usd = month_bill(1, hours, [held], Rent(whole)).usd
        found.append(
            way(
                term.name,
                usd,
                term.source,
                break_even=term.usd_per_node_h / whole,
                is_assumed=term.is_assumed or doubtful,
            )
        )
    if prices.spot is not None and prices.spot.usd_per_gpu_h < prices.usd_per_gpu_h:
        found += _spot(prices, units, best, on_demand)
    return found


def _spot(
    prices: NodePrices, units: int, best: Candidate, on_demand: float
) -> list[Way]:
    """Return nodes of which a share is spot, with those beside the needed, if any."""
    offer = prices.spot
    assert offer is not None
    share = SPOT_SHARE if offer.max_share is None else offer.max_share
    per_month = offer.interruption_per_month
    lost = INTERRUPTION_PER_MONTH if per_month is None else per_month
    run = best.run
    start = None if run is None else run.configuration.cold_start
    return_s = 0.0 if start is None else start.cold_start_s
    rent = Rent(
        prices.usd_per_node_h,
        spot=offer.usd_per_gpu_h * prices.gpus_per_node,
        spot_share=share,
        spot_there=availability(lost, return_s),
    )
    bill = month_bill(1, Hours.of(np.array([units])), (), rent)
    on_demand_count = bill.on_demand_node_hours / HOURS_PER_MONTH
    spot_count = bill.spot_node_hours / HOURS_PER_MONTH
    source = (
        f"{offer.whose}, {offer.as_of}; {on_demand_count:,.0f} on demand and "
        f"{spot_count:,.0f} spot, at most {share:.0%} of those needed; "
        f"{lost:.0%} taken back in a month"
    )
    if not bill.spot_node_hours:
        return []
    row = Way(
        "spot in part",
        bill.usd / (units * HOURS_PER_MONTH),
        bill.usd,
        bill.usd * _MONTHS_PER_YEAR,
        on_demand - bill.usd,
        None,
        is_assumed=True,
        source=source,
    )
    return [row]


def _scenarios(best: Candidate) -> tuple[Scenario, ...]:
    """Return the plan with the cheapest and the dearest provider, and other engines.

    The lowest and the highest are the ends of ``usd_per_month_range``.
    """
    run = best.run
    if run is None or best.cost is None:
        return ()
    pools = run.deployment.pools
    ends = best.engine_fleets or (run.deployment, run.deployment)
    fewest, most = (fleet.pools for fleet in ends)
    expected = _scenario(EXPECTED, pools, nodes_of(pools))
    low = _scenario("low", fewest, _at_end(fewest, min))
    high = _scenario("high", most, _at_end(most, max))
    cheapest = _scenario("cheapest provider", pools, _at_end(pools, min))
    dearest = _scenario("dearest provider", pools, _at_end(pools, max))
    fast = _scenario("fewest replicas", fewest, nodes_of(fewest))
    slow = _scenario("most replicas", most, nodes_of(most))
    found = [
        *_end(low, cheapest, fast, expected),
        expected,
        *reversed(_end(high, dearest, slow, expected)),
    ]
    return tuple(found)


def _end(
    end: Scenario, by_price: Scenario, by_count: Scenario, expected: Scenario
) -> list[Scenario]:
    """Return an end of the bill, then what provider and engines do of it alone.

    What changes nothing is left out.
    """
    moving = [row for row in (by_price, by_count) if not _is_same(row, expected)]
    if not moving:
        return []
    told = f"{end.name}: {', '.join(row.name for row in moving)}"
    return [replace(end, name=told), *(moving if len(moving) > 1 else ())]


def _is_same(row: Scenario, other: Scenario) -> bool:
    return (row.replica_count, row.usd_per_month) == (
        other.replica_count,
        other.usd_per_month,
    )


def _scenario(
    name: str, pools: Sequence[Pool], nodes: Sequence[NodeCount] | None
) -> Scenario:
    assert nodes is not None
    hour = sum(row.usd_per_h for row in nodes)
    return Scenario(
        name,
        sum(pool.replica_count for pool in pools),
        _node_count(nodes),
        sum(row.gpus_paid for row in nodes),
        HOURS_PER_MONTH * hour,
        HOURS_PER_YEAR * hour,
    )


def _node_count(nodes: Sequence[NodeCount]) -> float | None:
    counts = [row.count for row in nodes]
    return None if None in counts else sum(count or 0 for count in counts)


def _at_end(pools: Sequence[Pool], pick: Pick) -> list[NodeCount]:
    """Return the nodes of the provider whose bill is least or most, of each kind."""
    found: list[NodeCount] = []
    for price, group in alike(pools):
        bills: list[NodeCount] = []
        for index in range(len(price.asked)):
            nodes = nodes_of([at_offer(pool, index) for pool in group])
            assert nodes is not None
            bills += nodes
        if not bills:
            bills = list(nodes_of(group) or ())
        found.append(pick(bills, key=lambda row: row.usd_per_h))
    return found


def _counts(best: Candidate) -> tuple[CountCost, ...]:
    """Return the counts simulated near the planned one, and one more; ascending."""
    if best.run is None or best.pools:
        return ()
    planned = best.run.replica_count
    probes = {probe.replica_count: probe for probe in best.probes}
    near = sorted({*probes, planned, planned + 1})
    at = near.index(planned)
    near = near[max(0, at - _MOST_COUNTS) : at + _MOST_COUNTS + 1]
    usual = _bill_of(best, planned)
    return tuple(
        _count(best, count, probes, usual, _named(count, planned)) for count in near
    )


def _named(count: int, planned: int) -> str:
    names = {
        planned - 1: "one replica fewer",
        planned: PLANNED_COUNT,
        planned + 1: "N+1: one replica more",
    }
    return names.get(count, "")


def _bill_of(best: Candidate, count: int) -> tuple[NodeCount, ...] | None:
    assert best.run is not None
    return nodes_of(best.run.deployment.with_replicas(count).pools)


def _count(
    best: Candidate,
    count: int,
    probes: dict[int, Probe],
    usual: Sequence[NodeCount] | None,
    name: str,
) -> CountCost:
    nodes = _bill_of(best, count)
    usd = against = node_count = None
    if nodes is not None and usual is not None:
        usd = HOURS_PER_MONTH * sum(row.usd_per_h for row in nodes)
        against = usd - HOURS_PER_MONTH * sum(row.usd_per_h for row in usual)
        node_count = _node_count(nodes)
    probe, fewer = probes.get(count), probes.get(count - 1)
    return CountCost(
        name,
        count,
        count * (best.gpus_per_replica or best.tp),
        node_count,
        usd,
        against,
        None if probe is None else probe.slo_attainment,
        None if probe is None else probe.meets,
        None if fewer is None else fewer.slo_attainment,
    )
