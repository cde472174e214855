"""Columns and rows of several LLMs on shared nodes."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

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
from capplan.report import sentences
from capplan.report.columns import Column, record
from capplan.report.fields import Function, fields

IDLE = "idle"
"""Who uses GPUs that are in no replica."""


BILL = fields("fleet_bill")
TENANTS = fields("fleet_llm")
WAYS = fields("fleet_way")
HOURS = fields("fleet_hour")
MAP = fields("fleet_map")
ALIKE = fields("fleet_alike")


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


def pool_fields(fleet: SharedFleet) -> tuple[Column, ...]:
    """Return the figures of the nodes of a pool, and of what is idle of them."""

    def idle_usd(why: str) -> Function:
        return lambda pool: next(
            line.usd_per_month for line in _idle_of(fleet, pool) if line.why_idle == why
        )

    return fields(
        "fleet_pool",
        separate_peak_nodes=lambda pool: sum(pool.separate),
        mean_nodes=lambda pool: float(pool.nodes.mean()),
        usd_per_node_h=_usd_per_node_h,
        usd_per_month=lambda pool: pool.usd_per_month(
            pool.joint_peak + pool.spares.count
        ),
        stranded_usd_per_month=idle_usd(STRANDED),
        off_peak_usd_per_month=idle_usd(OFF_PEAK),
        spares_usd_per_month=idle_usd(SPARES),
        replicas_by_hour=lambda pool: {
            tenant.name: row.tolist()
            for tenant, row in zip(pool.tenants, pool.replicas, strict=True)
        },
        map=lambda pool: [record(MAP, row) for row in map_rows(pool)],
    )


def _usd_per_node_h(pool: SharedPool) -> float | None:
    hour = pool.usd_per_gpu_h
    return None if hour is None else hour * pool.gpus_per_node


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
    return f"{tenant.name} ({sentences.plural(gpus, 'GPU')})"


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
