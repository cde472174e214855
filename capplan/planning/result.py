"""What a plan says: frozen results that the writers in ``report`` only format."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capplan.bounds.lower_bound import Bound
from capplan.deployment import EngineSettings
from capplan.fleet.price import Price as Price
from capplan.planning.placing import PeakHeartbeat
from capplan.simulator.times import Series as Series

SCHEMA = "capplan.plan/1"


@dataclass(frozen=True)
class Probe:
    """One simulated replica count of a candidate.

    Parameters
    ----------
    replica_count
        Replicas simulated.
    slo_attainment
        Share of the counted requests that attained their SLO.
    slo_attainment_interval
        Its 95 % interval (low, high).
    ttft_p99_s, tpot_p99_s, e2e_p99_s
        99th percentiles. [s]
    meets
        Whether it passes: attainment at or above the target and no drift.
    stable
        Whether the backlog does not grow over the trace.
    """

    replica_count: int
    slo_attainment: float
    slo_attainment_interval: tuple[float, float]
    ttft_p99_s: float
    tpot_p99_s: float
    e2e_p99_s: float
    meets: bool
    stable: bool


@dataclass(frozen=True, eq=False)
class Candidate:
    """One GPU type and tensor-parallel degree, and what it would take.

    Parameters
    ----------
    gpu, tp
        GPU type and tensor-parallel degree.
    status
        "feasible", "infeasible" or "pruned".
    replica_count, gpu_count
        Fewest replicas that meet the SLO, and their GPUs; None unless feasible.
    lower_bound_gpu_count
        No scheduler can do with fewer GPUs of this candidate.
    slo_attainment, slo_attainment_interval, ttft_p99_s, tpot_p99_s
        As simulated at ``replica_count``.
    usd_per_h
        Price of all GPUs; None without a price. [$/h]
    usd_per_million_output_tokens, usd_per_million_total_tokens
        At the planned traffic. [$]
    router
        How requests are spread over the replicas; empty unless feasible.
    binding
        What limits it: "TTFT", "TPOT", "e2e", "KV" or "compute".
    infeasible_reason
        Which SLO fails unbatched and by how much, or what does not fit.
    pruned_reason
        The bound that shows that it cannot win.
    price
        Unit price with its source.
    engine
        Engine settings simulated.
    profile_note
        How the latency was had: measured here, measured elsewhere, estimated.
    latency_error
        Mean relative error of the profile's fit, by phase.
    probes
        All replica counts simulated, ascending; the count below the answer fails.
    quantile_levels, ttft_quantiles_s, tpot_quantiles_s, e2e_quantiles_s
        The latency distribution at ``replica_count``. [s]
    series
        The fleet over time at ``replica_count``.
    bound
        The lower bound with its witness window; None where none was computed.
    bound_note
        Where the lower bound comes from: window and work.
    """

    gpu: str
    tp: int
    status: str
    replica_count: int | None = None
    gpu_count: int | None = None
    lower_bound_gpu_count: int | None = None
    slo_attainment: float | None = None
    slo_attainment_interval: tuple[float, float] | None = None
    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None
    usd_per_h: float | None = None
    usd_per_million_output_tokens: float | None = None
    usd_per_million_total_tokens: float | None = None
    binding: str | None = None
    router: str = ""
    infeasible_reason: str | None = None
    pruned_reason: str | None = None
    price: Price | None = None
    engine: EngineSettings | None = None
    profile_note: str = ""
    latency_error: dict[str, float] = field(default_factory=dict)
    probes: tuple[Probe, ...] = ()
    quantile_levels: np.ndarray | None = None
    ttft_quantiles_s: np.ndarray | None = None
    tpot_quantiles_s: np.ndarray | None = None
    e2e_quantiles_s: np.ndarray | None = None
    series: Series | None = None
    bound: Bound | None = None
    bound_note: str = ""


@dataclass(frozen=True)
class Assumption:
    """One thing the plan rests on.

    Parameters
    ----------
    what, value, source
        The quantity, its value as text, and where it is from.
    how
        "measured", "fitted", "published", "assumed" or "given".
    """

    what: str
    value: str
    source: str
    how: str


@dataclass(frozen=True, eq=False)
class Plan:
    """The answer to "how many GPUs, in what configuration, at what cost".

    Parameters
    ----------
    status
        "feasible" or "infeasible".
    llm
        Model served.
    best
        The cheapest feasible candidate (fewest GPUs where prices are missing).
    best_by_gpus
        The feasible candidate with the fewest GPUs.
    candidates
        All of them, best first.
    infeasible_reason
        Why none is feasible and what would do; None when feasible.
    slo_text, attainment
        The objective.
    trace_source, request_count, rate_per_s, mean_prompt_tokens,
    mean_output_tokens, duration_s
        The workload the figures hold for.
    router, seed, runtime_s
        How it was simulated.
    placement
        What an exact placement says where it takes most replicas; None unless a
        solver was asked for.
    assumptions, warnings
        What it rests on.
    request
        The settings that were asked, enough to plan again.
    certificate
        What proves the best candidate; None when there is none.
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
    infeasible_reason: str | None = None
    runtime_s: float = 0.0
    assumptions: tuple[Assumption, ...] = ()
    warnings: tuple[str, ...] = ()
    slo_limits_s: dict[str, float] = field(default_factory=dict)
    placement: PeakHeartbeat | None = None
    request: dict[str, Any] = field(default_factory=dict)
    certificate: dict[str, Any] | None = None
    schema: str = SCHEMA
