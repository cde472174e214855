"""The page of several LLMs on shared nodes: who uses what, and what is idle."""

from functools import partial
from typing import Any

from capplan.fleet.node_failures import (
    FAILURES_HIGH,
    FAILURES_LOW,
    FAILURES_PER_1000_NODE_DAYS,
    FAILURES_SOURCE,
)
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.shared_fleet.result import SharedFleet, total_usd
from capplan.planning.shared_fleet.share_nodes import JOINT
from capplan.report import sentences
from capplan.report.charts.nodes import node_figures
from capplan.report.columns import format_cents, format_share, record
from capplan.report.page import Fact, Page, Section, Table, Tile
from capplan.report.pages.shared_fleet_rows import (
    ALIKE,
    BILL,
    HOURS,
    IDLE,
    MAP,
    TENANTS,
    WAYS,
    alike_rows,
    bill_rows,
    hour_rows,
    map_rows,
    pool_fields,
    tenant_row,
)
from capplan.units import format_duration, format_usd

SCHEMA = "capplan.fleet/1"


def shared_fleet_page(fleet: SharedFleet) -> Page:
    """Return who uses what of shared nodes, what is idle, and who stands where."""
    bill = Table(
        BILL,
        bill_rows(fleet),
        style=lambda row: "fail" if row["who"] == IDLE else "",
        note="GPU-hours of each LLM's replicas at the price of its nodes; no replica "
        "uses the idle ones. Sum: the nodes of the joint peak and the spares"
        f"{_sum(fleet)}.",
        is_whole=True,
    )
    ways = Table(
        WAYS,
        fleet.arrangements,
        style=lambda row: "best" if row.name == JOINT else "",
        note="With spares for each pool. You pay for the joint peak: nodes are kept, "
        "and replicas start and stop on them by the hour.",
    )
    pools = Table(pool_fields(fleet), fleet.pools)
    tenants = Table(
        TENANTS,
        [tenant_row(p, i) for p in fleet.pools for i in range(len(p.tenants))],
        note="Replicas of an hour are estimated, not simulated: in proportion to its "
        "busiest 10 minutes, from one to those of the plan.",
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
                tables=[Table(ALIKE, [r for p in fleet.pools for r in alike_rows(p)])],
                figures=partial(node_figures, fleet),
            ),
        ],
        values=partial(shared_fleet_values, fleet),
        csv={
            "fleet.csv": bill,
            "ways.csv": ways,
            "pools.csv": pools,
            "llms.csv": tenants,
            "hours.csv": Table(HOURS, [r for p in fleet.pools for r in hour_rows(p)]),
            "map.csv": Table(MAP, [r for p in fleet.pools for r in map_rows(p)]),
        },
        lead=_lead(fleet),
        tiles=_tiles(fleet),
        warnings=fleet.warnings,
    )


def _sum(fleet: SharedFleet) -> str:
    usd = fleet.usd_with_spares
    return "" if usd is None else f", {format_cents(usd)}"


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
    usd, idle = fleet.usd_with_spares, total_usd(fleet.idle)
    alone = fleet.usd_per_month
    if usd is None or idle is None or alone is None:
        return f"{text}."
    return (
        f"{text}. Planned alone: {format_cents(alone)} a month. With spares, and two "
        f"nodes or more for each LLM of several replicas: {format_cents(usd)}, of "
        f"which {format_cents(idle)} ({format_share(_idle_share(fleet))}) is idle."
    )


def _idle_share(fleet: SharedFleet) -> float:
    """Return the part of the GPU-hours that no replica uses."""
    paid = sum(line.gpu_hours_per_month for line in fleet.bill)
    return sum(line.gpu_hours_per_month for line in fleet.idle) / paid


def _tiles(fleet: SharedFleet) -> list[Tile]:
    usd = fleet.usd_with_spares
    return [
        Tile("joint peak", _nodes(fleet.joint_peak), f"separate: {fleet.separate}"),
        Tile("spares", str(fleet.spares), f"up {_up(fleet)} of the time"),
        Tile(
            "a month",
            "–" if fleet.usd_per_month is None else format_usd(fleet.usd_per_month),
            "" if usd is None else f"{format_usd(usd)} with spares",
        ),
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
            f"takes {sentences.plural(low, 'spare')}, at {FAILURES_HIGH} {high}"
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
            f"{fleet.spares}, the fewest that keep enough nodes up {_up(fleet)} of the "
            "time if nodes fail one by one",
        ),
        ("repair", f"{format_duration(fleet.settings.repair_h * 3600)}{star}"),
        ("failures", failures),
        *[
            (llm.name, f"{llm.source}, as written; capplan verify checks it")
            for llm in fleet.llms
        ],
    ]


def shared_fleet_values(fleet: SharedFleet) -> dict[str, Any]:
    """Return the keys and values of ``fleet.json``."""
    return {
        "schema": SCHEMA,
        "joint_peak_nodes": fleet.joint_peak,
        "separate_peak_nodes": fleet.separate,
        "spare_nodes": fleet.spares,
        "usd_per_month": fleet.usd_per_month,
        "usd_per_month_with_spares": fleet.usd_with_spares,
        "idle_usd_per_month": total_usd(fleet.idle),
        "hours_per_month": HOURS_PER_MONTH,
        "availability": fleet.settings.availability,
        "repair_h": fleet.settings.repair_h,
        "bill": [vars(line) for line in fleet.bill],
        "ways": [vars(way) for way in fleet.arrangements],
        "llms": [
            {
                **tenant_row(pool, index),
                "role": tenant.pool.role,
                "plan": tenant.llm.source,
                "trace": None if tenant.llm.curve is None else tenant.llm.curve.source,
                "why_constant": tenant.llm.why_constant,
            }
            for pool in fleet.pools
            for index, tenant in enumerate(pool.tenants)
        ],
        "pools": [record(pool_fields(fleet), pool) for pool in fleet.pools],
        "warnings": fleet.warnings,
        "settings": fleet.settings.document({"out", "plans"}),
    }
