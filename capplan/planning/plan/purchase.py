"""What the nodes of a plan cost in other ways to pay, scenarios and counts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from capplan.errors import HostFullError, InputError, collected_warnings
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import run_of
from capplan.planning.money.bill import Held, Rent, month_bill
from capplan.planning.money.commitments import Hours
from capplan.planning.money.cost import (
    HOURS_PER_MONTH,
    HOURS_PER_YEAR,
    NodeCount,
    alike,
    bills_of,
    fitting,
    node_count,
    nodes_of,
    warn_of_doubts,
)
from capplan.planning.money.node_prices import BASE_KINDS, NodePrices, node_prices
from capplan.planning.money.purchase_texts import DEFAULT_COMMITMENTS, parse_commit
from capplan.planning.money.spot import INTERRUPTION_PER_MONTH, availability
from capplan.planning.plan.told import Told
from capplan.planning.settings.groups import PriceSettings
from capplan.units import format_usd

SPOT_SHARE = 0.5
"""Most of the nodes that are taken as spot where an offer says nothing; assumed."""
PLANNED_COUNT = "planned"
_MOST_COUNTS = 6
"""Replica counts told on either side of the planned one."""


@dataclass(frozen=True)
class Way:
    """A way to pay for the nodes of a plan, at all hours."""

    name: str
    usd_per_node_h: float  # of a node, in the mean where two kinds are mixed [$/h]
    usd_per_month: float  # 730 h [$]
    usd_per_year: float  # 8,760 h [$]
    usd_saved_per_month: float | None  # against on demand; negative: dearer [$]
    # share of the hours from which on it is cheaper than on demand; None of neither
    break_even: float | None
    is_assumed: bool  # nobody quotes the price; starred
    source: str


@dataclass(frozen=True)
class ProviderBill:
    """The cheapest nodes of a provider that hold the replicas of a plan."""

    gpu: str
    provider: str
    nodes: str  # "1 × gpu_8x_h100_sxm5 + 1 × gpu_1x_h100_sxm5"
    gpus_paid: int
    stranded_gpus: int  # paid, and in no replica
    usd_per_month: float  # 730 h [$]
    is_planned: bool  # at the lower quartile: what the plan costs
    is_doubtful: bool  # a price is a guess, old or undated
    source: str


@dataclass(frozen=True)
class CountCost:
    """What a number of replicas costs, and what it attains."""

    name: str  # "planned", "N+1: one more replica" or empty
    replica_count: int
    gpu_count: int
    node_count: float | None  # None where GPUs are priced alone or have no price
    usd_per_month: float | None  # None without a price [$]
    usd_against_planned: float | None  # a month; negative: less [$]
    slo_attainment: float | None  # None where it was not simulated
    meets: bool | None  # None where not simulated, or too close to call
    attainment_with_one_lost: float | None  # of one replica fewer


@dataclass(frozen=True)
class Purchase:
    """What the nodes of the best candidate cost, and what else could be paid."""

    bills: tuple[ProviderBill, ...] = ()  # of each GPU type the cheapest first
    left_out: tuple[str, ...] = ()  # providers that have no such nodes, and why
    turned: tuple[str, ...] = ()  # other candidates that bill less at one provider
    ways: tuple[Way, ...] = ()
    no_ways: str = ""  # why there is none
    count_costs: tuple[CountCost, ...] = ()
    # what all replicas attain that fit the nodes paid for; None where no more do
    paid_anyway: Probe | None = None


def purchase(
    settings: PriceSettings,
    best: Candidate,
    candidates: Sequence[Candidate] = (),
    beside: Probe | None = None,
) -> Purchase:
    """Return what the best costs, and what else could be paid."""
    ways, no_ways = _ways(settings, best)
    bills, left_out = _bills(best)
    turned = tuple(filter(None, (_turned(best, row) for row in candidates)))
    rest = ways, no_ways, _counts(best, beside)
    return Purchase(bills, left_out, turned, *rest, paid_anyway=beside)


def purchase_of(told: Told) -> Purchase:
    """Return what the nodes of a plan's best candidate cost."""
    beside = None if told.plan.interrupted else _paid_anyway(told)
    return purchase(told.settings, told.best, told.plan.candidates, beside)


