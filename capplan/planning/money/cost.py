"""Cost of a deployment by whole nodes, as lines: quantity × unit price = amount."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Pool
from capplan.errors import PriceWarning, warn
from capplan.fleet.bills import Bill, Replicas, bills, signed
from capplan.fleet.nodes import nodes_for
from capplan.fleet.price import Price
from capplan.units import format_usd

HOURS_PER_MONTH = 730
"""Hours that a month is billed as. [h]"""

HOURS_PER_YEAR = 8760
"""Hours of a year. [h]"""

Shares = Sequence[tuple[int, float]]
"""Numbers of replicas, and the share of the time that as many are paid."""


@dataclass(frozen=True)
class CostLine:
    """One line of a bill."""

    what: str  # "per month"
    quantity: float  # 730
    quantity_unit: str  # "h"
    unit_price_usd: float  # of one of them [$]
    estimated: bool = False  # rests on simulated traffic or a doubtful price; starred

    @property
    def amount_usd(self) -> float:
        """Quantity times unit price. [$]"""
        return self.quantity * self.unit_price_usd

    def __str__(self) -> str:
        """Return ``per month: 730 h × $34.32 = $25,054``, starred if estimated."""
        star = "*" if self.estimated else ""
        return (
            f"{self.what}: {self.quantity:,.6g} {self.quantity_unit} × "
            f"{format_usd(self.unit_price_usd)} = {format_usd(self.amount_usd)}{star}"
        )


@dataclass(frozen=True)
class NodeCount:
    """Nodes of one kind that are paid for."""

    node: str  # as the provider calls it; empty where GPUs are priced alone
    provider: str  # empty where not known
    count: float | None  # whole unless replicas come and go; None: GPUs priced alone
    gpus_per_node: int | None  # None where GPUs are priced alone
    gpus_paid: float
    stranded_gpus: float  # paid, and in no replica
    usd_per_h: float  # of all of them [$]
    gpu: str = ""  # type

    @property
    def units(self) -> float:
        """Nodes; GPUs where these are priced alone."""
        return self.gpus_paid if self.count is None else self.count


@dataclass(frozen=True)
class Cost:
    """Cost of pools by the hour, the month, the year and the token."""

    usd_per_h: float  # of all pools [$]
    usd_per_month: float  # 730 h [$]
    usd_per_year: float  # 8,760 h [$]
    # of prompts, those found in a prefix cache not counted, and of answers: the parts
    # of the bill by GPU time; None without traffic, or where requests were not kept [$]
    usd_per_million_input_tokens: float | None
    usd_per_million_output_tokens: float | None
    usd_per_million_total_tokens: float | None  # all of both; None without traffic [$]
    lines: tuple[CostLine, ...]  # how each is computed
    nodes: tuple[NodeCount, ...]  # that are paid for


def usd_per_h(pools: Sequence[Pool]) -> float | None:
    """Return what pools cost by the hour; None where one has no price. [$]"""
    nodes = nodes_of(pools)
    return None if nodes is None else sum(row.usd_per_h for row in nodes)


def usd_per_month(pools: Sequence[Pool]) -> float | None:
    """Return what pools cost in a month; None where one has no price. [$]"""
    hour = usd_per_h(pools)
    return None if hour is None else HOURS_PER_MONTH * hour


def usd_per_replica_h(configuration: Configuration) -> float | None:
    """Return the cost of a replica in full nodes, its share of one; or None. [$/h]"""
    price = configuration.price
    if price is None:
        return None
    size = max(ask.gpus_per_node or 1 for ask in price.asks)
    fit = max(1, size // configuration.gpus)
    usd = usd_per_h([Pool(configuration, fit)])
    return None if usd is None else usd / fit


def of_provider(pools: Sequence[Pool], provider: str) -> tuple[Pool, ...]:
    """Return pools whose nodes are bought of one provider."""
    found = []
    for pool in pools:
        price = pool.configuration.price
        assert price is not None
        configuration = replace(pool.configuration, price=price.of(provider))
        found.append(replace(pool, configuration=configuration))
    return tuple(found)


def at_one_provider(rows: Sequence[Configuration]) -> list[Configuration]:
    """Return configurations whose nodes are bought of one provider; none: no one sells.

    That of the bill at the lower quartile, of a replica of each. A price of no named
    provider goes with any.
    """
    named = [row for row in rows if row.price and row.price.providers != ("",)]
    sold = [bills_of([Pool(row, 1)]) for row in named]
    offers = [{bill.provider: bill for bill in of} for of in sold]
    if not offers:
        return [*rows]
    found = [
        Bill(name, tuple(line for of in offers for line in of[name].rows))
        for name in offers[0]
        if all(name in of for of in offers)
    ]
    if not found:
        return []
    provider = signed(sorted(found, key=lambda bill: bill.usd_per_h)).provider
    return [
        replace(row, price=row.price.of(provider))
        if row.price and row in named
        else row
        for row in rows
    ]


def bills_of(pools: Sequence[Pool]) -> tuple[Bill, ...]:
    """Return what each provider bills for pools on one type of GPU, cheapest first."""
    replicas = []
    for pool in pools:
        price = pool.configuration.price
        assert price is not None
        replicas.append(Replicas(pool.configuration.gpus, pool.replica_count, price))
    return bills(replicas)


def node_count(nodes: Sequence[NodeCount]) -> float | None:
    """Return the nodes of all sizes; None where GPUs are sold one by one."""
    counts = [row.count for row in nodes]
    return None if None in counts else sum(count or 0 for count in counts)


def warn_of_doubts(gpu: str, prices: Iterable[Price]) -> None:
    """Warn of prices that are paid and that are guesses, old or undated."""
    told = [price.told for price in prices if price.is_guess or price.is_stale]
    if told:
        warn(
            f"the price of {gpu} is uncertain ({'; '.join(dict.fromkeys(told))}); give "
            f"your own with --price {gpu}=DOLLARS",
            PriceWarning,
        )


def nodes_of(pools: Sequence[Pool]) -> tuple[NodeCount, ...] | None:
    """Return the whole nodes that pools are paid for; None where one has no price."""
    if any(pool.configuration.price is None for pool in pools):
        return None
    return tuple(row for _, row in _rows(pools))


def _rows(
    pools: Sequence[Pool], paid_shares: Shares | None = None
) -> list[tuple[Price, NodeCount]]:
    """Return nodes of each size with their price.

    ``paid_shares`` are how many replicas of the only pool are paid for what share of
    the time, all of the provider whose bill for the most counts.
    """
    if paid_shares is None:
        return [(price, paid_nodes(price, group)) for price, group in alike(pools)]
    most = max(count for count, _ in paid_shares)
    (pool,) = pools
    bill = signed(bills_of([replace(pool, replica_count=most)]))
    (pool,) = of_provider(pools, bill.provider)
    parts: dict[object, list[tuple[float, Price, NodeCount]]] = {}
    for count, share in paid_shares:
        if not count:  # all are gone
            continue
        for price, row in _rows([replace(pool, replica_count=count)]):
            parts.setdefault(price.bought, []).append((share, price, row))
    return [
        (of[0][1], _mean([(share, row) for share, _, row in of]))
        for of in parts.values()
    ]


def alike(pools: Sequence[Pool]) -> list[tuple[Price, list[Pool]]]:
    """Return the nodes of each size that pools are billed for, and what is on them.

    Pools of one GPU type are bought of one provider, that of the bill at the lower
    quartile, and share its nodes; replicas of a pool may be on nodes of several sizes.
    Pools without a price are left out.
    """
    groups: dict[str, list[Pool]] = {}
    for pool in pools:
        if pool.configuration.price is not None:
            groups.setdefault(pool.configuration.gpu, []).append(pool)
    found = []
    for group in groups.values():
        together = bills_of(group)
        parts = [group] if together else [[pool] for pool in group]
        for part in parts:
            for row in signed(together or bills_of(part)).rows:
                on = zip(part, row.counts, strict=True)
                of = [replace(pool, replica_count=n) for pool, n in on if n]
                found.append((row.price, of))
    return found


def paid_price(pools: Sequence[Pool]) -> Price | None:
    """Return the price of the largest nodes bought, with all that may be, or None."""
    price = pools[0].configuration.price
    if price is None:
        return None
    return replace(alike(pools)[0][0], asked=price.asked, left_out=price.left_out)


def fitting(pool: Pool) -> int:
    """Return the replicas that fit into the nodes paid for a pool, its own included."""
    found = 0
    for price, (on, *_) in alike([pool]):
        size, gpus = price.gpus_per_node, pool.configuration.gpus
        free = 0 if size is None else int(paid_nodes(price, [on]).stranded_gpus)
        found += on.replica_count + (free // gpus if size and size >= gpus else 0)
    return found


def paid_nodes(price: Price, pools: Sequence[Pool]) -> NodeCount:
    """Return the nodes of one size for the pools that are on them."""
    replicas = [(pool.configuration.gpus, pool.replica_count) for pool in pools]
    gpus: float = sum(tp * count for tp, count in replicas)
    size, nodes, stranded = price.gpus_per_node, None, 0
    if size is not None:
        nodes, stranded = nodes_for(replicas, size)
        gpus = nodes * size
    return NodeCount(
        price.node if size is not None else "",
        price.provider,
        nodes,
        size,
        gpus,
        stranded,
        gpus * price.usd_per_gpu_h,
        pools[0].configuration.gpu,
    )


def _mean(rows: list[tuple[float, NodeCount]]) -> NodeCount:
    """Return the mean of nodes of one kind over shares of the time."""

    def mean(name: str) -> float:
        return sum(share * (getattr(row, name) or 0) for share, row in rows)

    first = rows[0][1]
    return replace(
        first,
        count=None if first.count is None else mean("count"),
        gpus_paid=mean("gpus_paid"),
        stranded_gpus=mean("stranded_gpus"),
        usd_per_h=mean("usd_per_h"),
    )


def cost(
    pools: Sequence[Pool],
    *,
    paid_shares: Shares | None = None,
    rate_per_s: float = math.nan,
    mean_prompt_tokens: float = 0.0,
    mean_output_tokens: float = 0.0,
    mean_cached_tokens: float = 0.0,
    prompt_share: float | None = None,
) -> Cost | None:
    """Return the cost of pools by the hour, the month, the year and the token.

    None where a pool has no price. ``paid_shares`` are numbers of replicas of the only
    pool and the share of the time for which they are paid, where these come and go.
    ``rate_per_s`` is NaN when the traffic is not known [requests/s]; means are over the
    requests [tokens]. ``prompt_share`` of the bill is that of the prompt tokens, those
    found in a prefix cache not counted, the rest that of the answers; None where it is
    not known.
    """
    if any(pool.configuration.price is None for pool in pools):
        return None
    rows = _rows(pools, paid_shares)
    hours = _hours(rows, estimated=paid_shares is not None)
    usd = sum(line.amount_usd for line in hours)
    doubtful = any(line.estimated for line in hours)
    month = CostLine("per month", HOURS_PER_MONTH, "h", usd, doubtful)
    year = CostLine("per year", HOURS_PER_YEAR, "h", usd, doubtful)
    total_tokens = mean_prompt_tokens + mean_output_tokens
    new_tokens = max(0.0, mean_prompt_tokens - mean_cached_tokens)
    of: list[tuple[str, float, float]] = [("total", total_tokens, 1.0)]
    if prompt_share is not None:
        own = ("output", mean_output_tokens, 1 - prompt_share)
        of = [("input", new_tokens, prompt_share), own, *of]
    millions = {
        kind: per_million(kind, rate_per_s * tokens, usd, share)
        for kind, tokens, share in of
    }
    usd_of = {kind: line.amount_usd for kind, line in millions.items() if line}
    return Cost(
        usd_per_h=usd,
        usd_per_month=month.amount_usd,
        usd_per_year=year.amount_usd,
        usd_per_million_input_tokens=usd_of.get("input"),
        usd_per_million_output_tokens=usd_of.get("output"),
        usd_per_million_total_tokens=usd_of.get("total"),
        lines=(*hours, month, year, *filter(None, millions.values())),
        nodes=tuple(row for _, row in rows),
    )


def _hours(
    rows: Sequence[tuple[Price, NodeCount]], *, estimated: bool
) -> list[CostLine]:
    """Return an hour of the nodes of each size, or of GPUs priced one by one."""
    gpus = [row.gpu for _, row in rows]
    lines = []
    for price, row in rows:
        of = price.unit
        if len({*gpus}) > 1:
            of = row.gpu if gpus.count(row.gpu) == 1 else f"{row.gpu}, {of}"
        count, unit = row.gpus_paid, _plural("GPU", row.gpus_paid)
        if row.count is not None and row.gpus_per_node is not None:
            size = row.gpus_per_node
            count = row.count
            unit = f"{_plural('node', count)} of {size} {_plural('GPU', size)}"
        lines.append(
            CostLine(
                "per hour" if len(rows) == 1 else f"per hour, {of}",
                count,
                unit,
                price.usd_per_node_h,
                estimated or price.is_guess or price.is_stale,
            )
        )
    return lines


def _plural(name: str, count: float) -> str:
    return name if count == 1 else f"{name}s"


def per_million(
    kind: str, tokens_per_s: float, usd_per_h: float, share: float = 1.0
) -> CostLine | None:
    """Return the hours that a million tokens take, of a ``share`` of the time."""
    if not tokens_per_s > 0:
        return None
    hours = share * 1e6 / tokens_per_s / 3600
    return CostLine(f"per million {kind} tokens", hours, "h", usd_per_h, True)
