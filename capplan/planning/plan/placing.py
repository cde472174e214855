"""The placement problem of one heartbeat of a trace or snapshot, and its solution."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.errors import HorizonWarning, InputError, warn
from capplan.placement.mip import solve
from capplan.placement.problem import PlacementProblem
from capplan.placement.replay import Replay
from capplan.placement.replica import PlacementReplica, replica_of_tables
from capplan.placement.result import Placement
from capplan.placement.snapshot import read_snapshot
from capplan.planning.configure.configuration import configurations, given_configuration
from capplan.planning.configure.pipeline import refuse_stages
from capplan.planning.load.traffic import read_traffic
from capplan.planning.plan.told import Told
from capplan.planning.settings.place import PlaceSettings
from capplan.routing import GAMMA
from capplan.simulator.checks import oversized
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

PAPER_THETA = 0.9
"""Aladdin's margin where prefill and decode do not share iterations."""
HEARTBEAT_S = 1.0
TIME_LIMIT_S = 20.0
MOST_REQUESTS = 20_000
"""Requests of a plan's trace in which the peak heartbeat is sought."""

_FILLED = 3.0
"""Stays of a request after which a fleet that began empty is full."""


class Placed(NamedTuple):
    """A placement, and the problem that it solves."""

    problem: PlacementProblem
    placement: Placement


def place(settings: PlaceSettings) -> Placed:
    """Return the placement problem that the settings describe, and its solution."""
    problem = placement_problem(settings)
    found = solve(problem, settings.solver, settings.time_limit_s, seed=settings.seed)
    return Placed(problem, found)


def placement_problem(settings: PlaceSettings) -> PlacementProblem:
    """Return the requests of the snapshot, or of one heartbeat of the trace."""
    slo = settings.slo_of_requests()
    shares = {"gamma": settings.gamma, "theta": settings.theta}
    if settings.snapshot is not None:
        named = settings.llm is not None or settings.latency_ms is not None
        template = _template(_only_configuration(settings)) if named else None
        limits = None if slo is None else slo.default
        constraints = _given(shares | {"max_replicas": settings.max_replicas})
        return read_snapshot(Path(settings.snapshot), template, limits, **constraints)
    if slo is None:
        raise InputError("no SLO; give --slo ttft=1s,tpot=30ms")
    template = _template(_only_configuration(settings))
    trace = read_traffic(settings, np.random.default_rng(settings.seed)).trace
    if trace.images.any():
        raise InputError(
            f"{trace.source}: images are not modelled in a placement; expected "
            "requests without, or capplan plan"
        )
    strictest = slo.strictest(trace.class_names)
    heartbeat = _heartbeat(
        template,
        trace,
        strictest,
        settings.heartbeat_s,
        settings.at_s,
        **_given(shares),
    )
    _warn_while_filling(trace, strictest, heartbeat.at_s)
    if heartbeat.problem is None:
        raise InputError(
            f"{trace.source}: no requests {heartbeat.at_s:g} s after the first"
        )
    return replace(
        heartbeat.problem,
        max_replicas=settings.max_replicas,
        source=f"{trace.source} at {heartbeat.at_s:g} s",
    )


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _only_configuration(settings: PlaceSettings) -> Configuration:
    configuration = given_configuration(settings)
    if configuration is not None:
        return configuration
    refuse_stages(settings, "place")
    tried = list(configurations(settings))
    if len(tried) != 1:
        names = ", ".join(f"{candidate.gpu} TP {candidate.tp}" for candidate in tried)
        raise InputError(
            f"a placement is on one kind of replica; give one --gpu and one --tp of "
            f"{names}"
        )
    candidate = tried[0]
    if not isinstance(candidate, Configuration):
        raise InputError(f"{candidate.gpu} TP {candidate.tp}: {candidate.reason}")
    return candidate


def _template(configuration: Configuration) -> PlacementReplica:
    engine = configuration.engine
    if engine.bounded_groups:
        warn(
            "the placement counts the KV of layers with full attention; that of "
            "windows and states comes on top"
        )
    return replica_of_tables(
        configuration.tables,
        engine.kv_capacity_tokens,
        block_tokens=engine.block_size,
        max_batch=engine.max_num_seqs,
    )


@dataclass(frozen=True, eq=False)
class _Heartbeat:
    """A heartbeat of a trace that best fit serves."""

    at_s: float
    problem: PlacementProblem | None
    best_fit_count: int  # replicas best fit then has in use; 0 where unknown


def _heartbeat(
    template: PlacementReplica,
    trace: Trace,
    slo: RequestSlo,
    heartbeat_s: float,
    at_s: float | None = None,
    **constraints: float,
) -> _Heartbeat:
    """Return the heartbeat at a time, or with ``at_s`` None the one at the peak."""
    fleet = Replay(template, trace, (slo.ttft_s, slo.mean_gap_s), **constraints)
    most, peak = (0, 0), _Heartbeat(0.0 if at_s is None else at_s, None, 0)
    for count, (now_s, new) in enumerate(fleet.heartbeats(heartbeat_s), 1):
        if at_s is not None and now_s >= at_s:
            return replace(peak, problem=fleet.problem(new, now_s))
        problem = fleet.place(new, now_s)
        used = fleet.advance(now_s, heartbeat_s)
        # Only new requests open replicas: a heartbeat without any is no peak.
        if at_s is None and len(new) and (used, len(new)) >= most:
            most, peak = (
                (used, len(new)),
                _Heartbeat(count * heartbeat_s, problem, used),
            )
    return peak


