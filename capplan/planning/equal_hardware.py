"""Serving systems on the same hardware: what each does, and the rate that it holds."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from capplan.errors import InputError
from capplan.planning.configuration import Configuration
from capplan.planning.highest_rate import highest_rate
from capplan.planning.judgement import PERCENTILES
from capplan.planning.run import Interrupted, Run, judged_run
from capplan.planning.settings import PlanSettings
from capplan.planning.traffic import Traffic, at_rate, judged, read_traffic
from capplan.simulator.fleet import Stopped
from capplan.workload.slo import Slo

_BUDGET_REQUESTS = 100_000
"""Requests simulated for one rate of a system, after which it is not decided."""


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
    paused_s: float  # that requests held KV and sat out [s]

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
            paused_s=float(times.paused_s.sum()),
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
    rates_per_s: tuple[float, ...] = ()  # at which it is simulated [requests/s]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Result:
    """What was found of a system on that hardware."""

    served: tuple[Served, ...] = ()  # at the rates asked for
    max_rate_per_s: float | None = None  # None: it holds none, or nobody knows
    reason: str = ""  # why it was not simulated, or not to the end


def at_rates(bench: Bench, trial: Trial) -> Result:
    """Return what a system does at the rates of its trial."""
    served: list[Served] = []
    reason = ""
    try:
        for rate_per_s in trial.rates_per_s:
            served.append(_served(bench, trial, rate_per_s))
    except Interrupted:
        reason = "interrupted"
    except InputError as error:
        reason = str(error)
    return Result(tuple(served), reason=reason)


def held(bench: Bench, trial: Trial) -> Result:
    """Return what a system does at the requests' own rate, and the highest it holds."""
    own_per_s = trial.requests.rate_per_s
    known: dict[float, Served] = {}

    def holds(rate_per_s: float) -> bool:
        known[rate_per_s] = _served(bench, trial, rate_per_s)
        return known[rate_per_s].meets is True

    most_per_s, reason = None, ""
    try:
        most_per_s = highest_rate(holds, own_per_s)
    except Interrupted:
        reason = "interrupted"
    except InputError as error:
        reason = str(error)
    own = known.get(own_per_s)
    return Result(() if own is None else (own,), most_per_s, reason)


def _served(bench: Bench, trial: Trial, rate_per_s: float) -> Served:
    if bench.stopped is not None and bench.stopped():
        raise Interrupted
    run = judged_run(
        trial.requests.at(rate_per_s),
        bench.slo,
        trial.configuration,
        bench.replica_count,
        router=trial.router,
        seed=bench.seed,
        budget_requests=_BUDGET_REQUESTS,
        stopped=bench.stopped,
    )
    if bench.stopped is not None and bench.stopped():
        raise Interrupted
    return Served.of(run, rate_per_s)
