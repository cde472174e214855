"""The page of several LLMs on shared nodes: who uses what, and what is idle."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from capplan.fleet.node_failures import (
    FAILURES_HIGH,
    FAILURES_LOW,
    FAILURES_PER_1000_NODE_DAYS,
    FAILURES_SOURCE,
)
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.shared_fleet.result import (
    OFF_PEAK,
    SPARES,
    STRANDED,
    BillLine,
    SharedFleet,
    SharedPool,
    Tenant,
    total_usd,
)
from capplan.planning.shared_fleet.share_nodes import JOINT
from capplan.report.charts.nodes import node_figures
from capplan.report.columns import format_cents, format_share, plural, record
from capplan.report.fields import Function, fields
from capplan.report.page import Fact, Page, Section, Table
from capplan.units import format_duration

SCHEMA = "capplan.fleet/1"
IDLE = "idle"
"""Who uses GPUs that are in no replica."""
_MAP = fields("fleet_map")


def shared_fleet_page(fleet: SharedFleet) -> Page:
    """Return who uses what of shared nodes, what is idle, and who stands where."""
    usd = fleet.usd_with_spares
    bill = Table(
        fields("fleet_bill"),
        bill_rows(fleet),
        style=lambda row: "fail" if row["who"] == IDLE else "",
        note="GPU-hours of each LLM's replicas at the price of its nodes; no replica "
        "uses the idle ones. Sum: the nodes of the joint peak and the spares"
        f"{'' if usd is None else f', {format_cents(usd)}'}.",
        is_whole=True,
    )
    ways = Table(
        fields("fleet_way"),
        fleet.arrangements,
        style=lambda row: "best" if row.name == JOINT else "",
        note="With spares for each pool. You pay for the joint peak: nodes are kept, "
        "and replicas start and stop on them by the hour.",
    )
    alike = [row for pool in fleet.pools for row in alike_rows(pool)]
    hours = [row for pool in fleet.pools for row in hour_rows(pool)]
    placed = [row for pool in fleet.pools for row in map_rows(pool)]
    pools = Table(fields("fleet_pool", **_pool_functions(fleet)), fleet.pools)
    tenants = Table(
        fields("fleet_llm"),
        [tenant_row(p, i) for p in fleet.pools for i in range(len(p.tenants))],
        note="Replicas of an hour are estimated, not simulated: in proportion to its "
        "busiest 10 minutes, from one to those of the plan.",
    )
    return Page(
        "fleet",
        _headline(fleet),
        f"{plural(len(fleet.llms), 'LLM')} on shared nodes",
        [
            Section("Who pays for what", _facts(fleet), [bill]),
            Section("What sharing saves", tables=[ways, pools]),
            Section("LLMs", tables=[tenants]),
            Section(
                "Where replicas stand",
                tables=[Table(fields("fleet_alike"), alike)],
                figures=partial(node_figures, fleet),
            ),
        ],
        values=partial(shared_fleet_values, fleet),
        csv={
            "fleet.csv": bill,
            "ways.csv": ways,
            "pools.csv": pools,
            "llms.csv": tenants,
            "hours.csv": Table(fields("fleet_hour"), hours),
            "map.csv": Table(_MAP, placed),
        },
        lead=_lead(fleet),
        warnings=fleet.warnings,
    )


def _headline(fleet: SharedFleet) -> str:
    text = plural(fleet.joint_peak, "node")
    if fleet.spares:
        text += f" and {plural(fleet.spares, 'spare')}"
    return text


def _lead(fleet: SharedFleet) -> str:
    text = (
        f"Separate peaks {plural(fleet.separate, 'node')}, joint peak "
        f"{fleet.joint_peak}: {plural(len(fleet.llms), 'LLM')} on "
        f"{' and '.join(f'{p.joint_peak} × {p.name}' for p in fleet.pools)}"
    )
    usd, idle = fleet.usd_with_spares, total_usd(fleet.idle)
    alone = fleet.usd_per_month
    if usd is None or idle is None or alone is None:
        return f"{text}."
    of_idle, paid = (
        sum(line.gpu_hours_per_month for line in lines)
        for lines in (fleet.idle, fleet.bill)
    )
    return (
        f"{text}. Planned alone: {format_cents(alone)} a month. With spares, and two "
        f"nodes or more for each LLM of several replicas: {format_cents(usd)}, of "
        f"which {format_cents(idle)} ({format_share(of_idle / paid)}) is idle."
    )


def _facts(fleet: SharedFleet) -> list[Fact]:
    asked = fleet.settings
    rate = asked.failures
    if rate is not None:
        failures = f"{rate:g} in 1,000 node-days of 8 GPUs, as given"
    else:
        low, high = (
            sum(getattr(pool.spares, end) or 0 for pool in fleet.pools)
            for end in ("low", "high")
        )
        failures = (
            f"{FAILURES_PER_1000_NODE_DAYS} in 1,000 node-days of 8 GPUs: "
            f"{FAILURES_SOURCE}. At {FAILURES_LOW} it "
            f"takes {plural(low, 'spare')}, at {FAILURES_HIGH} {high}"
        )
    star = "" if asked.repair is not None else "*, assumed"
    return [
        (
            "spares",
            f"{fleet.spares}, the fewest that keep enough nodes up "
            f"{100 * asked.availability:.8g} % of the time if nodes fail one by one",
        ),
        ("repair", f"{format_duration(asked.repair_h * 3600)}{star}"),
        ("failures", failures),
        *[
            (llm.name, f"{llm.source}, as written; capplan verify checks it")
            for llm in fleet.llms
        ],
    ]


def shared_fleet_values(fleet: SharedFleet) -> dict[str, Any]:
    """Return the keys and values of ``fleet.json``."""
    columns = fields(
        "fleet",
        **_pool_functions(fleet),
        idle_usd_per_month=lambda of: total_usd(of.idle),
        hours_per_month=lambda of: HOURS_PER_MONTH,
        llms=lambda of: [
            {
                **tenant_row(pool, index),
                "role": tenant.pool.role,
                "plan": tenant.llm.source,
                "trace": None if tenant.llm.curve is None else tenant.llm.curve.source,
                "why_constant": tenant.llm.why_constant,
            }
            for pool in of.pools
            for index, tenant in enumerate(pool.tenants)
        ],
        settings=lambda of: of.settings.document({"out", "plans"}),
    )
    return {"schema": SCHEMA, **record(columns, fleet)}


def bill_rows(fleet: SharedFleet) -> list[dict[str, Any]]:
    """Return a row of each LLM and pool, and one of what is idle in each pool."""
    rows: list[tuple[str, str, Sequence[BillLine]]] = [
        (line.who, line.pool, [line]) for line in fleet.bill if line.who
    ]
    for pool in fleet.pools:
        rows.append((IDLE, pool.name, _idle_of(fleet, pool)))
    paid = sum(line.gpu_hours_per_month for line in fleet.bill)
    return [
        {
            "who": who,
            "pool": name,
            "gpu_hours_per_month": hours,
            "share": hours / paid,
            "usd_per_month": total_usd(lines),
        }
        for who, name, lines in rows
        for hours in [sum(line.gpu_hours_per_month for line in lines)]
    ]


def _idle_of(fleet: SharedFleet, pool: SharedPool) -> list[BillLine]:
    return [line for line in fleet.idle if line.pool == pool.name]


def _pool_functions(fleet: SharedFleet) -> dict[str, Function]:
    """Return figures of the nodes of a pool, and of what is idle of them."""

    def idle_usd(why: str) -> Function:
        return lambda pool: next(
            line.usd_per_month for line in _idle_of(fleet, pool) if line.why_idle == why
        )

    return {
        "separate_peak_nodes": lambda pool: sum(pool.separate),
        "mean_nodes": lambda pool: float(pool.nodes.mean()),
        "usd_per_node_h": lambda pool: (
            pool.usd_per_gpu_h and pool.usd_per_gpu_h * pool.gpus_per_node
        ),
        "usd_per_month": lambda pool: pool.usd_per_month(
            pool.joint_peak + pool.spares.count
        ),
        "stranded_usd_per_month": idle_usd(STRANDED),
        "off_peak_usd_per_month": idle_usd(OFF_PEAK),
        "spares_usd_per_month": idle_usd(SPARES),
        "replicas_by_hour": lambda pool: {
            tenant.name: row.tolist()
            for tenant, row in zip(pool.tenants, pool.replicas, strict=True)
        },
        "map": lambda pool: [record(_MAP, row) for row in map_rows(pool)],
    }


def tenant_row(pool: SharedPool, index: int) -> dict[str, Any]:
    """Return the replicas of an LLM, by its index in a pool."""
    tenant, replicas = pool.tenants[index], pool.replicas[index]
    domains = sum(
        any(part.group == index for part in node) for node in pool.peak_map.nodes
    )
    return {
        "name": tenant.name,
        "pool": pool.name,
        "tp": tenant.pool.tp,
        "gpus_per_replica": tenant.pool.gpus,
        "most_replicas": tenant.pool.replica_count,
        "fewest_replicas": int(replicas.min()),
        "mean_replicas": float(replicas.mean()),
        "failure_domains": domains,
        "nodes_alone": pool.separate[pool.llms.index(tenant.llm.name)],
    }


def alike_rows(pool: SharedPool) -> list[tuple[Any, ...]]:
    """Return how many nodes hold the same replicas, the most common first."""
    texts = Counter(
        ", ".join(
            f"{count} × {_of(pool.tenants[group], gpus)}"
            for (group, gpus), count in Counter(
                (part.group, part.gpus) for part in node
            ).items()
        )
        for node in pool.peak_map.nodes
    )
    return [(pool.name, count, text) for text, count in texts.most_common()]


def _of(tenant: Tenant, gpus: int) -> str:
    return f"{tenant.name} ({plural(gpus, 'GPU')})"


def hour_rows(pool: SharedPool) -> list[tuple[Any, ...]]:
    """Return the replicas of each hour and LLM, with the nodes of all."""
    return [
        (pool.name, hour, tenant.name, count, count * tenant.pool.gpus, nodes)
        for hour, nodes in enumerate(pool.nodes.tolist())
        for tenant, count in zip(
            pool.tenants, pool.replicas[:, hour].tolist(), strict=True
        )
    ]


def map_rows(pool: SharedPool) -> list[tuple[Any, ...]]:
    """Return the node of each replica at the joint peak."""
    return [
        (pool.name, number, pool.tenants[part.group].name, part.replica + 1, part.gpus)
        for number, node in enumerate(pool.peak_map.nodes, 1)
        for part in node
    ]
