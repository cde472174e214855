"""A plan, frozen: what was asked, candidates, the best and its proof, and parts."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from capplan.bounds.certificate import PLAN_SCHEMA
from capplan.errors import warn
from capplan.fleet.api_price import ApiBill
from capplan.planning.evaluate.candidate import Candidate, Disaggregation
from capplan.planning.evaluate.of_sessions import SessionsServed
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.replica_load import ReplicaLoad, sustained_load
from capplan.planning.evaluate.run import Run
from capplan.planning.load.traffic_over_time import (
    Lengths,
    Traffic,
    lengths_of,
    traffic_over_time,
)
from capplan.planning.load.worst_windows import TimeWindow, WindowWidths, WithoutWindow
from capplan.planning.mix.result import Mix
from capplan.planning.plan.api_bill import api_of
from capplan.planning.plan.beyond_peak import BeyondPeak, beyond_peak_of
from capplan.planning.plan.collapse import Collapse, collapse_of
from capplan.planning.plan.last_replica import (
    LastPoints,
    LastReplica,
    last_points,
    last_replica,
)
from capplan.planning.plan.one_hour import without_window_of
from capplan.planning.plan.placing import PeakHeartbeat, placement_of
from capplan.planning.plan.purchase import Purchase, purchase_of
from capplan.planning.plan.spare_nodes import SpareNodes, spares_of
from capplan.planning.plan.speculation_worth import (
    DraftsTried,
    DraftsWorth,
    drafts_of,
    gpus_without_caching,
)
from capplan.planning.plan.sticky import StickyWorth, sticky_of
from capplan.planning.plan.throughput import Throughput, throughput
from capplan.planning.plan.tier_search import TiersTried
from capplan.planning.plan.told import Told, part
from capplan.planning.prove.proof import certificate_of
from capplan.planning.risk.result import Risk
from capplan.planning.risk.risk import risk_of
from capplan.planning.shown import Shown
from capplan.workload.slo import Slo

NOT_IN_THE_RESULT = {"out", "xlsx", "executor", "ray_address"}
"""Settings that the result does not depend on."""


def _sustained(told: Told) -> ReplicaLoad | None:
    if not told.with_load and told.settings.api is None:
        return None
    return sustained_load(told.inputs, told.run, told.progress)


def _sessions(told: Told) -> SessionsServed | None:
    found = told.run.sessions
    if found is not None and (caution := found.caution()):
        warn(caution)
    return found


def _traffic(told: Told) -> Traffic | None:
    return traffic_over_time(told.inputs.trace) if told.is_timed else None


def _of_probes(told: Told) -> tuple[Run, tuple[Probe, ...], Slo, tuple[str, ...]]:
    slo, names = told.inputs.slo, told.inputs.load.base.class_names
    return told.run, told.best.probes, slo, (*names, *slo.scopes)


def _risk(told: Told) -> Risk | None:
    if not told.settings.draws or not told.may_vary:
        return None
    return risk_of(told.inputs, told.best, told.progress)


def _spares(told: Told) -> SpareNodes | None:
    if not told.settings.availability or not told.may_vary:
        return None
    return spares_of(told.inputs, told.best, told.progress)


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
    settings: dict[str, Any] = field(default_factory=dict)  # enough to plan again
    windows: tuple[TimeWindow, ...] = ()  # the worst of each length, of the best
    peak: TimeWindow | None = None  # the busiest, of a trace's own times
    window_widths: tuple[WindowWidths, ...] = ()  # in which the best is judged
    trace_sha256: str | None = None  # of the file's content; None: a shipped workload
    profiles_sha256: str | None = None  # of the user's; None: those that ship
    asked_by: str | None = None  # users who wait for their answers; None: arrivals
    interrupted: bool = False  # then not all configurations were simulated
    # where disaggregated prefill and decode are planned too: the best of each kind
    best_aggregated: Candidate | None = None
    best_disaggregated: Candidate | None = None
    disaggregation: Disaggregation | None = None  # None: not asked for
    mix: Mix | None = None  # of several kinds of replicas; None: not asked for
    drafts_tried: tuple[DraftsTried, ...] = ()  # where a plan finds their number
    # where a plan finds the size of the tier
    tiers_tried: TiersTried | None = field(default=None, metadata={"said": "tiers"})
    schema: str = PLAN_SCHEMA

    # Parts, each made of the best, and of those before it.
    # what a replica of the best sustains within the SLO; None where not measured
    replica_load: ReplicaLoad | None = part(_sustained)
    beyond_peak: BeyondPeak | None = part(beyond_peak_of)
    traffic: Traffic | None = part(_traffic)  # None where its times are drawn
    # of all requests, then of each class
    lengths: tuple[Lengths, ...] = part(lambda told: lengths_of(told.inputs.trace), ())
    throughput: tuple[Throughput, ...] = part(
        lambda told: throughput(told.run, told.plan.replica_load, told.plan.traffic), ()
    )
    purchase: Purchase | None = part(purchase_of)
    api: ApiBill | None = part(api_of)  # of an API beside it; None: not asked for
    last_replica: LastReplica | None = part(  # None: one fewer misses by more
        lambda told: last_replica(*_of_probes(told))
    )
    # what the last points of attainment cost; None: no large part
    last_points: LastPoints | None = part(lambda told: last_points(*_of_probes(told)))
    without_window: WithoutWindow | None = part(without_window_of)  # None: no single
    certificate: dict[str, Any] | None = part(  # proof of the best
        lambda told: certificate_of(told.inputs, told.best, told.tried)
    )
    # GPUs that the best candidate would need with prefix caching off; None where the
    # requests share no prefix, caching is off, or no count serves
    gpu_count_without_prefix_caching: int | None = part(gpus_without_caching)
    sessions: SessionsServed | None = part(_sessions)
    collapse: Collapse | None = part(  # None: of no count simulated
        lambda told: collapse_of(told.best.probes), said="hits"
    )
    # what it is worth that sessions stay on a replica; None: no sessions
    sticky: StickyWorth | None = part(sticky_of)
    drafts_worth: DraftsWorth | None = part(drafts_of)  # None: no drafts
    risk: Risk | None = part(_risk)  # of draws around the best; None: not asked for
    n_plus_k: SpareNodes | None = part(_spares)  # None: not asked for
    # None without a solver
    placement: PeakHeartbeat | None = part(placement_of, said="placement")

    @property
    def said(self) -> list[tuple[str, str]]:
        """Labels and sentences of the parts that say themselves."""
        labels = {each.name: each.metadata.get("said") for each in fields(self)}
        parts = [(label, getattr(self, name)) for name, label in labels.items()]
        return [(label, str(part)) for label, part in parts if label and part]


def in_full(told: Told) -> Plan:
    """Return a plan with its parts, each made of what was made before it."""
    for each in fields(told.plan):
        if of := each.metadata.get("of"):
            plan = replace(told.plan, **{each.name: of(told)})
            told = told._replace(plan=plan)
    return told.plan
