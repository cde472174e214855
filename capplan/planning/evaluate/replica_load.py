"""What a replica sustains within its SLO, as policies are to know it."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.errors import collected_warnings
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.highest_rate import highest_rate
from capplan.planning.evaluate.inputs import PlanInputs, Progress
from capplan.planning.evaluate.judging import Judging
from capplan.planning.evaluate.run import Run, judged_run
from capplan.planning.evaluate.saturation import saturation
from capplan.planning.load.load import Load, Saturations, scaled
from capplan.planning.load.traffic import arriving, judged
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.fleet.fleet import Stopped
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

PROCESS = "poisson"
"""Arrivals by which it is measured: at one rate, not those of a day and a night."""
_OF_SATURATION = 0.7
_LEAST_REQUESTS = 20_000
"""Requests by which a rate is judged: 200 may miss a target of 99 %."""


@dataclass(frozen=True)
class ReplicaLoad:
    """What a replica sustains within its SLO, with requests of a trace."""

    rate_per_s: float  # highest that attains the target [requests/s]
    in_flight: float  # running and waiting at that rate, in the mean [requests]
    replica_count: int = 1  # of the fleet in which it was measured


def sustained_load(
    inputs: PlanInputs, run: Run | None, progress: Progress
) -> ReplicaLoad | None:
    """Return what a replica of a plan's best deployment sustains.

    None of two pools, for users who wait for their answers, and where it was
    interrupted.
    """
    if run is None or len(run.deployment.pools) > 1 or not inputs.load.is_open:
        return None
    progress("measuring what a replica holds")
    settings, base, slo = inputs.settings, inputs.load.base, inputs.slo
    with suppress(Interrupted), collected_warnings():
        known, of = inputs.load.saturations, run.deployment
        found = replica_load(settings, base, slo, of, inputs.stopped, known=known)
        return None if found is None else _at_least(found, run)
    return None


def peak_per_s(run: Run) -> float:
    """Return the rate of a run's busiest hour, or its mean where there is none.

    Of windows of another length, where these are judged. [requests/s]
    """
    peak = run.judgement.in_windows.peak
    return run.simulation.totals.rate_per_s if peak is None else peak.rate_per_s


def _at_least(found: ReplicaLoad, run: Run) -> ReplicaLoad:
    """Return what a replica sustains, but no less than a run shows that it does.

    Rates are sought in steps of 3 %, by fewer requests than the run has.
    """
    judgement, shown_per_s = run.judgement, run.simulation.totals.rate_per_s
    if (peak := judgement.in_windows.peak) is not None and peak.meets:
        shown_per_s = peak.rate_per_s
    more = shown_per_s / run.replica_count / found.rate_per_s
    if more <= 1 or not (judgement.holds and judgement.stable):
        return found
    in_flight = more * found.in_flight
    return replace(found, rate_per_s=more * found.rate_per_s, in_flight=in_flight)


def replica_load(
    settings: PlanSettings,
    trace: Trace,
    slo: Slo,
    deployment: Deployment,
    stopped: Stopped | None = None,
    *,
    least_requests: int = _LEAST_REQUESTS,
    known: Saturations | None = None,
) -> ReplicaLoad | None:
    """Return what a replica of a deployment sustains; None where no rate is held.

    The trace's requests arrive at one rate, by a Poisson process, and each of its
    replicas serves its part. Smaller fleets balance less and sustain a little less.
    ``known`` are saturations with these requests.
    """
    count, configuration = deployment.replica_count, deployment.pool.configuration
    drawn, read = drawn_from(settings, trace, known)
    found = saturation(read, configuration, slo)
    first_per_s = 1.0 if found is None else _OF_SATURATION * found.rate_per_s * count

    alone, metrics = replace(slo, attain_in_s=None), ("e2e_s",)
    how = Judging(settings.seed, metrics, first_only=True, stopped=stopped)

    @cache
    def run_at(rate_per_s: float) -> Run:
        load = at_rate(read, drawn, slo, configuration, rate_per_s, least_requests)
        return judged_run(load, alone, deployment, how).without_requests()

    most = None if deployment.is_changing else found

    def holds(rate_per_s: float) -> bool:
        """Return whether a rate seems held; one that none can hold is not simulated."""
        if most is not None and most.utilisation(rate_per_s, count) >= 1:
            return False
        return run_at(rate_per_s).judgement.seems_held

    rate_per_s = highest_rate(holds, first_per_s)
    if rate_per_s is None or not np.isfinite(rate_per_s):
        return None
    stay_s = run_at(rate_per_s).judgement.percentiles["e2e_s"][0]
    return ReplicaLoad(rate_per_s / count, rate_per_s * stay_s / count, count)


def drawn_from(
    settings: PlanSettings, trace: Trace, known: Saturations | None = None
) -> tuple[PlanSettings, Load]:
    """Return requests of a trace that arrive at 1/s, and the settings of those.

    ``known`` are saturations with these requests, whenever they arrive.
    """
    # The trace is scaled already, and its requests have their predicted lengths.
    free = {"arrivals": PROCESS, "rate": 1.0, "scale": None, "predictor": None}
    drawn = settings.model_copy(update=free)
    rng = np.random.default_rng(settings.seed)
    read = arriving(replace(trace, arrival_s=None), drawn, rng)
    return drawn, read if known is None else replace(read, saturations=known)


def at_rate(
    read: Load,
    settings: PlanSettings,
    slo: Slo,
    configuration: Configuration,
    rate_per_s: float,
    least_requests: int = _LEAST_REQUESTS,
) -> Load:
    """Return as many requests at least, at another rate. [requests/s]"""
    rng = np.random.default_rng(settings.seed)
    free = {"attain_in": None, "warm_up": None, "extend": None}
    load = judged(
        scaled(read, rate_per_s),
        settings.model_copy(update=free),
        replace(slo, attain_in_s=None),
        rng,
        [configuration],
    )
    count = max(load.request_count, least_requests)
    return replace(load, request_count=count, _samples={})
