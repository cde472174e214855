"""Put planned LLMs on shared nodes: pack them by the hour, add spares, share a bill."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from capplan.errors import InputError
from capplan.fleet.bills import Replicas, one_size, paid
from capplan.fleet.catalog import gpu as catalog_gpu
from capplan.fleet.node_map import Group, NodeMap, node_map
from capplan.fleet.price import Price
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.spares import Spares, spares_at
from capplan.planning.shared_fleet.planned_llm import PlannedLlm, PlannedPool
from capplan.planning.shared_fleet.replicas_by_hour import (
    folded,
    repeated,
    replicas_by_hour,
)
from capplan.planning.shared_fleet.result import (
    Arrangement,
    BillLine,
    SharedFleet,
    SharedPool,
    Tenant,
    in_cents,
)
from capplan.planning.shared_fleet.settings import SharedFleetSettings, whole_hours
from capplan.planning.shared_fleet.warnings import warnings_of

APART, AT_ONCE, JOINT, BY_HOUR = (
    "nodes of their own",
    "shared, all at their peaks",
    "shared, joint peak",
    "shared, started and stopped by the hour",
)
"""Ways to run the LLMs; the third is what the bill is about."""


def share_nodes(
    llms: Sequence[PlannedLlm], settings: SharedFleetSettings
) -> SharedFleet:
    """Return LLMs on shared nodes, with spares and the share of each in the bill."""
    curves = {llm.name: folded(llm.curve) for llm in llms if llm.curve is not None}
    for name, hours in _shifts(llms, settings).items():
        curves[name] = np.roll(curves[name], hours)
    hours = max((len(shares) for shares in curves.values()), default=1)

    def spares(nodes: int, gpus_per_node: int) -> Spares:
        asked = settings.repair_h, settings.availability, settings.failures
        return spares_at(nodes, gpus_per_node, *asked)

    pools = tuple(_shared(tenants, curves, hours, spares) for tenants in _alike(llms))
    fleet = SharedFleet(
        settings,
        tuple(llms),
        pools,
        tuple(line for pool in pools for line in _bill(pool)),
        tuple(_arrangements(pools)),
        _usd_of_replicas(llms, curves, hours),
    )
    return replace(fleet, warnings=tuple(warnings_of(fleet)))


def _usd_of_replicas(
    llms: Sequence[PlannedLlm], curves: dict[str, np.ndarray], hours: int
) -> float | None:
    """Return the bill of the replicas of the dearest hour alone; or None. [$]"""
    pools = [(llm, pool) for llm in llms for pool in llm.pools]
    if any(pool.price is None for _, pool in pools):
        return None
    rows = [_replicas(llm, pool, curves, hours).tolist() for llm, pool in pools]
    most = 0.0
    for counts in dict.fromkeys(zip(*rows, strict=True)):
        groups: dict[str, list[Replicas]] = defaultdict(list)
        for (_, pool), count in zip(pools, counts, strict=True):
            assert pool.price is not None
            groups[pool.gpu].append(Replicas(pool.gpus, count, pool.price))
        usd = sum(bill.usd_per_h for group in groups.values() for bill in paid(group))
        most = max(most, usd)
    return HOURS_PER_MONTH * most


def _replicas(
    llm: PlannedLlm, pool: PlannedPool, curves: dict[str, np.ndarray], hours: int
) -> np.ndarray:
    shares = curves.get(llm.name, np.ones(1))
    return repeated(replicas_by_hour(pool.replica_count, shares), hours)


def _shifts(
    llms: Sequence[PlannedLlm], settings: SharedFleetSettings
) -> dict[str, int]:
    """Return by how many hours curves begin later, by the name of their LLM."""
    by_name = {llm.name.lower(): llm for llm in llms}
    found = {}
    for given, text in settings.shift.items():
        llm = by_name.get(given.lower())
        if llm is None:
            names = ", ".join(llm.name for llm in llms)
            raise InputError(f"--shift {given}: expected one of {names}")
        if llm.curve is None:
            raise InputError(
                f"--shift {given}: it needs as many at all hours, for "
                f"{llm.why_constant}; leave it out"
            )
        found[llm.name] = whole_hours(text)
    return found


def _alike(llms: Sequence[PlannedLlm]) -> list[list[Tenant]]:
    """Return the pools of LLMs that share nodes, at the price of these.

    Of one GPU type all do where a provider has nodes for all at one price in their
    plans: on the nodes of the bill that counts, of the size that bills least.
    """
    alike: dict[tuple[str, str, str], list[Tenant]] = {}
    by_gpu: dict[str, list[Tenant]] = {}
    for llm in llms:
        for pool in llm.pools:
            if pool.price is None:
                alike.setdefault((pool.gpu, "", ""), []).append(Tenant(llm, pool))
            else:
                by_gpu.setdefault(pool.gpu, []).append(Tenant(llm, pool))
    for gpu, tenants in by_gpu.items():
        joint = _price_of(tenants)
        for tenant in tenants:
            price = joint or _price_of([tenant])
            assert price is not None
            paid = replace(tenant, pool=replace(tenant.pool, price=price))
            alike.setdefault((gpu, price.provider, price.node), []).append(paid)
    for (gpu, provider, node), tenants in alike.items():
        first = tenants[0]
        for tenant in tenants[1:]:
            if tenant.pool.price and _told(tenant) != _told(first):
                name = " ".join(filter(None, (provider, node))) or gpu
                raise InputError(
                    f"{first.llm.source} and {tenant.llm.source}: {name} is "
                    f"{_told(first)} in one and {_told(tenant)} in the other; plan "
                    "again with the same prices"
                )
    return list(alike.values())


def _price_of(tenants: Sequence[Tenant]) -> Price | None:
    return one_size(
        [
            Replicas(tenant.pool.gpus, tenant.pool.replica_count, tenant.pool.price)
            for tenant in tenants
            if tenant.pool.price is not None
        ]
    )


def _told(tenant: Tenant) -> str:
    price = tenant.pool.price
    if price is None:
        return "without a price"
    size = "" if price.gpus_per_node is None else f", {price.gpus_per_node} a node"
    return f"${price.usd_per_gpu_h:.6g} a GPU-hour ({price.kind}{size})"


def _shared(
    tenants: Sequence[Tenant],
    curves: dict[str, np.ndarray],
    hours: int,
    spares: Callable[[int, int], Spares],
) -> SharedPool:
    """Return the nodes that tenants share."""
    price, gpu = tenants[0].pool.price, tenants[0].pool.gpu
    known = None if price is None else price.gpus_per_node
    size = known or catalog_gpu(gpu).max_gpus_per_node
    rows = [_replicas(tenant.llm, tenant.pool, curves, hours) for tenant in tenants]
    replicas = np.array(rows, np.int64)
    maps: dict[tuple[int, ...], NodeMap] = {}

    def packed(counts: Sequence[int]) -> NodeMap:
        key = tuple(counts)
        if key not in maps:
            groups = [Group(t.pool.gpus, n) for t, n in zip(tenants, key, strict=True)]
            maps[key] = node_map(groups, size)
        return maps[key]

    by_hour = [packed(counts) for counts in replicas.T.tolist()]
    nodes = np.array([len(each.nodes) for each in by_hour], np.int64)
    in_use = np.array([tenant.pool.gpus for tenant in tenants]) @ replicas
    peak_hour = int(np.lexsort((-in_use, -nodes))[0])
    most = [tenant.pool.replica_count for tenant in tenants]

    def alone(name: str) -> int:
        counts = [t.pool.replica_count * (t.llm.name == name) for t in tenants]
        return len(packed(counts).nodes)

    names = dict.fromkeys(tenant.llm.name for tenant in tenants)
    separate, at_once = tuple(map(alone, names)), len(packed(most).nodes)
    return SharedPool(
        gpu,
        "" if price is None else price.provider,
        "" if price is None or known is None else price.node,
        size,
        known is None,
        None if price is None else price.usd_per_gpu_h,
        price is not None and (price.is_guess or price.is_stale),
        tuple(tenants),
        replicas,
        nodes,
        peak_hour,
        by_hour[peak_hour],
        at_once,
        separate,
        spares(int(nodes.max()), size),
        spares(at_once, size),
        tuple(spares(count, size) for count in separate),
    )


def _bill(pool: SharedPool) -> list[BillLine]:
    """Return who uses the GPU-hours of a month, and what is idle.

    Each LLM pays for the GPU-hours of its replicas; all lines add up to the nodes of
    the joint peak and the spares.
    """
    used: dict[str, float] = defaultdict(float)
    for tenant, gpus in zip(pool.tenants, pool.mean_gpus.tolist(), strict=True):
        used[tenant.llm.name] += gpus
    rows: list[tuple[str, str, float]] = [
        (name, "", gpus) for name, gpus in used.items()
    ]
    rows += [("", why, gpus) for why, gpus in pool.idle_gpus.items()]
    hours = [gpus * HOURS_PER_MONTH for _, _, gpus in rows]
    amounts: list[float | None] = [None] * len(rows)
    if pool.usd_per_gpu_h is not None:
        amounts = list(in_cents([each * pool.usd_per_gpu_h for each in hours]))
    return [
        BillLine(who, why, pool.name, gpu_hours, usd)
        for (who, why, _), gpu_hours, usd in zip(rows, hours, amounts, strict=True)
    ]


def _arrangements(pools: Sequence[SharedPool]) -> list[Arrangement]:
    """Return the nodes of each way to run the LLMs, the dearest first."""
    ways: dict[str, Callable[[SharedPool], tuple[float, int]]] = {
        APART: lambda p: (sum(p.separate), sum(s.count for s in p.spares_separate)),
        AT_ONCE: lambda p: (p.at_once, p.spares_at_once.count),
        JOINT: lambda p: (p.joint_peak, p.spares.count),
        BY_HOUR: lambda p: (float(p.nodes.mean()), p.spares.count),
    }
    found = []
    for name, counted in ways.items():
        nodes, spares = zip(*map(counted, pools), strict=True)
        bills = [p.usd_per_month(sum(counted(p))) for p in pools]
        priced = [usd for usd in bills if usd is not None]
        usd = math.fsum(priced) if len(priced) == len(bills) else None
        found.append(Arrangement(name, sum(nodes), sum(spares), usd))
    return found
