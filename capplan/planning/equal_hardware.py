"""Serving systems on the same hardware: what each does, and the rate that it holds."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from capplan.errors import HostFullError, InputError
from capplan.planning.configuration import Configuration
from capplan.planning.highest_rate import highest_rate
from capplan.planning.judgement import PERCENTILES
from capplan.planning.run import (
    BUDGET_REQUESTS,
    MOST_SAMPLES,
    Interrupted,
    Run,
    judged_run,
)
from capplan.planning.settings import PlanSettings
from capplan.planning.traffic import Traffic, at_rate, judged, read_traffic
from capplan.simulator.fleet import Stopped
from capplan.workload.slo import Slo

_SAMPLES = 3
"""Samples of drawn arrivals by which the highest rate is sought, alike for all."""


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests of a comparison at any rate; systems with one predictor share them."""

    read: Traffic  # as read
    traffic: Traffic  # as systems are judged by it, at its own rate
    settings: PlanSettings
    slo: Slo
    configurations: tuple[Configuration, ...]  # that may serve them
    rng: np.random.Generator  # as it was after reading

    @classmethod
    def of(
        cls, settings: PlanSettings, slo: Slo, able: Sequence[Configuration]
    ) -> "Requests":
        """Return the requests of the settings."""
        rng = np.random.default_rng(settings.seed)
        read = read_traffic(settings, rng)
        traffic = judged(read, settings, slo, deepcopy(rng), able)
        return cls(read, traffic, settings, slo, tuple(able), rng)

    def at(self, rate_per_s: float) -> Traffic:
        """Return the requests with their arrivals scaled in time to a rate."""
        if rate_per_s == self.rate_per_s:
            return self.traffic
        scaled = at_rate(self.read, rate_per_s)
        rng = deepcopy(self.rng)
        return judged(scaled, self.settings, self.slo, rng, self.configurations)

    @property
    def rate_per_s(self) -> float:
        """Their own rate. [requests/s]"""
        return self.read.base.rate_per_s


@dataclass(frozen=True)
class Served:
    """What a system does with requests at one rate."""

    rate_per_s: float  # of the arrivals [requests/s]
    meets: bool | None  # whether it attains the SLO; None where too close to call
    slo_attainment: float | None  # None where no request is counted
    slo_attainment_interval: tuple[float, float] | None  # 95 % (low, high)
    attainment_by_class: dict[str, float]
    goodput_per_s: float | None  # requests within their SLO [requests/s]
    output_tokens_per_s: float  # [tokens/s]
    # by metric of METRICS: mean, then PERCENTILES [s]
    latency_s: dict[str, tuple[float, ...]]
    request_count: int  # of one sample, which the next three are about
    preemptions: int
    swaps: int  # times that the KV of a request went to the host
    paused_s: float  # that a request held KV and sat out, on average [s]

    @classmethod
    def of(cls, run: Run, rate_per_s: float) -> "Served":
        """Return what a judged run shows."""
        attainment, times = run.judgement.attainment, run.simulation.table
        return cls(
            rate_per_s=rate_per_s,
            meets=run.judgement.meets,
            slo_attainment=None if attainment is None else attainment.share,
            slo_attainment_interval=None if attainment is None else attainment.interval,
            attainment_by_class={} if attainment is None else attainment.by_class,
            goodput_per_s=run.goodput_per_s,
            output_tokens_per_s=run.output_tokens_per_s,
            latency_s=run.judgement.percentiles,
            request_count=len(times),
            preemptions=int(times.preemptions.sum()),
            swaps=int(times.swaps.sum()),
            paused_s=float(times.paused_s.mean()),
        )

    def mean_s(self, metric: str) -> float:
        """Return the mean of one of METRICS. [s]"""
        return self.latency_s[metric][0]

    def percentile_s(self, metric: str, level: float) -> float:
        """Return one of PERCENTILES of one of METRICS. [s]"""
        return self.latency_s[metric][1 + PERCENTILES.index(level)]


@dataclass(frozen=True, eq=False)
class Bench:
    """The hardware on which all systems are compared."""

    slo: Slo
    replica_count: int
    seed: int
    stopped: Stopped | None = None  # says when to answer with what is known


@dataclass(frozen=True, eq=False)
class Trial:
    """A system on that hardware."""

    name: str
    requests: Requests
    configuration: Configuration  # GPU, TP and engine with its scheduler
    router: str
    rate_per_s: float = 0.0  # of its curve, where a point of it is asked [requests/s]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Result:
    """What was found of a system on that hardware."""

    served: tuple[Served, ...] = ()  # at one rate; nothing where it was not simulated
    max_rate_per_s: float | None = None  # None: it holds none, or nobody knows
    reason: str = ""  # why it was not simulated, or not to the end


def point(bench: Bench, trial: Trial) -> Result:
    """Return what a system does at the rate of its trial, by one sample."""
    try:
        run = _run(bench, trial, trial.rate_per_s, most_samples=1)
    except Interrupted:
        return Result(reason="interrupted")
    except InputError as error:
        return Result(reason=str(error))
    return Result((Served.of(run, trial.rate_per_s),))


def held(bench: Bench, trial: Trial) -> Result:
    """Return what a system does at the requests' own rate, and the highest it holds.

    The first as it is simulated alone; the second by few samples, the same for all
    systems, without asking whether they decide.
    """
    served: tuple[Served, ...] = ()
    most_per_s, reason = None, ""
    own_per_s = trial.requests.rate_per_s

    def holds(rate_per_s: float) -> bool:
        nonlocal served, reason
        most = MOST_SAMPLES if rate_per_s == own_per_s else _SAMPLES
        try:
            run = _run(bench, trial, rate_per_s, most)
        except HostFullError as error:
            reason = str(error) if rate_per_s == own_per_s else reason
            return False
        if rate_per_s == own_per_s:
            served = (Served.of(run, own_per_s),)
        return run.judgement.stable and not run.judgement.missing

    try:
        most_per_s = highest_rate(holds, own_per_s)
    except Interrupted:
        reason = "interrupted"
    except InputError as error:
        reason = str(error)
    return Result(served, most_per_s, reason)


def _run(
    bench: Bench, trial: Trial, rate_per_s: float, most_samples: int = MOST_SAMPLES
) -> Run:
    if bench.stopped is not None and bench.stopped():
        raise Interrupted
    run = judged_run(
        trial.requests.at(rate_per_s),
        bench.slo,
        trial.configuration,
        bench.replica_count,
        router=trial.router,
        seed=bench.seed,
        budget_requests=BUDGET_REQUESTS,
        most_samples=most_samples,
        stopped=bench.stopped,
    )
    if bench.stopped is not None and bench.stopped():
        raise Interrupted
    return run
