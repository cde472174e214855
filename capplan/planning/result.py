"""The result of a plan, frozen; the writers in ``report`` only format it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capplan.bounds.lower_bound import Bound
from capplan.deployment import EngineSettings
from capplan.fleet.price import Price
from capplan.planning.configuration import Configuration
from capplan.planning.cost import Cost
from capplan.planning.judgement import LEVELS, Attainment
from capplan.planning.placing import PeakHeartbeat
from capplan.planning.run import Run
from capplan.simulator.times import Series

SCHEMA = "capplan.plan/1"


@dataclass(frozen=True)
class Probe:
    """One simulated replica count of a candidate.

    Parameters
    ----------
    replica_count
        Replicas simulated.
    slo_attainment
        Share of the counted requests that meet their SLO.
    slo_attainment_interval
        Its 95 % interval (low, high).
    ttft_p99_s, tpot_p99_s, e2e_p99_s
        99th percentiles. [s]
    meets
        Whether the SLO is met; None where the samples are too close to call.
    missing
        Classes below their target.
    sample_count
        Independent samples simulated.
    stable
        Whether the backlog does not grow over the trace.
    """

    replica_count: int
    slo_attainment: float
    slo_attainment_interval: tuple[float, float]
    ttft_p99_s: float
    tpot_p99_s: float
    e2e_p99_s: float
    meets: bool | None
    stable: bool
    missing: tuple[str, ...] = ()
    sample_count: int = 1

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
        )


@dataclass(frozen=True, eq=False)
class Candidate:
    """One GPU type and tensor-parallel degree, and the fewest replicas of it.

    Parameters
    ----------
    gpu, tp
        GPU type and tensor-parallel degree.
    status
        "feasible", "infeasible" or "pruned".
    run
        The fewest replicas that meet the SLO, simulated; None unless feasible.
    cost
        Cost of its GPUs; None unless feasible and priced.
    decided
        Whether the samples decided that the run meets the SLO.
    too_close
        Smaller replica counts that the samples do not tell from the target.
    binding
        Limit that keeps it from being smaller: "TTFT", "TPOT", "E2E", "KV" or
        "none"; None unless feasible.
    infeasible_reason
        The SLO that fails unbatched and by how much, or what does not fit.
    pruned_reason
        The bound that shows that it cannot win.
    price
        Unit price with its source.
    engine
        Engine settings simulated.
    estimated
        Whether its latency is an estimate or its price a guess.
    profile_note
        Source of the latency: measured here, measured elsewhere, estimated.
    latency_error
        Mean relative error of the profile's fit, by phase.
    probes
        All replica counts simulated, ascending; the count below the run fails.
    bound
        The lower bound with its witness window; None where none was computed.
    bound_sample
        Sample of drawn arrivals whose bound it is: the smallest of several.
    """

    gpu: str
    tp: int
    status: str
    run: Run | None = None
    cost: Cost | None = None
    decided: bool = False
    too_close: tuple[int, ...] = ()
    binding: str | None = None
    infeasible_reason: str | None = None
    pruned_reason: str | None = None
    price: Price | None = None
    engine: EngineSettings | None = None
    estimated: bool = False
    profile_note: str = ""
    latency_error: dict[str, float] = field(default_factory=dict)
    probes: tuple[Probe, ...] = ()
    bound: Bound | None = None
    bound_sample: int = 0

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
            estimated=configuration.is_estimated,
            profile_note=configuration.note,
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
    def counted_request_count(self) -> int | None:
        """Requests that count, of all samples."""
        return None if self.run is None else self.run.judgement.counted_request_count

    @property
    def sample_count(self) -> int | None:
        """Independent samples simulated; 1 for a trace with its own times."""
        return None if self.run is None else self.run.judgement.sample_count

    @property
    def warmup_s(self) -> float | None:
        """First part of a sample whose requests do not count. [s]"""
        return None if self.run is None else self.run.judgement.warmup_s

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
    """An assumption of the plan.

    Parameters
    ----------
    what, value, source
        The quantity, its value as text, and its source.
    how
        "measured", "fitted", "published", "assumed" or "given".
    """

    what: str
    value: str
    source: str
    how: str


@dataclass(frozen=True, eq=False)
class Plan:
    """How many GPUs, in what configuration, at what cost.

    Parameters
    ----------
    status
        "feasible" or "infeasible".
    llm
        Model served.
    best
        The cheapest feasible candidate (fewest GPUs where prices are missing), of
        those not estimated where there are any.
    best_estimated
        The cheapest feasible candidate of those estimated; None without one.
    best_by_gpus
        The feasible candidate with the fewest GPUs.
    candidates
        All of them, best first.
    infeasible_reason
        Why none is feasible and what would be; None when feasible.
    slo_text, attainment
        The objective.
    trace_source, request_count, rate_per_s, mean_prompt_tokens,
    mean_output_tokens, duration_s
        The workload the figures hold for.
    router, seed, runtime_s
        Router of the best candidate, seed of all draws, time of the plan.
    placement
        Exact placement of the peak heartbeat; None unless a solver was named.
    assumptions, warnings
        Sources of the figures, and texts for the reader.
    request
        The settings, enough to plan again.
    certificate
        Proof of the best candidate; None when there is none.
    slo_limits_s
        Limits that hold for all requests alike, under "ttft", "tpot" and "e2e";
        a metric without one, or with one per class, is left out. [s]
    """

    status: str
    llm: str
    candidates: tuple[Candidate, ...]
    slo_text: str
    attainment: float
    trace_source: str
    request_count: int
    rate_per_s: float
    mean_prompt_tokens: float
    mean_output_tokens: float
    duration_s: float
    router: str
    seed: int
    best: Candidate | None = None
    best_by_gpus: Candidate | None = None
    best_estimated: Candidate | None = None
    infeasible_reason: str | None = None
    runtime_s: float = 0.0
    assumptions: tuple[Assumption, ...] = ()
    warnings: tuple[str, ...] = ()
    slo_limits_s: dict[str, float] = field(default_factory=dict)
    placement: PeakHeartbeat | None = None
    request: dict[str, Any] = field(default_factory=dict)
    certificate: dict[str, Any] | None = None
    schema: str = SCHEMA
