"""The page of several LLMs on shared nodes: who uses what, and what is idle."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from capplan.planning.cost import HOURS_PER_MONTH
from capplan.planning.share_nodes import JOINT
from capplan.planning.shared_fleet import (
    OFF_PEAK,
    SPARES,
    STRANDED,
    Arrangement,
    BillLine,
    SharedFleet,
    SharedPool,
    Tenant,
    total_usd,
)
from capplan.planning.spares import (
    FAILURES_HIGH,
    FAILURES_LOW,
    FAILURES_PER_1000_NODE_DAYS,
    FAILURES_SOURCE,
)
from capplan.report import sentences
from capplan.report.columns import column, format_count, format_share
from capplan.report.node_charts import node_figures
from capplan.report.page import Fact, Page, Section, Table, Tile
from capplan.units import format_duration, format_usd

SCHEMA = "capplan.fleet/1"
_IDLE = "idle"


def _cents(usd: float) -> str:
    return f"${usd:,.2f}"


BILL = (
    column("who", "LLM", justify="left"),
    column("pool", "nodes", justify="left"),
    column("gpu_hours_per_month", "GPU-h a month", format_count),
    column("share", "share", format_share),
    column("usd_per_month", "$ per month", _cents),
)
TENANTS = (
    column("name", "LLM", justify="left"),
    column("pool", "nodes", justify="left"),
    column("tp", "TP"),
    column("most_replicas", "replicas", format_count),
    column("fewest_replicas", "fewest", format_count, leaves=2),
    column("mean_replicas", "mean", format_count, leaves=1),
    column("failure_domains", "nodes it is on", format_count),
    column("nodes_alone", "nodes alone", format_count),
)
POOLS = (
    column("pool", "nodes", justify="left"),
    column("gpus_per_node", "GPUs"),
    column("joint_peak_nodes", "joint peak", format_count),
    column("separate_peak_nodes", "separate", format_count),
    column("at_once_nodes", "all at once", format_count, leaves=2),
    column("mean_nodes", "mean", format_count, leaves=1),
    column("spare_nodes", "spares", format_count),
    column("spare_nodes_low"),
    column("spare_nodes_high"),
    column("usd_per_node_h", "$ per node-h", _cents, leaves=3),
    column("stranded_usd_per_month", "stranded", _cents),
    column("off_peak_usd_per_month", "off-peak", _cents),
    column("spares_usd_per_month", "$ of spares", _cents),
)
WAYS = (
    column("name", "way", justify="left"),
    column("nodes", "nodes", format_count),
    column("spares", "spares", format_count),
    column("usd_per_month", "$ per month", format_usd),
)
HOURS = (
    column("pool"),
    column("hour"),
    column("name"),
    column("replicas"),
    column("gpus"),
    column("nodes"),
)
MAP = (
    column("pool"),
    column("node_number"),
    column("name"),
    column("replica"),
    column("gpus"),
)
ALIKE = (
    column("pool", "nodes", justify="left"),
    column("count", "alike", format_count),
    column("text", "replicas on each", justify="left", is_wide=True),
)


@dataclass(frozen=True)
class _BillRow:
    who: str
    pool: str
    gpu_hours_per_month: float
    share: float
    usd_per_month: float | None


def shared_fleet_page(fleet: SharedFleet) -> Page:
    """Return who uses what of shared nodes, what is idle, and who stands where."""
    bill = Table(
        BILL,
        _bill_rows(fleet),
        style=lambda row: "fail" if row.who == _IDLE else "",
        note="GPU-hours of each LLM's replicas at the price of its nodes; idle is what "
        "no replica uses. The lines add up to the nodes of the joint peak and the "
        f"spares{_sum(fleet)}.",
        is_whole=True,
    )
    ways = Table(
        WAYS,
        fleet.arrangements,
        style=lambda row: "best" if row.name == JOINT else "",
        note="With spares for each pool. The bill is of the joint peak: replicas start "
        "and stop by the hour on nodes that are kept.",
    )
    pools = Table(POOLS, [_pool_row(fleet, pool) for pool in fleet.pools])
    tenants = Table(
        TENANTS,
        [_tenant_row(p, i) for p in fleet.pools for i in range(len(p.tenants))],
        note="Replicas of an hour follow the rate of its busiest 10 minutes, on a line "
        "from one replica to those of the plan: estimated, not simulated.",
    )
    return Page(
        "fleet",
        _headline(fleet),
        f"{sentences.plural(len(fleet.llms), 'LLM')} on shared nodes",
        [
            Section("Who pays for what", _facts(fleet), [bill]),
            Section("What sharing saves", tables=[ways, pools]),
            Section("LLMs", tables=[tenants]),
            Section(
                "Where replicas stand",
                tables=[Table(ALIKE, [r for p in fleet.pools for r in _alike(p)])],
                figures=partial(node_figures, fleet),
            ),
        ],
        values=partial(shared_fleet_values, fleet),
        csv={
            "fleet.csv": bill,
            "ways.csv": ways,
            "pools.csv": pools,
            "llms.csv": tenants,
            "hours.csv": Table(HOURS, [r for p in fleet.pools for r in _hour_rows(p)]),
            "map.csv": Table(MAP, [r for p in fleet.pools for r in _map_rows(p)]),
        },
        lead=_lead(fleet),
        tiles=_tiles(fleet),
        warnings=fleet.warnings,
    )


def _sum(fleet: SharedFleet) -> str:
    usd = fleet.usd_per_month
    return "" if usd is None else f", {_cents(usd)}"


def _up(fleet: SharedFleet) -> str:
    return f"{100 * fleet.settings.availability:.8g} %"


def _nodes(count: int) -> str:
    return sentences.plural(count, "node")


def _headline(fleet: SharedFleet) -> str:
    text = _nodes(fleet.joint_peak)
    if fleet.spares:
        text += f" and {sentences.plural(fleet.spares, 'spare')}"
    return text


def _lead(fleet: SharedFleet) -> str:
    text = (
        f"Separate peaks {_nodes(fleet.separate)}, joint peak {fleet.joint_peak}: "
        f"{sentences.plural(len(fleet.llms), 'LLM')} on "
        f"{' and '.join(f'{p.joint_peak} × {p.name}' for p in fleet.pools)}"
    )
    usd, idle = fleet.usd_per_month, total_usd(fleet.idle)
    if usd is None or idle is None:
        return f"{text}."
    return (
        f"{text}, with spares {_cents(usd)} a month, of which {_cents(idle)} "
        f"({format_share(_idle_share(fleet))}) is idle."
    )


def _idle_share(fleet: SharedFleet) -> float:
    """Return the part of the GPU-hours that no replica uses."""
    paid = sum(line.gpu_hours_per_month for line in fleet.bill)
    return sum(line.gpu_hours_per_month for line in fleet.idle) / paid


def _tiles(fleet: SharedFleet) -> list[Tile]:
    usd = fleet.usd_per_month
    return [
        Tile("joint peak", _nodes(fleet.joint_peak), f"separate: {fleet.separate}"),
        Tile("spares", str(fleet.spares), f"up {_up(fleet)} of the time"),
        Tile("a month", "–" if usd is None else format_usd(usd)),
        Tile("idle", format_share(_idle_share(fleet)), "of the GPU-hours"),
    ]


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
            f"would be {sentences.plural(low, 'spare')}, at {FAILURES_HIGH} {high}"
        )
    star = "" if asked.repair is not None else "*, assumed"
    return [
        *[
            (
                "nodes",
                f"{pool.joint_peak} × {pool.name}, {pool.gpus_per_node} GPUs each",
            )
            for pool in fleet.pools
        ],
        (
            "spares",
            f"{fleet.spares}, the fewest with which enough nodes are up "
            f"{_up(fleet)} of the time; nodes fail one by one",
        ),
        ("repair", f"{format_duration(fleet.repair_h * 3600)}{star}"),
        ("failures", failures),
        *[
            (llm.name, f"{llm.source}, as sealed; capplan verify plans it again")
            for llm in fleet.llms
        ],
    ]


def _bill_rows(fleet: SharedFleet) -> list[_BillRow]:
    """Return a row of each LLM and pool, and one of what is idle in each pool."""
    rows: list[tuple[str, str, Sequence[BillLine]]] = [
        (line.who, line.pool, [line]) for line in fleet.bill if line.who
    ]
    for pool in fleet.pools:
        rows.append((_IDLE, pool.name, _idle_of(fleet, pool)))
    paid = sum(line.gpu_hours_per_month for line in fleet.bill)
    found = []
    for who, name, lines in rows:
        hours = sum(line.gpu_hours_per_month for line in lines)
        found.append(_BillRow(who, name, hours, hours / paid, total_usd(lines)))
    return found


def _idle_of(fleet: SharedFleet, pool: SharedPool) -> list[BillLine]:
    return [line for line in fleet.idle if line.pool == pool.name]


def _pool_row(fleet: SharedFleet, pool: SharedPool) -> dict[str, Any]:
    idle = {line.why_idle: line.usd_per_month for line in _idle_of(fleet, pool)}
    hour = pool.usd_per_gpu_h
    return {
        "pool": pool.name,
        "gpu": pool.gpu,
        "provider": pool.provider,
        "node": pool.node,
        "gpus_per_node": pool.gpus_per_node,
        "joint_peak_nodes": pool.joint_peak,
        "separate_peak_nodes": sum(pool.separate),
        "at_once_nodes": pool.at_once,
        "mean_nodes": float(pool.nodes.mean()),
        "nodes_without_rule": pool.peak_map.nodes_without_rule,
        "peak_hour": pool.peak_hour,
        "spare_nodes": pool.spares.count,
        "spare_nodes_low": pool.spares.low,
        "spare_nodes_high": pool.spares.high,
        "usd_per_node_h": None if hour is None else hour * pool.gpus_per_node,
        "usd_per_month": pool.usd_per_month(pool.joint_peak + pool.spares.count),
        "stranded_usd_per_month": idle[STRANDED],
        "off_peak_usd_per_month": idle[OFF_PEAK],
        "spares_usd_per_month": idle[SPARES],
    }


def _tenant_row(pool: SharedPool, index: int) -> dict[str, Any]:
    tenant, replicas = pool.tenants[index], pool.replicas[index]
    domains = sum(
        any(part.group == index for part in node) for node in pool.peak_map.nodes
    )
    return {
        "name": tenant.name,
        "pool": pool.name,
        "tp": tenant.pool.tp,
        "most_replicas": tenant.pool.replica_count,
        "fewest_replicas": int(replicas.min()),
        "mean_replicas": float(replicas.mean()),
        "failure_domains": domains,
        "nodes_alone": pool.separate[pool.llms.index(tenant.llm.name)],
    }


def _alike(pool: SharedPool) -> list[dict[str, Any]]:
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
    return [
        {"pool": pool.name, "count": count, "text": text}
        for text, count in texts.most_common()
    ]


def _of(tenant: Tenant, gpus: int) -> str:
    return f"{tenant.name} ({sentences.plural(gpus, 'GPU')})"


def _hour_rows(pool: SharedPool) -> list[dict[str, Any]]:
    return [
        {
            "pool": pool.name,
            "hour": hour,
            "name": tenant.name,
            "replicas": count,
            "gpus": count * tenant.pool.tp,
            "nodes": nodes,
        }
        for hour, nodes in enumerate(pool.nodes.tolist())
        for tenant, count in zip(
            pool.tenants, pool.replicas[:, hour].tolist(), strict=True
        )
    ]


def _map_rows(pool: SharedPool) -> list[dict[str, Any]]:
    return [
        {
            "pool": pool.name,
            "node_number": number + 1,
            "name": pool.tenants[part.group].name,
            "replica": part.replica + 1,
            "gpus": part.gpus,
        }
        for number, node in enumerate(pool.peak_map.nodes)
        for part in node
    ]


def shared_fleet_values(fleet: SharedFleet) -> dict[str, Any]:
    """Return the keys and values of ``fleet.json``."""
    ways: Sequence[Arrangement] = fleet.arrangements
    return {
        "schema": SCHEMA,
        "joint_peak_nodes": fleet.joint_peak,
        "separate_peak_nodes": fleet.separate,
        "spare_nodes": fleet.spares,
        "usd_per_month": fleet.usd_per_month,
        "idle_usd_per_month": total_usd(fleet.idle),
        "hours_per_month": HOURS_PER_MONTH,
        "availability": fleet.settings.availability,
        "repair_h": fleet.repair_h,
        "bill": [vars(line) for line in fleet.bill],
        "ways": [vars(way) for way in ways],
        "llms": [
            {
                **_tenant_row(pool, index),
                "role": tenant.pool.role,
                "plan": tenant.llm.source,
                "trace": None if tenant.llm.curve is None else tenant.llm.curve.source,
                "why_constant": tenant.llm.why_constant,
            }
            for pool in fleet.pools
            for index, tenant in enumerate(pool.tenants)
        ],
        "pools": [
            {
                **_pool_row(fleet, pool),
                "nodes_by_hour": pool.nodes.tolist(),
                "replicas_by_hour": {
                    tenant.name: row.tolist()
                    for tenant, row in zip(pool.tenants, pool.replicas, strict=True)
                },
                "map": _map_rows(pool),
            }
            for pool in fleet.pools
        ],
        "warnings": fleet.warnings,
        "settings": fleet.settings.model_dump(
            mode="json", exclude_defaults=True, exclude={"out"}
        ),
    }
