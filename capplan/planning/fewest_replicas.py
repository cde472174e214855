"""The fewest replicas of one configuration that meet the SLO, by simulation."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from capplan.deployment import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.planning.result import Probe
from capplan.simulator.metrics import Attainment, attainment, is_stable
from capplan.simulator.simulate import simulate
from capplan.simulator.times import Simulation
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

_KV_FULL = 0.97
_PREEMPTED_SHARE = 0.01
_GROWTH = 1.5


@dataclass(frozen=True, eq=False)
class Probed:
    """A simulated replica count with all that was seen of it."""

    probe: Probe
    simulation: Simulation
    attainment: Attainment
    warmup_s: float


def probe(
    trace: Trace,
    tables: LatencyTables,
    engine: EngineSettings,
    replica_count: int,
    slo: Slo,
    *,
    warmup_s: float,
    router: str,
    seed: int,
) -> Probed:
    """Simulate one replica count and judge it.

    It passes when the share of requests within their SLO, of those that arrive
    after ``warmup_s``, is at least the target and the backlog does not grow.
    """
    simulation = simulate(
        trace, tables, engine, replica_count, router=router, slo=slo, seed=seed
    )
    found = attainment(simulation, trace, slo, warmup_s)
    stable = is_stable(simulation, warmup_s)
    counted = simulation.times.arrival_s >= warmup_s
    result = Probe(
        replica_count=replica_count,
        slo_attainment=found.share,
        slo_attainment_interval=found.interval,
        ttft_p99_s=_p99(simulation.times.ttft_s[counted]),
        tpot_p99_s=_p99(simulation.times.tpot_s[counted]),
        e2e_p99_s=_p99(simulation.times.e2e_s[counted]),
        meets=found.share >= slo.attainment and stable,
        stable=stable,
    )
    return Probed(result, simulation, found, warmup_s)


def _p99(values_s: np.ndarray) -> float:
    known = values_s[~np.isnan(values_s)]
    return float(np.quantile(known, 0.99)) if known.size else float("nan")


def fewest_replicas(
    judge: Callable[[int], Probed], at_least: int, most: int
) -> tuple[Probed | None, list[Probed]]:
    """Return the first count that passes, and all that were simulated.

    Brackets from a lower bound upward in growing steps, then bisects. The count
    below the answer is among those simulated, and failed, unless the answer is 1.

    Parameters
    ----------
    judge
        Simulates a count. Where more replicas change nothing (a router that fills
        replicas leaves the new ones idle), the search gives up.
    at_least
        No fewer can do.
    most
        Where the search gives up.
    """
    seen: dict[int, Probed] = {}

    def passes(count: int) -> bool:
        if count not in seen:
            seen[count] = judge(count)
        return seen[count].probe.meets

    low, count = at_least - 1, at_least
    while not passes(count):
        if count >= most or _no_better(seen.get(low), seen[count]):
            return None, [seen[key] for key in sorted(seen)]
        low = count
        count = min(most, max(count + 1, int(np.ceil(count * _GROWTH))))
        if len(seen) == 1:
            # The first miss says how far off it is: go near, then bisect.
            count = min(most, max(low + 1, int(np.ceil(low * 1.25))))
    high = count
    while high - low > 1:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle
    while high > 1 and passes(high - 1):
        high -= 1
    return seen[high], [seen[key] for key in sorted(seen)]


def _no_better(fewer: Probed | None, more: Probed) -> bool:
    """Return whether added replicas did not change a single iteration."""
    if fewer is None:
        return False
    return (
        fewer.simulation.iteration_count == more.simulation.iteration_count
        and fewer.probe.slo_attainment == more.probe.slo_attainment
    )


def binding_limit(failing: Probed | None) -> str:
    """Return what keeps the deployment from being smaller.

    Read off the count below, which fails: KV when requests were preempted or the
    cache was full, else the limit that most requests miss. Nothing binds a single
    replica.
    """
    if failing is None:
        return "none"
    simulation = failing.simulation
    preempted = float((simulation.times.preemptions > 0).mean())
    full = float(np.quantile(simulation.series.kv_share, 0.9)) > _KV_FULL
    if preempted > _PREEMPTED_SHARE or full:
        return "KV"
    shares = failing.attainment.by_limit
    return min(shares, key=lambda name: shares[name]).upper()
