"""Judge a fleet under drawn arrivals: by independent samples of its settled state."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count, pairwise

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.planning.evaluate.executors import Interrupted, side_by_side
from capplan.planning.evaluate.judgement import (
    FEWEST,
    LOOKS,
    Judge,
    Judgement,
    alike,
    answered,
)
from capplan.planning.evaluate.judging import Judging
from capplan.planning.evaluate.saturation import fleet_saturation
from capplan.planning.evaluate.settling import Settling, requests_in_system, settle
from capplan.planning.evaluate.steadiness import Steadiness, sustained_per_s
from capplan.planning.load.load import Load
from capplan.simulator.results.metrics import (
    autocorrelation_time,
    length_biased_mean,
    requests_needed,
)
from capplan.simulator.results.sample import Sample, sample_of
from capplan.simulator.results.times import Simulation
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

_LEAST_REQUESTS = 2000
"""Requests of a window at least."""
_MEMORIES = 5.0
"""Autocorrelation times that a window lasts."""
_MANY = 64
"""Windows that decide that an SLO is met with little room (see ``is_roomy``)."""
_RUN_REQUESTS = 500_000
"""Requests of a run's windows at most, so that long runs need no more memory."""
_NO_MISS_REQUESTS = 200_000
"""Requests that show no miss where none may be."""
_POINTS = 1024
"""Points of time at which the requests in the system are counted for it."""
_WINDOW_S = 300.0
"""Windows of a trace's own arrivals of which the busiest is told. [s]"""
_STAYS_TO_FILL = 2.0
"""Stays, in the mean of the requests in the system, in which a fleet has filled."""


def drawn_steadiness(load: Load, deployment: Deployment, slo: Slo) -> Steadiness:
    """Return the utilisation of a fleet under drawn arrivals."""
    found = fleet_saturation(load, deployment, slo)
    if found is None:
        return Steadiness(drawn=True)
    return Steadiness(
        drawn=True,
        # Users ask less of a slow fleet, and never more than it completes.
        utilisation=found.utilisation(load.rate_per_s)
        if load.is_open
        else min(1.0, found.utilisation(load.rate_per_s)),
        utilisation_error=found.error,
        binds=found.binds and load.is_open,
    )


def given_steadiness(
    load: Load, deployment: Deployment, slo: Slo | None, simulation: Simulation
) -> Steadiness:
    """Return the utilisation of a fleet under a trace's own arrivals.

    In the mean, and in the busiest five minutes.
    """
    if not load.is_open:  # users ask less of a slow fleet: there is no overload
        return Steadiness()
    times, duration_s = simulation.table, simulation.totals.duration_s
    found = fleet_saturation(load, deployment, slo)
    if found is None or not duration_s > 0:
        return Steadiness()
    since_s = times.arrival_s - times.arrival_s[0]
    busiest_per_s = math.nan
    if duration_s > _WINDOW_S:
        by_window = np.bincount((since_s / _WINDOW_S).astype(np.int64))
        busiest_per_s = float(by_window.max()) / _WINDOW_S
    stay_s = length_biased_mean(times.e2e_s[np.isfinite(times.e2e_s)])
    return Steadiness(
        utilisation=found.utilisation(simulation.totals.rate_per_s),
        utilisation_error=found.error,
        busiest_utilisation=found.utilisation(busiest_per_s),
        sustained=found.utilisation(sustained_per_s(times.arrival_s)),
        as_replayed=load.as_replayed,
        binds=found.binds,
        filling=duration_s < _STAYS_TO_FILL * stay_s,
    )


def first_looks(
    simulated: Callable[[Trace], Simulation],
    load: Load,
    slo: Slo,
    first: Sample,
    metrics: tuple[str, ...],
) -> list[Sample]:
    """Return the first sample and a few more of its length, which start empty.

    A fleet that starts empty does no worse than one that has filled, so that they may
    decide that it misses the SLO; not where it also starts with empty prefix caches.
    """
    if load.base.prefix_tokens.any():
        return [first]

    def sampled(index: int) -> Sample:
        simulation = simulated(load.sample(index))
        return sample_of(simulation, slo, load.warmup_s, metrics, load.until_s)

    return [first, *side_by_side(sampled, range(1, FEWEST))]


