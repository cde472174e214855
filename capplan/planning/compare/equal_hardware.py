"""Serving systems on the same hardware: what each does, and the most that it holds."""

import math
from dataclasses import dataclass, replace
from functools import cache

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.errors import HostFullError, InputError
from capplan.planning.compare.requests import Requests
from capplan.planning.configure.configuration import with_budget
from capplan.planning.configure.deployments import one_pool, two_pools
from capplan.planning.evaluate.binding_setting import binding_setting
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.highest_rate import highest_decided, highest_rate
from capplan.planning.evaluate.judgement import PERCENTILES
from capplan.planning.evaluate.judging import BUDGET_REQUESTS, Judging
from capplan.planning.evaluate.predictions import predictions_matter
from capplan.planning.evaluate.run import Run, judged_run
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.checks import refusal
from capplan.simulator.fleet.fleet import Stopped
from capplan.simulator.results.request_times import METRICS

_NOT_THE_BUDGET = ("max_num_seqs", "max_len", "KV")
"""What binds where no other token budget holds more."""
_BELOW = 4
"""Steps below what one sample seems to hold at which its search begins."""


@dataclass(frozen=True)
class OperatingPoint:
    """What a system does with requests at one rate, or of so many users."""

    rate_per_s: float  # of the arrivals, as users ask them [requests/s]
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
    users: int | None = None  # who ask; None where requests arrive

    @classmethod
    def of(cls, run: Run, amount: float, requests: Requests) -> "OperatingPoint":
        """Return what a judged run shows; of all requests, the refused ones missed."""
        is_open = requests.users is None
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
            rate_per_s=amount if is_open else run.simulation.totals.rate_per_s,
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
            users=None if is_open else int(amount),
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
    budgets: tuple[int, ...] = ()  # of tokens, to hold more with
    prefill_replicas: int = 0  # of them, for prompts alone; 0: all do both
    # of its curve, where a point of it is asked; else where its most is sought first,
    # 0: not known [requests/s, or users]
    amount: float = 0.0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Result:
    """What was found of a system on that hardware."""

    configuration: Configuration  # with the budget that holds the most
    # at one rate, or of so many users; nothing where it was not simulated
    served: tuple[OperatingPoint, ...] = ()
    # that it holds; None: it holds none, or nobody knows [requests/s, or users]
    most: float | None = None
    reason: str = ""  # why it was not simulated, or not to the end
    binding: str = ""  # what keeps it from more
    predictions_matter: bool | None = None  # at the own amount; None: there are none


def at_amount(hardware: Hardware, entrant: Entrant) -> Result:
    """Return what a system does at the amount of its entrant, by one sample."""
    try:
        run = _run(hardware, entrant, entrant.amount, first_only=True)
    except Interrupted:
        return Result(entrant.configuration, reason="interrupted")
    except InputError as error:
        return Result(entrant.configuration, reason=str(error))
    served = OperatingPoint.of(run, entrant.amount, entrant.requests)
    return Result(entrant.configuration, (served,))


def capacity(hardware: Hardware, entrant: Entrant) -> Result:
    """Return what a system does at the requests' own amount, and the most it holds.

    That is a rate or, where users ask, their number. Both are judged as a plan judges a
    count of replicas: the next higher one is not decided to be held. Of its token
    budgets a system has the one with which it holds the most.
    """
    best = _Looks(hardware, entrant)
    try:
        best.search(entrant.amount or math.inf)
        for budget in () if best.binding in _NOT_THE_BUDGET else entrant.budgets:
            smaller = with_budget(entrant.configuration, budget)
            other = _Looks(hardware, replace(entrant, configuration=smaller))
            if budget < entrant.configuration.engine.max_num_batched_tokens and (
                other.is_able() and other.holds_more_than(best.most)
            ):
                other.search_above(best.most)
                best = other
        best.at_own()
        best.compare_with_true_lengths()
    except Interrupted:
        best.reason = "interrupted"
    except InputError as error:
        best.reason = str(error)
    return best.result()


