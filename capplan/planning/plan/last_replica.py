"""What the last replica of a plan costs, where one fewer misses the SLO by little."""

from collections.abc import Sequence
from dataclasses import dataclass

from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run
from capplan.planning.money.cost import usd_per_month
from capplan.workload.slo import Slo

LITTLE = 0.002
"""Share of requests by which a target is missed by little."""


@dataclass(frozen=True)
class LastReplica:
    """The last replica of a plan: what it costs, and how little is missed without."""

    missed_by: float  # share of requests that one fewer attains less than asked
    usd_per_month: float | None  # that one fewer costs less; None without a price [$]


def last_replica(
    run: Run, probes: Sequence[Probe], slo: Slo, class_names: tuple[str, ...]
) -> LastReplica | None:
    """Return the last replica of a plan; None where one fewer misses by more."""
    fewer = {probe.replica_count: probe for probe in probes}.get(run.replica_count - 1)
    if len(run.deployment.pools) > 1 or fewer is None or fewer.meets is not False:
        return None
    short = [row.target - row.slo_attainment for row in fewer.windows if row.is_judged]
    for group in slo.groups(class_names):
        rows = [row for row in fewer.classes if row.class_name in group.names]
        counted = sum(row.counted_request_count for row in rows)
        met = sum(row.slo_attainment * row.counted_request_count for row in rows)
        short.append(group.target - (met / counted if rows else fewer.slo_attainment))
    if not fewer.stable or not 0 < max(short) <= LITTLE:
        return None
    without = usd_per_month(run.deployment.with_replicas(fewer.replica_count).pools)
    usd = None if run.cost is None else run.cost.usd_per_month
    saved = None if usd is None or without is None else usd - without
    return LastReplica(max(short), saved)
