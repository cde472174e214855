"""Serving systems on the same hardware: what each does, and the rate that it holds."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.errors import HostFullError, InputError
from capplan.planning.binding_setting import binding_setting
from capplan.planning.configuration import with_budget
from capplan.planning.deployments import one_pool, two_pools
from capplan.planning.highest_rate import STEP, highest_decided
from capplan.planning.judgement import PERCENTILES
from capplan.planning.load import OpenLoad, scaled
from capplan.planning.predictions import predictions_matter
from capplan.planning.replications import Interrupted
from capplan.planning.room import kept_by_class, slo_of_rest
from capplan.planning.run import (
    BUDGET_REQUESTS,
    Run,
    judged_run,
)
from capplan.planning.settings import PlanSettings
from capplan.planning.traffic import judged, read_traffic
from capplan.simulator.checks import refusal
from capplan.simulator.fleet import Stopped
from capplan.workload.slo import Slo

_NOT_THE_BUDGET = ("max_num_seqs", "max_len", "KV")
"""What binds where no other token budget holds more."""


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests of a comparison at any rate; systems with one predictor share them.

    Some systems refuse those longer than their room, which then count as missed.
    """

    read: OpenLoad  # as read, without those refused
    load: OpenLoad  # as systems are judged by it, at its own rate
    settings: PlanSettings
    slo: Slo  # of those that are not refused
    configurations: tuple[Configuration, ...]  # that may serve them
    rng: np.random.Generator  # as it was after reading
    rate_per_s: float  # of all, those refused too [requests/s]
    refused_share: float = 0.0  # of all requests
    refused_token_share: float = 0.0  # of their tokens, prompts and outputs
    kept_by_class: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, settings: PlanSettings, slo: Slo, able: Sequence[Configuration]
    ) -> "Requests":
        """Return the requests of the settings."""
        rng = np.random.default_rng(settings.seed)
        read = read_traffic(settings, rng)
        load = judged(read, settings, slo, deepcopy(rng), able)
        rate_per_s = load.rate_per_s  # of the process, where there is one
        if not load.is_resampled:
            rate_per_s = read.base.rate_per_s
        return cls(read, load, settings, slo, tuple(able), rng, rate_per_s)

    def within(self, room_tokens: int | None) -> "Requests":
        """Return the requests without those longer than the room of a system.

        Raises
        ------
        InputError
            When more are than may miss the SLO.
        """
        base = self.read.base
        tokens = base.prompt_tokens + base.output_tokens
        kept = tokens <= (room_tokens or math.inf)
        if kept.all():
            return self
        slo = slo_of_rest(self.slo, base, kept)
        read = replace(
            self.read,
            base=base.select(np.flatnonzero(kept)),
            rate_per_s=self.read.rate_per_s * float(kept.mean()),
            _samples={},
        )
        rng = deepcopy(self.rng)
        return replace(
            self,
            read=read,
            load=judged(read, self.settings, slo, rng, self.configurations),
            slo=slo,
            refused_share=float((~kept).mean()),
            refused_token_share=float(tokens[~kept].sum() / tokens.sum()),
            kept_by_class=kept_by_class(base, kept),
        )

    def at(self, rate_per_s: float) -> OpenLoad:
        """Return the requests with their arrivals scaled in time to a rate of all."""
        if rate_per_s == self.rate_per_s or math.isnan(self.rate_per_s):
            return self.load
        faster = scaled(self.read, rate_per_s / self.rate_per_s)
        rng = deepcopy(self.rng)
        return judged(faster, self.settings, self.slo, rng, self.configurations)


