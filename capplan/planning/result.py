"""The result of a plan, frozen; the writers in ``report`` only format it."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capplan.bounds.lower_bound import Bound
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.fleet.price import Price
from capplan.planning.classes import ClassResult, few
from capplan.planning.cost import Cost
from capplan.planning.judgement import LEVELS, Attainment
from capplan.planning.launch import Launch
from capplan.planning.placing import PeakHeartbeat
from capplan.planning.run import Run
from capplan.simulator.times import Series

SCHEMA = "capplan.plan/1"


@dataclass(frozen=True)
class Probe:
    """One simulated replica count of a candidate."""

    replica_count: int
    slo_attainment: float  # share of the counted requests
    slo_attainment_interval: tuple[float, float]  # 95 % (low, high)
    ttft_p99_s: float  # [s]
    tpot_p99_s: float  # [s]
    e2e_p99_s: float  # [s]
    meets: bool | None  # None where the samples are too close to call
    stable: bool  # the backlog does not grow over the trace
    missing: tuple[str, ...] = ()  # classes below their target
    sample_count: int = 1  # independent samples simulated
    # arrivals over completions with queues never empty; None: unknown
    utilisation: float | None = None
    classes: tuple[ClassResult, ...] = ()  # where there are several, and not many

    @classmethod
    def of(cls, run: Run) -> "Probe":
        """Return the row of a judged run."""
        judgement = run.judgement
        assert judgement.attainment is not None
        return cls(
            replica_count=run.replica_count,
            slo_attainment=judgement.attainment.share,
            slo_attainment_interval=judgement.attainment.interval,
            ttft_p99_s=judgement.p99_s("ttft_s"),
            tpot_p99_s=judgement.p99_s("tpot_s"),
            e2e_p99_s=judgement.p99_s("e2e_s"),
            meets=judgement.meets,
            stable=judgement.stable,
            missing=judgement.missing,
            sample_count=judgement.sample_count,
            utilisation=judgement.steadiness.known_utilisation,
            classes=few(judgement.classes),
        )


@dataclass(frozen=True, eq=False)
class Candidate:
    """One GPU type and tensor-parallel degree, and the fewest replicas of it."""

    gpu: str
    tp: int  # tensor-parallel degree
    status: str  # "feasible", "infeasible", "pruned" or "interrupted"
    run: Run | None = None  # the fewest that meet the SLO; None unless feasible
    cost: Cost | None = None  # None unless feasible and priced
    decided: bool = False  # whether the samples show that the run meets the SLO
    coarse: bool = False  # the count is found to 10 %: it is no rival to the best
    cut_short: bool = False  # its search was interrupted
    # smaller counts that the samples do not tell from the target
    too_close: tuple[int, ...] = ()
    # keeps it from being smaller: "TTFT", "TPOT", "E2E", "KV" or "none"; None unless
    # feasible
    binding: str | None = None
    # SLO that fails unbatched and by how much, or what does not fit
    infeasible_reason: str | None = None
    # the bound that shows that it cannot win, or how far it came
    pruned_reason: str | None = None
    price: Price | None = None  # of one GPU for an hour, with its source
    engine: EngineSettings | None = None  # as simulated
    kv_dtype: str = ""  # of its KV cache; empty where the user gave the KV blocks alone
    estimated: bool = False  # whether there are doubts
    # latency an estimate, or engines that differ by a factor of two; price a guess
    doubts: tuple[str, ...] = ()
    profile_note: str = ""  # latency: measured here or elsewhere, or estimated
    times_of: str = ""  # engine and version whose times are taken: "vllm 0.13.0"
    latency_source: str = ""  # "measured", "calibrated", "kernel-sum", "estimate", ...
    # what 80 % of such engines carry of what is assumed, (low, high); None: unknown
    carried: tuple[float, float] | None = None
    unmeasured: bool = False  # no engine of this kind was measured
    sweeps: int = 0  # of real engines that this was counted in; 0: by the fit's error
    # mean relative error of the profile's fit, by phase
    latency_error: dict[str, float] = field(default_factory=dict)
    # all counts simulated, ascending; the one below the run fails
    probes: tuple[Probe, ...] = ()
    bound: Bound | None = None  # with its witness window; None where none was computed
    # sample of drawn arrivals whose bound it is, the smallest of several; -1: the mix
    bound_sample: int = 0
    # how to start a replica; None unless feasible, or where no LLM is named
    launch: Launch | None = None

    @classmethod
    def of(
        cls, configuration: Configuration, status: str, bound: Bound | None = None
    ) -> "Candidate":
        """Return a candidate with what is known of its configuration."""
        profile = configuration.profile
        errors = {} if profile is None else profile.errors
        return cls(
            configuration.gpu,
            configuration.tp,
            status,
            price=configuration.price,
            engine=configuration.engine,
            kv_dtype=""
            if configuration.replica is None
            else configuration.replica.kv_dtype,
            estimated=configuration.is_estimated,
            doubts=configuration.doubts,
            profile_note=configuration.note,
            times_of=configuration.times_of,
            latency_source=configuration.latency_source,
            carried=configuration.carried,
            unmeasured=configuration.is_unmeasured,
            sweeps=configuration.sweeps,
            latency_error={
                str(phase): record.held_out_mean_abs or record.mean_abs or 0.0
                for phase, record in errors.items()
            },
            bound=bound,
        )

    @property
    def replica_count(self) -> int | None:
        """Fewest replicas that meet the SLO; None unless feasible."""
        return None if self.run is None else self.run.replica_count

    @property
    def replica_count_range(self) -> tuple[int, int] | None:
        """Replicas that 80 % of such engines need, (low, high); None where unknown.

        With those planned: a plan on the slow side may need more than most engines.
        """
        if self.replica_count is None or self.carried is None or self.unmeasured:
            return None
        low, high = self.carried
        # A hair below: 4 / 0.8 is 5 replicas and not 6.
        fewest, most = (
            max(1, math.ceil(self.replica_count / share - 1e-9))
            for share in (high, low)
        )
        return min(fewest, self.replica_count), max(most, self.replica_count)

    @property
    def gpu_count(self) -> int | None:
        """GPUs of these replicas; None unless feasible."""
        return None if self.run is None else self.run.gpu_count

    @property
    def lower_bound_gpu_count(self) -> int | None:
        """No scheduler meets the SLO with fewer GPUs; None without a bound."""
        return None if self.bound is None else self.bound.replica_count * self.tp

    @property
    def bound_note(self) -> str:
        """Window and work that the lower bound comes from."""
        return "" if self.bound is None else self.bound.note

    @property
    def attainment(self) -> Attainment | None:
        """Attainment of the SLO at these replicas; None unless feasible."""
        return None if self.run is None else self.run.judgement.attainment

    @property
    def slo_attainment(self) -> float | None:
        """Share of the counted requests that meet the SLO."""
        return None if self.attainment is None else self.attainment.share

    @property
    def slo_attainment_interval(self) -> tuple[float, float] | None:
        """Its 95 % interval (low, high)."""
        return None if self.attainment is None else self.attainment.interval

    @property
    def attainment_by_class(self) -> dict[str, float] | None:
        """Attainment by class of the trace."""
        return None if self.attainment is None else self.attainment.by_class

    @property
    def classes(self) -> tuple[ClassResult, ...]:
        """Attainment and latencies by class, where there are several."""
        return () if self.run is None else self.run.judgement.classes

    @property
    def counted_request_count(self) -> int | None:
        """Requests that count, of all samples."""
        return None if self.run is None else self.run.judgement.counted_request_count

    @property
    def sample_count(self) -> int | None:
        """Independent samples simulated; 1 for a trace with its own times."""
        return None if self.run is None else self.run.judgement.sample_count

    @property
    def utilisation(self) -> float | None:
        """Arrival rate over what the replicas complete with queues never empty."""
        if self.run is None:
            return None
        return self.run.judgement.steadiness.known_utilisation

    @property
    def settled(self) -> bool | None:
        """Whether fleets that start empty and full came to the same."""
        return None if self.run is None else self.run.judgement.steadiness.settled

    @property
    def recovery_s(self) -> float | None:
        """Time until a full queue is forgotten; None where it is not known. [s]"""
        return None if self.run is None else self.run.judgement.steadiness.recovery_s

    @property
    def undecided_reason(self) -> str | None:
        """Why the samples do not show that the SLO is met."""
        return None if self.run is None else self.run.judgement.open or None

    @property
    def warmup_s(self) -> float | None:
        """First part of a sample whose requests do not count. [s]"""
        return None if self.run is None else self.run.judgement.warmup_s

    @property
    def cached_share(self) -> float | None:
        """Share of the prompt tokens found in the prefix cache."""
        if self.run is None:
            return None
        totals = self.run.simulation.totals
        return totals.cached_tokens / totals.prompt_tokens

    @property
    def ttft_p99_s(self) -> float | None:
        """99th percentile of the TTFT. [s]"""
        return None if self.run is None else self.run.judgement.p99_s("ttft_s")

    @property
    def tpot_p99_s(self) -> float | None:
        """99th percentile of the TPOT. [s]"""
        return None if self.run is None else self.run.judgement.p99_s("tpot_s")

    @property
    def router(self) -> str:
        """Router of the run; empty unless feasible."""
        return "" if self.run is None else self.run.router

    @property
    def scheduler(self) -> str:
        """Scheduler with its settings; empty where no engine was simulated."""
        return "" if self.engine is None else str(self.engine.scheduler)

    @property
    def launch_line(self) -> str:
        """Command that starts a replica; empty where there is none."""
        return "" if self.launch is None else self.launch.line

    @property
    def caching_unused(self) -> bool:
        """Prefix caching is on, and simulated without: no request shares a prefix."""
        return self.run is not None and self.run.configuration.caching_unused

    @property
    def usd_per_h(self) -> float | None:
        """Price of all GPUs; None without a price. [$/h]"""
        return None if self.cost is None else self.cost.usd_per_h

    @property
    def usd_per_million_output_tokens(self) -> float | None:
        """At the planned traffic. [$]"""
        return None if self.cost is None else self.cost.usd_per_million_output_tokens

    @property
    def usd_per_million_total_tokens(self) -> float | None:
        """At the planned traffic. [$]"""
        return None if self.cost is None else self.cost.usd_per_million_total_tokens

    @property
    def series(self) -> Series | None:
        """The fleet over time."""
        return None if self.run is None else self.run.simulation.series

    @property
    def quantile_levels(self) -> np.ndarray | None:
        """Levels of the latency distributions, shape (levels,)."""
        return None if self.run is None else LEVELS

    @property
    def ttft_quantiles_s(self) -> np.ndarray | None:
        """Distribution of the TTFT at these levels, shape (levels,). [s]"""
        return self._quantiles_s("ttft_s")

    @property
    def tpot_quantiles_s(self) -> np.ndarray | None:
        """Distribution of the TPOT at these levels, shape (levels,). [s]"""
        return self._quantiles_s("tpot_s")

    @property
    def e2e_quantiles_s(self) -> np.ndarray | None:
        """Distribution of the end-to-end time at these levels, shape (levels,). [s]"""
        return self._quantiles_s("e2e_s")

    def _quantiles_s(self, metric: str) -> np.ndarray | None:
        return None if self.run is None else self.run.judgement.quantiles_s[metric]


@dataclass(frozen=True)
class Assumption:
    """An assumption of the plan."""

    what: str  # the quantity
    value: str  # as text
    source: str
    how: str  # "measured", "fitted", "published", "assumed" or "given"


@dataclass(frozen=True, eq=False)
class Plan:
    """How many GPUs, in what configuration, at what cost."""

    status: str  # "feasible", "infeasible" or, with no answer yet, "interrupted"
    llm: str
    candidates: tuple[Candidate, ...]  # all, best first
    slo_text: str  # the objective
    attainment: float  # share of requests that must meet it, of classes without one
    attainment_text: str  # the share asked, of each class that has one of its own
    trace_source: str  # of the workload the figures hold for, as the next five
    request_count: int
    rate_per_s: float  # [requests/s]
    mean_prompt_tokens: float  # [tokens]
    mean_output_tokens: float  # [tokens]
    duration_s: float  # [s]
    router: str  # of the best candidate
    seed: int  # of all draws
    # the cheapest feasible (fewest GPUs where prices are missing), of those without
    # doubts where there are any
    best: Candidate | None = None
    best_by_gpus: Candidate | None = None  # feasible, with the fewest GPUs
    best_estimated: Candidate | None = None  # the cheapest feasible of those in doubt
    infeasible_reason: str | None = None  # why none is feasible and what would be
    runtime_s: float = 0.0  # of the plan [s]
    assumptions: tuple[Assumption, ...] = ()  # sources of the figures
    warnings: tuple[str, ...] = ()  # for the reader
    # that hold for all requests alike [s], by LIMITS; a metric without
    # one, or with one per class, is left out
    slo_limits_s: dict[str, float] = field(default_factory=dict)
    # of the peak heartbeat; None without a solver
    placement: PeakHeartbeat | None = None
    # the settings, enough to plan again
    request: dict[str, Any] = field(default_factory=dict)
    certificate: dict[str, Any] | None = None  # proof of the best candidate
    # GPUs that the best candidate would need with prefix caching off; None where the
    # requests share no prefix, caching is off, or no count serves
    gpu_count_without_prefix_caching: int | None = None
    interrupted: bool = False  # then not all configurations were simulated
    schema: str = SCHEMA
