"""The result of a plan, frozen; the writers in ``report`` only format it."""

from dataclasses import dataclass, field
from typing import Any

from capplan.bounds.certificate import PLAN_SCHEMA
from capplan.fleet.api_price import ApiBill
from capplan.planning.evaluate.candidate import Candidate, Disaggregation
from capplan.planning.evaluate.replica_load import ReplicaLoad
from capplan.planning.load.traffic_over_time import Lengths, Traffic
from capplan.planning.load.worst_windows import TimeWindow, WindowWidths, WithoutWindow
from capplan.planning.mix.result import Mix
from capplan.planning.plan.beyond_peak import BeyondPeak
from capplan.planning.plan.drafts_result import DraftsTried, DraftsWorth
from capplan.planning.plan.last_replica import LastReplica
from capplan.planning.plan.placing import PeakHeartbeat
from capplan.planning.plan.purchase_result import Purchase
from capplan.planning.plan.spare_result import SpareNodes
from capplan.planning.plan.throughput import Throughput
from capplan.planning.risk.result import Risk
from capplan.planning.shown import Shown


@dataclass(frozen=True)
class Assumption:
    """An assumption of the plan."""

    what: str  # the quantity
    value: str  # as text
    source: str
    how: str  # "measured", "fitted", "published", "assumed" or "given"


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Shown):
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
    # the cheapest feasible (without prices by GPUs); without doubts where there is one
    best: Candidate | None = None
    best_by_gpus: Candidate | None = None  # feasible, with the fewest GPUs
    best_estimated: Candidate | None = None  # the cheapest feasible of those in doubt
    infeasible_reason: str | None = None  # why none is feasible and what would be
    runtime_s: float = 0.0  # of the plan [s]
    assumptions: tuple[Assumption, ...] = ()  # sources of the figures
    warnings: tuple[str, ...] = ()  # for the reader
    # that hold for all requests alike, by LIMITS; metrics without one are left out [s]
    slo_limits_s: dict[str, float] = field(default_factory=dict)
    placement: PeakHeartbeat | None = None  # None without a solver
    settings: dict[str, Any] = field(default_factory=dict)  # enough to plan again
    certificate: dict[str, Any] | None = None  # proof of the best candidate
    # GPUs that the best candidate would need with prefix caching off; None where the
    # requests share no prefix, caching is off, or no count serves
    gpu_count_without_prefix_caching: int | None = None
    windows: tuple[TimeWindow, ...] = ()  # the worst of each length, of the best
    peak: TimeWindow | None = None  # the busiest, of a trace's own times
    window_widths: tuple[WindowWidths, ...] = ()  # in which the best is judged
    without_window: WithoutWindow | None = None  # None: not one alone decides
    trace_sha256: str | None = None  # of the file's content; None: a shipped workload
    profiles_sha256: str | None = None  # of the user's; None: those that ship
    asked_by: str | None = None  # users who wait for their answers; None: arrivals
    interrupted: bool = False  # then not all configurations were simulated
    # where disaggregated prefill and decode are planned too: the best of each kind
    best_aggregated: Candidate | None = None
    best_disaggregated: Candidate | None = None
    disaggregation: Disaggregation | None = None  # None: not asked for
    risk: Risk | None = None  # of draws around the best candidate; None: not asked for
    mix: Mix | None = None  # of several kinds of replicas; None: not asked for
    n_plus_k: SpareNodes | None = None  # of the best candidate; None: not asked for
    # what a replica of the best sustains within the SLO; None where not measured
    replica_load: ReplicaLoad | None = None
    beyond_peak: BeyondPeak | None = None
    last_replica: LastReplica | None = None  # None where one fewer misses by more
    traffic: Traffic | None = None  # over time; None where its times are drawn
    lengths: tuple[Lengths, ...] = ()  # of all requests, then of each class
    throughput: tuple[Throughput, ...] = ()  # of the best, and what it could
    purchase: Purchase | None = None  # of the best; None without one
    api: ApiBill | None = None  # of an API beside it; None: not asked for
    drafts_worth: DraftsWorth | None = None  # None: no speculative decoding
    drafts_tried: tuple[DraftsTried, ...] = ()  # where a plan finds their number
    schema: str = PLAN_SCHEMA