@dataclass(frozen=True)
class OperatingPoint:
    """What a system does with requests at one rate."""

    rate_per_s: float  # of the arrivals [requests/s]
    meets: bool | None  # whether it attains the SLO; None where too close to call
    slo_attainment: float | None  # None where no request is counted
    slo_attainment_interval: tuple[float, float] | None  # 95 % (low, high)
    attainment_by_class: dict[str, float]
    goodput_per_s: float | None  # requests within their SLO [requests/s]
    output_tokens_per_s: float  # to the last token [tokens/s]
    span_output_tokens_per_s: float | None  # to the last arrival [tokens/s]
    # by metric of METRICS: mean, then PERCENTILES [s]
    latency_s: dict[str, tuple[float, ...]]
    request_count: int  # of one sample, which the next three are about
    preemptions: int
    swaps: int  # times that the KV of a request went to the host
    paused_s: float  # that a request held KV and sat out, on average [s]

    @classmethod
    def of(cls, run: Run, rate_per_s: float, requests: Requests) -> "OperatingPoint":
        """Return what a judged run shows; of all requests, the refused ones missed."""
        attainment, times = run.judgement.attainment, run.simulation.table
        share, interval, by_class = None, None, {}
        if attainment is not None:
            kept = 1 - requests.refused_share
            share = kept * attainment.share
            interval = (kept * attainment.interval[0], kept * attainment.interval[1])
            by_class = {
                name: requests.kept_by_class.get(name, 1.0) * of_class
                for name, of_class in attainment.by_class.items()
            }
        return cls(
            rate_per_s=rate_per_s,
            meets=run.judgement.meets,
            slo_attainment=share,
            slo_attainment_interval=interval,
            attainment_by_class=by_class,
            goodput_per_s=run.goodput_per_s,
            output_tokens_per_s=run.output_tokens_per_s,
            span_output_tokens_per_s=run.span_output_tokens_per_s,
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
class Hardware:
    """The hardware on which all systems are compared."""

    replica_count: int
    seed: int
    stopped: Stopped | None = None  # says when to answer with what is known

    def deployment(self, entrant: "Entrant") -> Deployment:
        """Return the replicas of a system; of two pools so many for prompts."""
        if entrant.prefill_replicas:
            decoding = self.replica_count - entrant.prefill_replicas
            counts = entrant.prefill_replicas, decoding
            return two_pools(entrant.settings, [entrant.configuration], counts)
        return one_pool(
            entrant.settings, entrant.configuration, self.replica_count, entrant.router
        )


@dataclass(frozen=True, eq=False)
class Entrant:
    """A system on that hardware."""

    name: str
    requests: Requests
    settings: PlanSettings  # of its plan
    configuration: Configuration  # GPU, TP and engine with its scheduler
    router: str
    budgets: tuple[int, ...] = ()  # of tokens, to hold a higher rate with
    prefill_replicas: int = 0  # of them, for prompts alone; 0: all do both
    rate_per_s: float = 0.0  # of its curve, where a point of it is asked [requests/s]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Result:
    """What was found of a system on that hardware."""

    configuration: Configuration  # with the budget that holds the highest rate
    # at one rate; nothing where it was not simulated
    served: tuple[OperatingPoint, ...] = ()
    max_rate_per_s: float | None = None  # None: it holds none, or nobody knows
    reason: str = ""  # why it was not simulated, or not to the end
    binding: str = ""  # what keeps it from a higher rate
    predictions_matter: bool | None = None  # at the own rate; None: there are none


def at_rate(hardware: Hardware, entrant: Entrant) -> Result:
    """Return what a system does at the rate of its entrant, by one sample."""
    try:
        run = _run(hardware, entrant, entrant.rate_per_s, first_only=True)
    except Interrupted:
        return Result(entrant.configuration, reason="interrupted")
    except InputError as error:
        return Result(entrant.configuration, reason=str(error))
    served = OperatingPoint.of(run, entrant.rate_per_s, entrant.requests)
    return Result(entrant.configuration, (served,))


def capacity(hardware: Hardware, entrant: Entrant) -> Result:
    """Return what a system does at the requests' own rate, and the highest it holds.

    Both are judged as a plan judges a count of replicas: the next higher rate is not
    decided to be held. Of its token budgets a system has the one with which it holds
    the highest rate.
    """
    best = _Looks(hardware, entrant)
    try:
        best.search()
        for budget in () if best.binding in _NOT_THE_BUDGET else entrant.budgets:
            smaller = with_budget(entrant.configuration, budget)
            other = _Looks(hardware, replace(entrant, configuration=smaller))
            if budget < entrant.configuration.engine.max_num_batched_tokens and (
                other.is_able() and other.holds_more_than(best.max_rate_per_s)
            ):
                other.search(best.max_rate_per_s)
                best = other
        best.at_own_rate()
        best.compare_with_true_lengths()
    except Interrupted:
        best.reason = "interrupted"
    except InputError as error:
        best.reason = str(error)
    return best.result()


class _Looks:
    """Rates at which a system was simulated."""

    def __init__(self, hardware: Hardware, entrant: Entrant) -> None:
        self.max_rate_per_s: float | None = None
        self.reason = ""
        self._hardware, self._entrant = hardware, entrant
        self._own_per_s = entrant.requests.rate_per_s
        self._holds = cache(self._look)  # the search may come to a rate again
        self._served: tuple[OperatingPoint, ...] = ()
        self._matter: bool | None = None
        self._missed: Run | None = None  # at the lowest rate that is not held
        self._missed_per_s = math.inf

    def is_able(self) -> bool:
        """Return whether the system serves all requests."""
        entrant = self._entrant
        return not refusal(entrant.requests.load.base, entrant.configuration.engine)

    def holds_more_than(self, max_rate_per_s: float | None) -> bool:
        """Return whether a higher rate than another's is held."""
        if max_rate_per_s is None:
            self.search()
            return self.max_rate_per_s is not None
        return math.isfinite(max_rate_per_s) and self._holds(max_rate_per_s * STEP)

    def search(self, above_per_s: float | None = None) -> None:
        """Find the highest rate, above one that is held."""
        if math.isnan(self._own_per_s):
            self.reason = "all requests arrive at once, which is no rate"
            return
        from_per_s = self._own_per_s if above_per_s is None else above_per_s * STEP
        self.max_rate_per_s = highest_decided(self._seems_held, self._holds, from_per_s)
        if self.max_rate_per_s == math.inf:
            self.max_rate_per_s = None
            self.reason = "holds any rate: all requests could arrive at once"

    def at_own_rate(self) -> None:
        """Simulate the requests' own rate, where the search did not."""
        if not self._served:
            run = _run(self._hardware, self._entrant, self._own_per_s)
            self._served = (
                OperatingPoint.of(run, self._own_per_s, self._entrant.requests),
            )

    def compare_with_true_lengths(self) -> None:
        """Ask whether any request's times are others than with true lengths."""
        hardware, entrant = self._hardware, self._entrant
        self._matter = predictions_matter(
            entrant.requests.at(self._own_per_s).trace,
            hardware.deployment(entrant),
            entrant.requests.slo,
            hardware.seed,
            hardware.stopped,
        )

    def result(self) -> Result:
        """Return what is known."""
        return Result(
            self._entrant.configuration,
            self._served,
            self.max_rate_per_s,
            self.reason,
            self.binding,
            self._matter,
        )

    @property
    def binding(self) -> str:
        """What keeps the system from a higher rate."""
        return "" if self._missed is None else binding_setting(self._missed)

    def _seems_held(self, rate_per_s: float) -> bool:
        """Return whether the first sample alone keeps the SLO, below capacity."""
        try:
            run = _run(self._hardware, self._entrant, rate_per_s, first_only=True)
        except HostFullError:
            return False
        return run.judgement.seems_held

    def _look(self, rate_per_s: float) -> bool:
        is_own = rate_per_s == self._own_per_s
        try:
            run = _run(self._hardware, self._entrant, rate_per_s)
        except HostFullError as error:
            self.reason = str(error) if is_own else self.reason
            return False
        if is_own:
            self._served = (OperatingPoint.of(run, rate_per_s, self._entrant.requests),)
        is_held = run.judgement.holds
        if not is_held and rate_per_s < self._missed_per_s:
            self._missed, self._missed_per_s = run, rate_per_s
        return is_held


def _run(
    hardware: Hardware, entrant: Entrant, rate_per_s: float, *, first_only: bool = False
) -> Run:
    if hardware.stopped is not None and hardware.stopped():
        raise Interrupted
    run = judged_run(
        entrant.requests.at(rate_per_s),
        entrant.requests.slo,
        hardware.deployment(entrant),
        seed=hardware.seed,
        budget_requests=BUDGET_REQUESTS,
        first_only=first_only,
        stopped=hardware.stopped,
    )
    if hardware.stopped is not None and hardware.stopped():
        raise Interrupted
    return run