def _paid_anyway(told: Told) -> Probe | None:
    """Return what all replicas attain that fit the nodes paid for; None: no more do."""
    run, deployment = told.run, told.run.deployment
    if told.best.cost is None or told.best.pools:
        return None
    count = fitting(deployment.pool)
    if count <= run.replica_count:
        return None
    told.progress("simulating the replicas that fit the nodes paid for")
    try:
        return Probe.of(run_of(told.inputs, deployment.with_replicas(count)))
    except (HostFullError, Interrupted):
        return None


def _turned(best: Candidate, other: Candidate) -> str:
    """Return at which provider another candidate bills less than the best, if any."""
    ours, theirs = _by_provider(best), _by_provider(other)
    found = [
        (theirs[name] - usd, name)
        for name, usd in ours.items()
        if theirs.get(name, usd) < usd - 1e-6
    ]
    if not found:
        return ""
    _, name = min(found)
    usd, instead = (format_usd(HOURS_PER_MONTH * of[name]) for of in (theirs, ours))
    return f"{other} costs {usd} a month at {name}, the best {instead} there"


def _by_provider(candidate: Candidate) -> dict[str, float]:
    """Return the bills of a candidate on one type of GPU, by provider. [$/h]"""
    if candidate.run is None or candidate.cost is None:
        return {}
    pools = candidate.run.deployment.pools
    if len({pool.configuration.gpu for pool in pools}) > 1:
        return {}
    return {bill.provider: bill.usd_per_h for bill in bills_of(pools)}


def _bills(best: Candidate) -> tuple[tuple[ProviderBill, ...], tuple[str, ...]]:
    """Return what each provider bills, and who is left out; warn of doubtful prices."""
    if best.run is None or best.cost is None:
        return (), ()
    pools = best.run.deployment.pools
    planned = {(p.bought, of[0].configuration.gpu) for p, of in alike(pools)}
    found: list[ProviderBill] = []
    for gpu in dict.fromkeys(pool.configuration.gpu for pool in pools):
        group = [pool for pool in pools if pool.configuration.gpu == gpu]
        gpus = sum(pool.gpu_count for pool in group)
        for bill in bills_of(group):
            prices = [row.price for row in bill.rows]
            paid = sum(row.gpus_paid for row in bill.rows)
            found.append(
                ProviderBill(
                    gpu,
                    bill.provider,
                    " + ".join(f"{r.units:,} × {r.price.unit}" for r in bill.rows),
                    paid,
                    paid - gpus,
                    HOURS_PER_MONTH * bill.usd_per_h,
                    all((price.bought, gpu) in planned for price in prices),
                    any(price.is_guess or price.is_stale for price in prices),
                    "; ".join(dict.fromkeys(price.told for price in prices)),
                )
            )
    for price, group in alike(pools):
        warn_of_doubts(group[0].configuration.gpu, [price])
    left_out = dict.fromkeys(
        f"{name}, {pool.configuration.gpu}" if len({b.gpu for b in found}) > 1 else name
        for pool in pools
        if pool.configuration.price is not None
        for name in pool.configuration.price.left_out
    )
    return tuple(found), tuple(left_out)


def _ways(settings: PriceSettings, best: Candidate) -> tuple[tuple[Way, ...], str]:
    """Return the ways to pay for the nodes, or why none can be told."""
    run = best.run
    if run is None or best.cost is None:
        return (), "no price is known"
    if settings.kind.partition(":")[0] not in BASE_KINDS:
        return (), f"the plan is {settings.kind} already"
    wishes = [parse_commit(text) for text in DEFAULT_COMMITMENTS]
    of_rows: list[dict[str, _Paid]] = []
    rows = zip(alike(run.deployment.pools), best.cost.nodes, strict=True)
    for (price, group), nodes in rows:
        configuration = replace(group[0].configuration, price=price)
        try:
            with collected_warnings():  # told of the plan's own price already
                prices = node_prices(settings, configuration, [w for w in wishes if w])
        except InputError as error:  # a price file may hold offers that it refuses
            return (), str(error)
        of_rows.append({x.name: x for x in _paid(prices, int(nodes.units), best)})
    names = [name for name in of_rows[0] if all(name in row for row in of_rows)]
    units = [nodes.units for nodes in best.cost.nodes]
    return tuple(_together([row[n] for row in of_rows], units) for n in names), ""


class _Paid(NamedTuple):
    """A month of nodes of one size, paid in one way."""

    name: str
    usd: float
    saved_usd: float | None  # against on demand
    is_term: bool
    is_assumed: bool
    source: str


