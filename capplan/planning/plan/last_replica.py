"""What the last replicas of a plan cost, where fewer miss the SLO by little."""

from collections.abc import Sequence
from dataclasses import dataclass

from capplan.deployment.pools import Deployment
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run
from capplan.planning.money.cost import node_count, nodes_of, usd_per_month
from capplan.workload.slo import Slo

LITTLE = 0.002
"""Share of requests by which a target is missed by little."""
_FEW_POINTS = 0.03
"""Share of requests that the last points are at most."""
_MANY = 0.25
"""Part of the replicas that they cost at least, where they are worth telling."""


@dataclass(frozen=True)
class LastReplica:
    """The last replica of a plan: what it costs, and how little is missed without."""

    missed_by: float  # share of requests that one fewer attains less than asked
    usd_per_month: float | None  # that one fewer costs less; None without a price [$]


@dataclass(frozen=True)
class LastPoints:
    """The fewest replicas that miss the SLO by few points, and what the others cost."""

    replica_count: int  # that were simulated and miss it
    missed_by: float  # share of requests that they attain less than asked
    replica_count_more: int  # that the plan has
    gpu_count_more: int
    node_count_more: float | None  # None where GPUs are priced alone or have no price
    usd_per_month: float | None  # that these cost; None without a price [$]


def last_replica(
    run: Run, probes: Sequence[Probe], slo: Slo, class_names: tuple[str, ...]
) -> LastReplica | None:
    """Return the last replica of a plan; None where one fewer misses by more."""
    fewer = {probe.replica_count: probe for probe in probes}.get(run.replica_count - 1)
    short = 0.0 if fewer is None else _missed_by(fewer, run, slo, class_names)
    if fewer is None or not 0 < short <= LITTLE:
        return None
    return LastReplica(short, _saved_usd(run, fewer.replica_count))


def last_points(
    run: Run, probes: Sequence[Probe], slo: Slo, class_names: tuple[str, ...]
) -> LastPoints | None:
    """Return what the last points of attainment cost; None where it is not much."""
    most = (1 - _MANY) * run.replica_count
    for probe in sorted(probes, key=lambda probe: probe.replica_count):
        short, count = _missed_by(probe, run, slo, class_names), probe.replica_count
        if count <= most and 0 < short <= _FEW_POINTS:
            fleet, fewer = run.deployment, run.deployment.with_replicas(count)
            nodes, left = _nodes(fleet), _nodes(fewer)
            return LastPoints(
                count,
                short,
                replica_count_more=run.replica_count - count,
                gpu_count_more=fleet.gpu_count - fewer.gpu_count,
                node_count_more=None if nodes is None or left is None else nodes - left,
                usd_per_month=_saved_usd(run, count),
            )
    return None


def _nodes(fleet: Deployment) -> float | None:
    rows = nodes_of(fleet.pools)
    return None if rows is None else node_count(rows)


def _missed_by(probe: Probe, run: Run, slo: Slo, class_names: tuple[str, ...]) -> float:
    """Return by what share a count misses its targets; 0 where that is not decided."""
    if len(run.deployment.pools) > 1 or probe.meets is not False or not probe.stable:
        return 0.0
    short = [row.target - row.slo_attainment for row in probe.windows if row.is_judged]
    for group in slo.groups(class_names):
        rows = [row for row in probe.classes if row.class_name in group.names]
        counted = sum(row.counted_request_count for row in rows)
        met = sum(row.slo_attainment * row.counted_request_count for row in rows)
        short.append(group.target - (met / counted if rows else probe.slo_attainment))
    return max(short)


def _saved_usd(run: Run, count: int) -> float | None:
    """Return what so many replicas cost less in a month; None without a price. [$]"""
    without = usd_per_month(run.deployment.with_replicas(count).pools)
    usd = None if run.cost is None else run.cost.usd_per_month
    return None if usd is None or without is None else usd - without
