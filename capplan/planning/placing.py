"""From what is asked to a placement: the requests of one moment and their replicas."""

import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import HorizonWarning, InputError
from capplan.placement.integer_units import integer_units
from capplan.placement.problem import PlacementProblem, violations
from capplan.placement.replay import replay
from capplan.placement.replica import PlacementReplica, replica_of_tables
from capplan.placement.result import Placement, Status
from capplan.placement.snapshot import read_snapshot, write_snapshot
from capplan.planning.configuration import (
    Configuration,
    configurations,
    given_configuration,
)
from capplan.planning.settings import PlanSettings
from capplan.planning.traffic import read_traffic
from capplan.workload.slo import RequestSlo, parse_slo

_FILLED = 3.0
"""Stays of a request after which a fleet that began empty is full."""


@dataclass(frozen=True)
class Moment:
    """Which moment is to be placed.

    Parameters
    ----------
    snapshot
        File with the state of the fleet; None to cut it from the trace.
    at_s
        Time in the trace, from its first arrival; None for the heartbeat in which
        best fit uses the most replicas. [s]
    heartbeat_s
        Requests that arrive within it are placed together. [s]
    knobs
        gamma, theta and max_replicas; None where not given.
    """

    snapshot: Path | None = None
    at_s: float | None = None
    heartbeat_s: float = 1.0
    knobs: dict[str, Any] = field(default_factory=dict)


def problem_at(request: PlanSettings, moment: Moment) -> PlacementProblem:
    """Return the placement problem that is asked for.

    Raises
    ------
    InputError
        When there are no requests then, or the replica or the SLO is not known.
    """
    knobs = {name: v for name, v in moment.knobs.items() if v is not None}
    slo = parse_slo(list(request.slo)).default if request.slo else None
    named = request.llm is not None or request.latency_ms is not None
    if moment.snapshot is not None:
        if request.trace or request.workload:
            raise InputError("a snapshot and a trace are both given; expected one")
        template = _template(request) if named else None
        return read_snapshot(moment.snapshot, template, slo, **knobs)
    if slo is None:
        raise InputError("no SLO; give --slo ttft=1s,tpot=30ms")
    return _cut(request, moment, _template(request), slo, knobs)


def _template(request: PlanSettings) -> PlacementReplica:
    one = given_configuration(request) or _only(request)
    return replica_of_tables(
        one.tables,
        one.engine.kv_capacity_tokens,
        block_tokens=one.engine.block_size,
        max_batch=one.engine.max_num_seqs,
    )


def _only(request: PlanSettings) -> Configuration:
    tried = list(configurations(request))
    if len(tried) != 1:
        names = ", ".join(f"{one.gpu} TP {one.tp}" for one in tried)
        raise InputError(
            f"a placement is on one kind of replica; give one --gpu and one --tp of "
            f"{names}"
        )
    one = tried[0]
    if not isinstance(one, Configuration):
        raise InputError(f"{one.gpu} TP {one.tp}: {one.reason}")
    return one


def _cut(
    request: PlanSettings,
    moment: Moment,
    template: PlacementReplica,
    slo: RequestSlo,
    knobs: dict[str, Any],
) -> PlacementProblem:
    """Return a heartbeat of the trace, after best fit placed what came before."""
    trace = read_traffic(request, np.random.default_rng(request.seed)).trace
    assert trace.arrival_s is not None
    start_s = float(trace.arrival_s[0])
    options: dict[str, Any] = {
        "arrival_s": trace.arrival_s - start_s,
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": trace.output_tokens,
        "predicted_output_tokens": getattr(trace, "predicted_output_tokens", None),
        "ttft_slo_s": slo.ttft_s,
        "tpot_slo_s": slo.tpot_s,
        "heartbeat_s": moment.heartbeat_s,
    }
    options |= {name: knobs[name] for name in ("gamma", "theta") if name in knobs}
    until_s = moment.at_s
    if until_s is None:
        whole, _ = replay(template, **options)
        # The heartbeat that needs most, the one with most new requests among those.
        beat = np.lexsort((whole.placed, whole.replicas))[-1]
        until_s = (int(beat) + 1) * moment.heartbeat_s
    stay_s = slo.ttft_s + slo.tpot_s * float(trace.output_tokens.mean())
    if until_s < _FILLED * min(stay_s, slo.e2e_s) < np.inf:
        warnings.warn(
            f"{until_s:g} s after the first request the fleet is still filling: "
            f"requests may stay {stay_s:.3g} s each, so a steady fleet needs more",
            HorizonWarning,
            stacklevel=2,
        )
    _, problem = replay(template, until_s=until_s, **options)
    if problem is None:
        raise InputError(f"{trace.source}: no requests {until_s:g} s after the first")
    return replace(
        problem,
        max_replicas=knobs.get("max_replicas"),
        source=f"{trace.source} at {until_s:g} s",
    )


def placed(
    problem: PlacementProblem, solver: str, time_limit_s: float, seed: int = 0
) -> Placement:
    """Return the placement by a solver or by a heuristic.

    Raises
    ------
    InputError
        When there is no such solver or heuristic.
    SolverError
        When the solver is missing.
    """
    from capplan.placement.heuristics import HEURISTICS, heuristic
    from capplan.placement.mip import solve
    from capplan.placement.solvers import SOLVERS
    from capplan.placement.volume_bound import volume_bound

    if solver in SOLVERS:
        return solve(problem, solver, time_limit_s, seed=seed)
    if solver not in HEURISTICS:
        known = ", ".join((*SOLVERS, *HEURISTICS))
        raise InputError(f"no solver {solver!r}; expected one of {known}")
    start = time.perf_counter()
    units = integer_units(problem)
    assignment = heuristic(solver)(problem, seed)
    count = len(np.unique(assignment))
    bound = volume_bound(problem, units)
    kept = not violations(problem, assignment)
    proven = kept and count == bound.replicas
    status = Status.OPTIMAL if proven else Status.FEASIBLE
    return Placement(
        status=status if kept else Status.UNKNOWN,
        assignment=assignment if kept else None,
        replica_count=count if kept else None,
        lower_bound=bound.replicas,
        bound_source=f"volume of {bound.resource}",
        found_by=solver,
        solver=solver,
        scale=units.scale_text,
        runtime_s=time.perf_counter() - start,
        heuristic_counts={solver: count},
    )


def export_problem(problem: PlacementProblem, path: Path) -> None:
    """Write the model (.lp, .mps) or the snapshot (.json, .csv).

    Raises
    ------
    InputError
        When the suffix is none of these.
    """
    if path.suffix in (".lp", ".mps"):
        from capplan.placement.lp_export import write_model

        write_model(problem, path)
    elif path.suffix in (".json", ".csv"):
        write_snapshot(problem, path)
    else:
        raise InputError(
            f"{path}: suffix is {path.suffix!r}; expected .lp, .mps, .json or .csv"
        )