def replicated(
    simulated: Callable[[Trace], Simulation],
    load: Load,
    judge: Judge,
    deployment: Deployment,
    how: Judging,
) -> Judgement:
    """Return the judgement of a fleet's windows of time; with its utilisation.

    What two starts need to meet is left out of a run as warm-up, and so is its end,
    where requests would see the load go down: as long as the longest stay. What is left
    is cut into windows that are longer than the fleet remembers. The first run is that
    of the two starts; others are added, twice as many windows each time, until they
    decide or the budget is spent on them (a target of 1, which no number of
    windows decides, takes 200,000). That an SLO is met with little room takes 64
    windows where the budget allows them. Where ``simulated`` raises Interrupted, the
    windows until then are judged; before there are any, it is raised.
    """
    slo, metrics, budget_requests = judge.slo, how.metrics, how.budget_requests
    if any(group.target >= 1 for group in judge.groups):
        budget_requests = min(budget_requests, _NO_MISS_REQUESTS)

    def misses(empty: Simulation, since_s: float) -> bool:
        sample = sample_of(empty, slo, since_s, ())
        return judge.verdict([sample]) is False

    settling = settle(
        simulated,
        partial(_agree, judge),
        misses,
        load,
        deployment,
        fleet_saturation(load, deployment, slo),
    )
    steadiness = replace(
        judge.steadiness,
        settled=settling.settled,
        recovery_s=settling.recovery_s,
        simulated_s=settling.duration_s,
    )
    judge = replace(judge, steadiness=steadiness)
    warmup_s = settling.recovery_s
    if load.has_given_warmup:
        warmup_s = load.warmup_s
    elif warmup_s is not None and not load.is_open:  # both starts may be in step
        warmup_s = max(warmup_s, load.warmup_s)
    if warmup_s is None:
        warmup_s = settling.duration_s / 2
    if not settling.settled:
        alone = [sample_of(settling.empty, slo, warmup_s, metrics)]
        return judge.judgement(alone, warmup_s)
    rate_per_s = load.rate_per_s
    window_s = load.whole_rounds_s(_window_s(settling, judge, rate_per_s, warmup_s))
    runs = count(1)  # the first one is that of the two starts

    def cut(simulation: Simulation, duration_s: float) -> list[Sample]:
        """Return the counts of the windows of a simulation."""
        counted_s = duration_s - warmup_s - settling.longest_stay_s
        edges_s = warmup_s + window_s * np.arange(int(counted_s / window_s + 1e-9) + 1)
        return [
            sample_of(simulation, slo, from_s, metrics, until_s)
            for from_s, until_s in pairwise(edges_s)
        ]

    def further(windows: int) -> list[Sample]:
        """Return the windows of more pairs of runs, at least so many in all."""
        found: list[Sample] = []
        while len(found) < windows:
            max_windows = math.ceil(_RUN_REQUESTS / (window_s * rate_per_s))
            each = min(math.ceil((windows - len(found)) / 2), max_windows)
            duration_s = warmup_s + settling.longest_stay_s + each * window_s
            streams = [load.sample(next(runs), duration_s) for _ in range(2)]
            for run in side_by_side(simulated, streams):
                found += cut(run, duration_s)
        return found

    samples = cut(settling.empty, settling.duration_s)
    if len(samples) < FEWEST:
        samples += further(FEWEST - len(samples))
    for _ in range(1, LOOKS):
        met = judge.verdict(samples)
        enough = len(samples) >= _MANY or judge.is_roomy(samples)
        steady = not load.unsteady(answered(samples))
        if steady and (met is False or (met and enough)):
            break
        if 2 * len(samples) * window_s * rate_per_s > budget_requests:
            return replace(judge.judgement(samples, warmup_s), spent=True)
        try:
            samples += further(len(samples))
        except Interrupted:
            break
    return judge.judgement(samples, warmup_s)


def _window_s(
    settling: Settling, judge: Judge, rate_per_s: float, warmup_s: float
) -> float:
    """Return the length of the windows whose shares are taken as independent. [s]

    At least 2,000 arrivals, of which ten miss the SLO at the highest target, and five
    times the integrated autocorrelation time of the requests in the system.
    """
    highest = max(group.target for group in judge.groups)
    arrivals = max(_LEAST_REQUESTS, requests_needed(highest))
    edges_s = np.linspace(warmup_s, settling.duration_s, _POINTS + 1)
    number = requests_in_system(settling.empty.table, edges_s)
    memory_s = autocorrelation_time(number) * (edges_s[1] - edges_s[0])
    return float(max(arrivals / rate_per_s, _MEMORIES * memory_s))


def _agree(judge: Judge, empty: Simulation, full: Simulation, since_s: float) -> bool:
    """Return whether each group attains as much after both starts.

    The first arrival of both is at time 0.
    """
    samples = [sample_of(each, judge.slo, since_s, ()) for each in (empty, full)]
    return alike(samples, judge.groups, 0.25)
