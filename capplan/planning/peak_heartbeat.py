"""The heartbeat that needs most replicas, placed exactly: what a MIP says of a plan."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from capplan.placement.mip import solve
from capplan.placement.replay import replay
from capplan.placement.replica import replica_of_tables
from capplan.placement.result import Placement
from capplan.planning.configuration import Configuration
from capplan.planning.unbatched import unbatched
from capplan.simulator.checks import oversized
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

HEARTBEAT_S = 1.0
TIME_LIMIT_S = 20.0
MOST_REQUESTS = 20_000
"""Requests of the trace among which the heartbeat is sought."""


@dataclass(frozen=True)
class PeakHeartbeat:
    """Aladdin's placement problem where it takes most replicas.

    Parameters
    ----------
    gpu, tp
        The configuration.
    at_s
        When, from the first arrival. [s]
    heartbeat_s
        Requests that arrive within it are placed together. [s]
    new_requests, ongoing_requests
        Requests to place, and those that keep their replica.
    status
        "optimal", "feasible", "infeasible" or "unknown", as the solver says.
    replica_count
        Replicas that the exact placement uses; None without one.
    lower_bound
        No placement that keeps the constraints uses fewer.
    best_fit_count
        Replicas that best fit had in use in that heartbeat.
    solver
        Which solver.
    left_out
        Requests that miss the SLO even alone on a replica, which no placement holds.
    """

    gpu: str
    tp: int
    at_s: float
    heartbeat_s: float
    new_requests: int
    ongoing_requests: int
    status: str
    replica_count: int | None
    lower_bound: int
    best_fit_count: int
    solver: str
    left_out: int = 0

    def __str__(self) -> str:
        """Return what a reader of the plan wants to know of it."""
        count = "none" if self.replica_count is None else str(self.replica_count)
        return (
            f"heartbeat at {self.at_s:g} s ({self.new_requests} new and "
            f"{self.ongoing_requests} ongoing requests): {count} replicas by the MIP "
            f"({self.status}, at least {self.lower_bound}), "
            f"{self.best_fit_count} by best fit, under Aladdin's constraints for that "
            "one moment; the replicas planned are those that pass when simulated"
            + (f"; {self.left_out} too slow alone left out" if self.left_out else "")
        )


def peak_heartbeat(
    one: Configuration,
    trace: Trace,
    slo: Slo,
    *,
    solver: str,
    gamma: float,
    theta: float,
    seed: int,
) -> PeakHeartbeat | None:
    """Place the heartbeat in which best fit uses most replicas; None without one.

    Best fit serves the trace, opening a replica when none fits; the heartbeat with
    most replicas, and most new requests among those, is solved exactly; requests
    that are ongoing then keep their replica (Aladdin, section 4.2).

    Parameters
    ----------
    one
        Configuration of every replica.
    trace, slo
        What is served within what; the strictest limits of the classes are used.
    solver
        One of ``capplan.placement.solvers.SOLVERS``.
    gamma, theta
        Aladdin's share of the output that counts, and margin.
    seed
        Of the solver.
    """
    slos = [slo.of_class(name) for name in trace.class_names]
    strictest = Slo(
        RequestSlo(
            ttft_s=min(limit.ttft_s for limit in slos),
            tpot_s=min(limit.tpot_s for limit in slos),
        )
    )
    first = trace.select(np.arange(min(len(trace), MOST_REQUESTS)))
    rows = _able(one, first, strictest, gamma, theta)
    if not len(rows):
        return None
    able = first.select(rows)
    assert able.arrival_s is not None
    template = replica_of_tables(
        one.tables,
        one.engine.kv_capacity_tokens,
        block_tokens=one.engine.block_size,
        max_batch=one.engine.max_num_seqs,
    )
    options: dict[str, Any] = {
        "arrival_s": able.arrival_s - able.arrival_s[0],
        "prompt_tokens": able.prompt_tokens,
        "output_tokens": able.output_tokens,
        "ttft_slo_s": strictest.of_class("all").ttft_s,
        "tpot_slo_s": strictest.of_class("all").tpot_s,
        "heartbeat_s": HEARTBEAT_S,
        "gamma": gamma,
        "theta": theta,
    }
    whole, _ = replay(template, **options)
    beat = int(np.lexsort((whole.placed, whole.replicas))[-1])
    at_s = (beat + 1) * HEARTBEAT_S
    _, problem = replay(template, until_s=at_s, **options)
    if problem is None:
        return None
    placement: Placement = solve(problem, solver, TIME_LIMIT_S, seed=seed)
    return PeakHeartbeat(
        gpu=one.gpu,
        tp=one.tp,
        at_s=at_s,
        heartbeat_s=HEARTBEAT_S,
        new_requests=int((problem.replica < 0).sum()),
        ongoing_requests=int((problem.replica >= 0).sum()),
        status=str(placement.status),
        replica_count=placement.replica_count,
        lower_bound=placement.lower_bound,
        best_fit_count=int(whole.replicas[beat]),
        solver=solver,
        left_out=len(first) - len(able),
    )


def _able(
    one: Configuration, trace: Trace, slo: Slo, gamma: float, theta: float
) -> np.ndarray:
    """Return the rows that keep Aladdin's constraints alone on a replica."""
    limit = slo.of_class("all")
    alone = unbatched(trace, one.tables, one.engine)
    context = trace.prompt_tokens + gamma * trace.output_tokens
    decode_s = one.tables.decode_s[1]
    spare_s = theta * (limit.tpot_s - decode_s)
    return np.flatnonzero(
        (alone.ttft_s - one.tables.request_s <= limit.ttft_s)
        & (one.tables.decode_context_s[1] * context <= spare_s)
        & ~oversized(trace, one.engine)
    )
