"""What a run says of its pools, its migrations and its replicas."""

from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from capplan.deployment.pools import Pool
from capplan.planning.evaluate.run import Run
from capplan.report.columns import format_count, record
from capplan.report.fields import fields
from capplan.report.page import Fact, Section, Table
from capplan.report.sentences import plural
from capplan.simulator.results.times import PoolUse
from capplan.units import format_duration


class PoolRow(NamedTuple):
    """A pool of a run, and what its replicas did."""

    role: str  # "prefill" or "decode"; empty: the only one
    pool: Pool
    use: PoolUse
    makespan_s: float

    @property
    def busy_share(self) -> float:
        """Share of replica time in which an iteration ran."""
        available_s = self.makespan_s * self.use.replica_count
        return self.use.busy_s / available_s if available_s > 0 else 0.0

    @property
    def kv_share(self) -> float:
        """Mean share of KV blocks in use."""
        return float(np.mean(self.use.series.kv_share))


_COLUMNS = fields("run_pool", tp=attrgetter("pool.configuration.layout.degrees"))


def pool_rows(run: Run) -> list[PoolRow]:
    """Return the pools of a run."""
    deployment, simulation = run.deployment, run.simulation
    of = zip(deployment.roles, deployment.pools, simulation.pools, strict=True)
    return [PoolRow(*each, simulation.totals.makespan_s) for each in of]


def motion_section(run: Run) -> Section:
    """Return what moves between replicas, and which come and go."""
    rows = pool_rows(run) if len(run.deployment.pools) > 1 else []
    facts = [*_hand_off(run), ("migrations", _migrations(run)), *_replicas(run)]
    return Section("Between replicas", facts=facts, tables=[Table(_COLUMNS, rows)])


def motion_values(run: Run) -> dict[str, Any]:
    """Return the keys and values of the JSON."""
    deployment, moved, hours = run.deployment, run.simulation.moved, run.hours
    copies = deployment.hand_off or deployment.rebalancer
    values: dict[str, Any] = {
        "pools": [record(_COLUMNS, row) for row in pool_rows(run)],
        "hand_off": deployment.hand_off or None,
        "decode_router": deployment.decode_router or None,
        "dispatcher": deployment.dispatcher or None,
        "rebalancer": deployment.rebalancer or None,
        "autoscaler": deployment.autoscaler or None,
        "link_gb_per_s": deployment.link_gb_per_s if copies else None,
    }
    if moved is not None:
        values["migrations"] = int(moved["joined"].sum())
        values["aborted_migrations"] = int((moved["joined"] == 0).sum())
    if hours is not None:
        gpus = deployment.pool.configuration.gpus
        values |= {
            "mean_replicas": hours.mean_replicas,
            "peak_replicas": hours.peak_replicas,
            "gpu_hours_paid": hours.paid_h * gpus,
            "gpu_hours_ready": hours.ready_h * gpus,
            "gpu_hours_busy": hours.busy_h * gpus,
        }
    return values


def _hand_off(run: Run) -> list[Fact]:
    """Return how KV gets from one pool to the other, and how long that takes."""
    deployment = run.deployment
    if not deployment.hand_off:
        return []
    routers = deployment.router
    if deployment.decode_router:
        routers += f" for prompts, {deployment.decode_router} for decoding"
    link = ""
    if deployment.link_gb_per_s is not None:
        link = f", each GPU's part at {format_count(deployment.link_gb_per_s)} GB/s"
    return [("hand-off", f"{deployment.hand_off}{link}; router {routers}")]


def _migrations(run: Run) -> str:
    moved = run.simulation.moved
    if moved is None:
        return ""
    joined = moved[moved["joined"] == 1]
    text = f"{plural(len(joined), 'request')} moved to another replica"
    if len(joined):
        away_s = float((joined["ended_s"] - joined["left_s"]).mean())
        text += f", each {format_duration(away_s)} without a token on average"
    aborted = len(moved) - len(joined)
    return f"{text}; {format_count(aborted)} more were aborted" if aborted else text


def _replicas(run: Run) -> list[Fact]:
    hours, deployment = run.hours, run.deployment
    if hours is None:
        return []
    replicas = (
        f"{format_count(hours.mean_replicas)} paid on average, "
        f"{hours.peak_replicas:,} at most; {hours.ordered:,} ordered, "
        f"{hours.closed:,} closed or lost"
    )
    if not deployment.autoscaler:
        fewest, left = int(hours.ready.min()), plural(hours.closed, "replica")
        replicas = f"{fewest:,} of {deployment.replica_count:,} at least; {left} lost"
    facts = [
        ("autoscaler", deployment.autoscaler),
        ("replicas", replicas),
        (
            "replica-hours",
            f"{format_count(hours.paid_h)} paid, {format_count(hours.ready_h)} ready, "
            f"{format_count(hours.busy_h)} busy",
        ),
    ]
    if deployment.cold_start_s:
        cold = format_duration(deployment.cold_start_s)
        facts.append(("cold start", f"{cold} from order to first request"))
    return facts