def _warn_while_filling(trace: Trace, slo: RequestSlo, at_s: float) -> None:
    stay_s = slo.ttft_s + slo.mean_gap_s * float(trace.output_tokens.mean())
    if at_s < _FILLED * min(stay_s, slo.e2e_s) < np.inf:
        warn(
            f"{at_s:g} s after the first request the fleet is still filling: "
            f"requests may stay {stay_s:.3g} s each, so a steady fleet needs more",
            HorizonWarning,
        )


@dataclass(frozen=True)
class PeakHeartbeat:
    """Exact placement of the heartbeat in which best fit uses most replicas."""

    gpu: str
    tp: int
    at_s: float  # since the first arrival [s]
    heartbeat_s: float  # requests that arrive within it are placed together [s]
    new_requests: int  # to place
    ongoing_requests: int  # keep their replica
    status: str  # "optimal", "feasible", "infeasible" or "unknown"
    replica_count: int | None  # of the exact placement; None without one
    lower_bound: int  # on the replicas, under the same constraints
    best_fit_count: int  # replicas that best fit uses
    solver: str
    left_out: int = 0  # requests that miss the SLO even alone on a replica

    def __str__(self) -> str:
        """Return one sentence for the report of a plan."""
        count = "none" if self.replica_count is None else str(self.replica_count)
        return (
            f"heartbeat at {self.at_s:g} s ({self.new_requests} new and "
            f"{self.ongoing_requests} ongoing requests): {count} replicas by the MIP "
            f"({self.status}, at least {self.lower_bound}), "
            f"{self.best_fit_count} by best fit, under Aladdin's constraints for that "
            "one moment; the plan takes what holds when simulated"
            + (f"; {self.left_out} too slow alone left out" if self.left_out else "")
        )


def placement_of(told: Told) -> PeakHeartbeat | None:
    """Return the placement of a plan's peak heartbeat; None without a solver."""
    inputs, solver = told.inputs, told.inputs.solver
    if solver is None or not told.may_vary:
        return None
    told.progress(f"placing the peak heartbeat ({solver})")
    return peak_heartbeat(
        told.prospect.configuration,
        inputs.trace,
        inputs.slo,
        solver=solver,
        seed=told.settings.seed,
    )


def peak_heartbeat(
    configuration: Configuration, trace: Trace, slo: Slo, *, solver: str, seed: int
) -> PeakHeartbeat | None:
    """Place the heartbeat in which best fit uses most replicas; None without requests.

    Best fit serves the trace and opens a replica when none fits. The heartbeat with
    most replicas, and among those with most new requests, is then placed exactly; its
    ongoing requests keep their replica (Aladdin, section 4.2). ``solver`` is one of
    ``capplan.placement.solvers.SOLVERS``; the strictest limits of the classes are used.
    """
    strictest = slo.strictest(trace.class_names)
    first = trace.select(np.arange(min(len(trace), MOST_REQUESTS)))
    template = _template(configuration)
    rows = _fit_alone(configuration, template, first, strictest)
    if not len(rows):
        return None
    able = first.select(rows)
    heartbeat = _heartbeat(
        template,
        replace(able, predicted_output_tokens=None),
        strictest,
        HEARTBEAT_S,
        gamma=GAMMA,
        theta=PAPER_THETA,
    )
    problem = heartbeat.problem
    if problem is None:
        return None
    placement = solve(problem, solver, TIME_LIMIT_S, seed=seed)
    return PeakHeartbeat(
        gpu=configuration.gpu,
        tp=configuration.tp,
        at_s=heartbeat.at_s,
        heartbeat_s=HEARTBEAT_S,
        new_requests=int((problem.replica < 0).sum()),
        ongoing_requests=int((problem.replica >= 0).sum()),
        status=str(placement.status),
        replica_count=placement.replica_count,
        lower_bound=placement.lower_bound,
        best_fit_count=heartbeat.best_fit_count,
        solver=solver,
        left_out=len(first) - len(able),
    )


def _fit_alone(
    configuration: Configuration,
    template: PlacementReplica,
    trace: Trace,
    slo: RequestSlo,
) -> np.ndarray:
    """Return the rows that satisfy Aladdin's constraints alone on a replica."""
    tables = configuration.tables
    prefill_s = template.prefill_fixed_s + template.prefill_work_s(trace.prompt_tokens)
    context = trace.prompt_tokens + GAMMA * trace.output_tokens
    spare_s = PAPER_THETA * (slo.mean_gap_s - tables.decode_s[1])
    return np.flatnonzero(
        (prefill_s <= slo.ttft_s)
        & (tables.decode_context_s[1] * context <= spare_s)
        & ~oversized(trace, configuration.engine)
    )