def _together(paid: Sequence[_Paid], units: Sequence[float]) -> Way:
    """Return one way to pay for nodes of several sizes."""
    usd = sum(row.usd for row in paid)
    saved = [row.saved_usd for row in paid if row.saved_usd is not None]
    return Way(
        paid[0].name,
        usd / (HOURS_PER_MONTH * sum(units)),
        usd,
        sum(row.usd * (HOURS_PER_YEAR / HOURS_PER_MONTH) for row in paid),
        sum(saved) if saved else None,
        usd / (usd + sum(saved)) if paid[0].is_term else None,
        any(row.is_assumed for row in paid),
        "; ".join(dict.fromkeys(row.source for row in paid)),
    )


def _paid(prices: NodePrices, units: int, best: Candidate) -> list[_Paid]:
    """Return on demand, each term, and spot where it is offered."""
    whole, hours = prices.usd_per_node_h, Hours.of(np.array([units]))
    on_demand = month_bill(1, hours, (), Rent(whole)).usd
    doubtful = prices.is_doubtful
    found = [_Paid("on demand", on_demand, None, False, doubtful, prices.source)]
    for term in prices.terms:
        held = Held(term.name, units, 1, term.months, term.usd_per_node_h)
        usd = month_bill(1, hours, [held], Rent(whole)).usd
        about = True, term.is_assumed or doubtful, term.source
        found.append(_Paid(term.name, usd, on_demand - usd, *about))
    offer = prices.spot
    if offer is None or offer.usd_per_gpu_h >= prices.usd_per_gpu_h:
        return found
    share = SPOT_SHARE if offer.max_share is None else offer.max_share
    per_month = offer.interruption_per_month
    lost = INTERRUPTION_PER_MONTH if per_month is None else per_month
    start = None if best.run is None else best.run.configuration.cold_start
    rent = Rent(
        whole,
        spot=offer.usd_per_gpu_h * prices.gpus_per_node,
        spot_share=share,
        spot_there=availability(lost, 0.0 if start is None else start.cold_start_s),
    )
    bill = month_bill(1, hours, (), rent)
    if bill.spot_node_hours:
        source = (
            f"{offer.whose}, {offer.as_of}; "
            f"{bill.on_demand_node_hours / HOURS_PER_MONTH:,.0f} on demand and "
            f"{bill.spot_node_hours / HOURS_PER_MONTH:,.0f} spot, at most "
            f"{100 * share:.0f} % of those needed; {100 * lost:.0f} % are taken back "
            "in a month"
        )
        about = False, True, source
        found.append(_Paid("spot in part", bill.usd, on_demand - bill.usd, *about))
    return found


def _counts(best: Candidate, beside: Probe | None) -> tuple[CountCost, ...]:
    """Return the counts simulated near the planned one, and one more; ascending."""
    if best.run is None or best.pools:
        return ()
    planned = best.run.replica_count
    probes = {probe.replica_count: probe for probe in best.probes}
    if beside is not None:
        probes[beside.replica_count] = beside
    near = sorted({*probes, planned, planned + 1})
    at = near.index(planned)
    near = near[max(0, at - _MOST_COUNTS) : at + _MOST_COUNTS + 1]
    most = best.cautious_replica_count or planned
    engines = best.replica_count_range or (planned, most)
    near = sorted({*near, *engines})
    usual = _bill_of(best, planned)
    return tuple(
        _count(best, count, probes, usual, _named(count, planned, engines))
        for count in near
    )


def _named(count: int, planned: int, engines: tuple[int, int]) -> str:
    names = {
        planned - 1: ["one replica fewer"],
        planned: [PLANNED_COUNT],
        planned + 1: ["N+1: one replica more"],
    }.get(count, [])
    ends = zip(engines, ("the fewest", "the most"), strict=True)
    names += [f"{of} that engines needed" for n, of in ends if n == count != planned]
    return "; ".join(names)


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
    usd = against = counted = None
    if nodes is not None and usual is not None:
        usd = HOURS_PER_MONTH * sum(row.usd_per_h for row in nodes)
        against = usd - HOURS_PER_MONTH * sum(row.usd_per_h for row in usual)
        counted = node_count(nodes)
    probe, fewer = probes.get(count), probes.get(count - 1)
    return CountCost(
        name,
        count,
        count * (best.gpus_per_replica or best.tp),
        counted,
        usd,
        against,
        None if probe is None else probe.slo_attainment,
        None if probe is None else probe.meets,
        None if fewer is None else fewer.slo_attainment,
    )
