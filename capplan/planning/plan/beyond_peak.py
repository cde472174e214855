"""What a plan's fleet attains beyond its peak, and where a gateway is to refuse.

A gateway is simulated by users who think in turn (``Trace.in_turn``), as many as the
limit: a Poisson process without the requests that find so many in flight.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from capplan.errors import HostFullError, collected_warnings
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.highest_rate import highest_rate
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.evaluate.judgement import counts_of
from capplan.planning.evaluate.replica_load import (
    ReplicaLoad,
    at_rate,
    drawn_from,
    peak_per_s,
)
from capplan.planning.evaluate.run import Run, judged_run
from capplan.planning.evaluate.settling import full_batch
from capplan.planning.plan.told import Told
from capplan.simulator.results.sample import sample_of
from capplan.simulator.simulate import simulate
from capplan.workload.slo import Slo, base_classes
from capplan.workload.synthesis import resample

TIMES = 1.3
"""Rate that is looked at, in times of the peak."""
_LASTS_S, _FEWEST, _MOST = 900.0, 20_000, 100_000
"""Time that it lasts [s], and its requests, at least and at most."""
_SURGES = (1.15, 1.5)
"""Rates at which a limit is to hold, in times of what a replica sustains, at least: in
the lower requests refill gaps in bursts, in the higher none is left."""
_REQUESTS, _TIMES_LIMIT = 10_000, 20
"""Requests that a limit is judged by, and in times of the limit; the more of these."""
_WARMUP = 0.1
"""Part of them at the begin that does not count."""
_CHANCE = 2.0
"""Standard deviations of those that miss by which they are fewer than may."""
_MOST_BATCHES = 2
"""Limits looked at, in full batches of a replica."""
_STRIDE = 4


@dataclass(frozen=True)
class Gateway:
    """Requests in flight at which others are refused, so that the rest meet the SLO."""

    in_flight: int  # of a replica, running and waiting
    in_flight_by_class: dict[str, int]  # of a replica, where there are classes
    admitted_share: float  # of the requests at the rate beyond the peak
    slo_attainment: float  # of those admitted


@dataclass(frozen=True)
class BeyondPeak:
    """What the planned fleet attains at 1.3 times the peak."""

    rate_per_s: float  # 1.3 times the peak [requests/s]
    simulated_s: float  # time for which it lasts [s]
    slo_attainment: float  # of all requests, none refused
    stable: bool  # else the backlog grows, and less is attained the longer it lasts
    gateway: Gateway | None  # None where no limit was found that keeps the SLO


def beyond_peak_of(told: Told) -> BeyondPeak | None:
    """Return what a plan's best attains; None where what it sustains is not known."""
    inputs, run, sustained = told.inputs, told.run, told.plan.replica_load
    if sustained is None:
        return None
    told.progress("simulating 1.3 times the peak")
    rate_per_s, slo = TIMES * peak_per_s(run), replace(inputs.slo, attain_in_s=None)
    peak = inputs.load
    settings, read = drawn_from(inputs.settings, peak.base, peak.saturations)
    count = int(np.clip(_LASTS_S * rate_per_s, _FEWEST, _MOST))
    with suppress(Interrupted, HostFullError), collected_warnings():
        load = at_rate(read, settings, slo, run.configuration, rate_per_s, count)
        more = judged_run(
            load, slo, run.deployment, inputs.judging(metrics=(), first_only=True)
        )
        judgement = more.judgement
        assert judgement.attainment is not None
        return BeyondPeak(
            rate_per_s,
            more.simulation.totals.duration_s,
            judgement.attainment.share,
            judgement.stable and not judgement.steadiness.utilisation >= 1,
            _gateway(inputs, slo, run, sustained, rate_per_s / run.replica_count),
        )
    return None


def _gateway(
    inputs: PlanInputs, slo: Slo, run: Run, sustained: ReplicaLoad, rate_per_s: float
) -> Gateway | None:
    """Return the highest limit of a replica, which requests reach at a rate."""
    base, seed = replace(inputs.load.base, arrival_s=None), inputs.settings.seed
    replica = run.deployment.with_replicas(1)

    @cache
    def behind(limit: int, at_per_s: float) -> tuple[Gateway, bool]:
        """Return a gateway, and whether what it admits attains the SLO."""
        if inputs.is_stopped():
            raise Interrupted
        rng = np.random.default_rng((seed, 9))
        drawn = resample(base, max(_REQUESTS, _TIMES_LIMIT * limit), rng)
        gaps_s = rng.exponential(1 / at_per_s, len(drawn))
        asked = replace(drawn, users=limit, think_s=gaps_s, in_turn=True)
        simulation = simulate(asked, replica, slo=slo, seed=seed)
        times, names = simulation.table, simulation.class_names
        since_s = times.arrival_s[int(_WARMUP * len(times))] - times.arrival_s[0]
        sample = sample_of(simulation, slo, float(since_s), ())
        held = True
        for group in slo.groups(names):
            counted, attained = (float(x.sum()) for x in counts_of([sample], group))
            missed = counted - attained
            may_miss = (1 - group.target) * counted
            held &= missed + _CHANCE * math.sqrt(missed) <= may_miss
        of_class = np.asarray(base_classes(names)[1])[times.request_class]
        return Gateway(
            limit,
            _parts(limit, base_classes(names)[0], of_class, times.e2e_s),
            # A place is free while a user thinks, and arrivals see time averages
            # (Wolff, "Poisson Arrivals See Time Averages", 1982).
            min(1.0, float(gaps_s.sum() / times.arrival_s[-1])),
            float(sample.attained.sum() / sample.counted.sum()),
        ), held

    most = _MOST_BATCHES * full_batch(base, replica.pool.configuration.engine)
    rates = {max(rate_per_s, times * sustained.rate_per_s) for times in _SURGES}

    def holds(limit: float) -> bool:
        return _whole(limit) <= most and all(
            behind(_whole(limit), at_per_s)[1] for at_per_s in sorted(rates)
        )

    found = highest_rate(holds, min(max(1.0, sustained.in_flight), most), _STRIDE)
    if found is None or math.isinf(found):
        return None
    return behind(_whole(found), rate_per_s)[0]


def _whole(limit: float) -> int:
    return max(1, round(limit))


def _parts(
    limit: int, names: tuple[str, ...], of_class: np.ndarray, e2e_s: np.ndarray
) -> dict[str, int]:
    """Return the part of a limit that each class has: by the time it is in flight."""
    spent_s = np.bincount(of_class, e2e_s, len(names))
    parts = np.maximum(1, limit * spent_s / spent_s.sum()).astype(int)
    used = np.unique(of_class).tolist()
    return {names[k]: int(parts[k]) for k in used} if len(used) > 1 else {}