class _Looks:
    """Amounts, rates or numbers of users, at which a system was simulated."""

    def __init__(self, hardware: Hardware, entrant: Entrant) -> None:
        self.most: float | None = None
        self.reason = ""
        self._hardware, self._entrant = hardware, entrant
        self._requests, self._own = entrant.requests, entrant.requests.own
        self._holds = cache(self._look)  # the search may come to an amount again
        self._seems = cache(self._first_look)
        self._served: tuple[OperatingPoint, ...] = ()
        self._matter: bool | None = None
        self._missed: Run | None = None  # at the least that is not held
        self._missed_at = math.inf

    def is_able(self) -> bool:
        """Return whether the system serves all requests."""
        engine = self._entrant.configuration.engine
        return not refusal(self._requests.load.base, engine)

    def holds_more_than(self, most: float | None) -> bool:
        """Return whether more is held than by another."""
        if most is None:
            self.search()
            return self.most is not None
        return math.isfinite(most) and self._holds(self._requests.above(most))

    def search(self, near: float = math.inf) -> None:
        """Find the most that is held, which another system holds ``near``."""
        if math.isnan(self._own):
            self.reason = "all requests arrive at once, which is no rate"
            return
        step = self._requests.step
        self._found(
            highest_decided(
                lambda amount: self._seems(step(amount)),
                lambda amount: self._holds(step(amount)),
                self._own,
                below=_BELOW,
                near_per_s=near,
            )
        )

    def search_above(self, most: float | None) -> None:
        """Find the most that is held, above what another budget holds; None: none."""
        if most is not None:
            step, above = self._requests.step, self._requests.above(most)
            self._found(
                highest_rate(lambda amount: self._holds(step(amount)), above, stride=1)
            )

    def _found(self, most: float | None) -> None:
        if most == math.inf:
            what = "rate" if self._requests.users is None else "number of users"
            self.reason = f"holds any {what}: all requests could arrive at once"
            most = None
        self.most = None if most is None else self._requests.step(most)

    def at_own(self) -> None:
        """Simulate the requests' own amount, where the search did not."""
        if not self._served:
            # Steps from another amount may have passed it by.
            run = _run(self._hardware, self._entrant, self._own)
            self._served = (OperatingPoint.of(run, self._own, self._requests),)
            if run.judgement.holds and self.most is not None:
                self.most = max(self.most, self._own)

    def compare_with_true_lengths(self) -> None:
        """Ask whether any request's times are others than with true lengths."""
        hardware = self._hardware
        self._matter = predictions_matter(
            self._requests.at(self._own).trace,
            hardware.deployment(self._entrant),
            self._requests.slo,
            hardware.seed,
            hardware.stopped,
        )

    def result(self) -> Result:
        """Return what is known."""
        return Result(
            self._entrant.configuration,
            self._served,
            self.most,
            self.reason,
            self.binding,
            self._matter,
        )

    @property
    def binding(self) -> str:
        """What keeps the system from more."""
        return "" if self._missed is None else binding_setting(self._missed)

    def _first_look(self, amount: float) -> bool:
        """Return whether the first sample alone keeps the SLO, below capacity."""
        try:
            run = _run(self._hardware, self._entrant, amount, first_only=True, told=())
        except HostFullError:
            return False
        return run.judgement.seems_held

    def _look(self, amount: float) -> bool:
        is_own = amount == self._own
        try:
            told = METRICS if is_own else ()
            run = _run(self._hardware, self._entrant, amount, told=told)
        except HostFullError as error:
            self.reason = str(error) if is_own else self.reason
            return False
        if is_own:
            self._served = (OperatingPoint.of(run, amount, self._requests),)
        is_held = run.judgement.holds
        if not is_held and amount < self._missed_at:
            self._missed, self._missed_at = run, amount
        return is_held


def _run(
    hardware: Hardware,
    entrant: Entrant,
    amount: float,
    *,
    first_only: bool = False,
    told: tuple[str, ...] = METRICS,
) -> Run:
    """Return a run with the distributions of the times that are told of."""
    requests, stopped = entrant.requests, hardware.stopped
    how = Judging(hardware.seed, told, BUDGET_REQUESTS, first_only, stopped=stopped)
    deployment = hardware.deployment(entrant)
    return judged_run(requests.at(amount), requests.slo, deployment, how)
