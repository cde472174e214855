"""Load of each replica of a placement against the limit of each constraint."""

from dataclasses import dataclass

import numpy as np

from capplan.placement.problem import (
    PlacementProblem,
    context_tokens,
    decode_limit_tokens,
    kv_over_iterations,
    prefill_times_s,
    rows_by_replica,
)


@dataclass(frozen=True)
class ReplicaLoad:
    """Loads and limits of one replica."""

    replica: int
    requests: int
    new_requests: int  # those whose prefill is still to come
    context_tokens: float  # (b), weighted [tokens]
    context_limit_tokens: float  # for the tightest TPOT [tokens]
    prefill_s: float  # (c) and (d) [s]
    prefill_limit_s: float  # infinite without new requests [s]
    kv_peak_tokens: int  # (e), most in any future iteration [tokens]
    kv_capacity_tokens: int


def replica_loads(
    problem: PlacementProblem, assignment: np.ndarray
) -> list[ReplicaLoad]:
    """Return the load of every replica in use, by number."""
    return [
        _load(problem, replica, rows) for replica, rows in rows_by_replica(assignment)
    ]


def _load(problem: PlacementProblem, replica: int, rows: np.ndarray) -> ReplicaLoad:
    template = problem.template
    tpot_s = float(problem.tpot_slo_s[rows].min())
    # A batch that the table does not reach is shown beside the last limit it has.
    batch = min(len(rows), template.max_batch)
    prefill_s, ttft_s, saved_limit_s = prefill_times_s(problem, rows)
    _, total = kv_over_iterations(problem, rows)
    return ReplicaLoad(
        replica,
        len(rows),
        int((problem.generated_tokens[rows] == 0).sum()),
        float(context_tokens(problem)[rows].sum()),
        float(decode_limit_tokens(problem, tpot_s)[batch]),
        prefill_s,
        min(ttft_s, saved_limit_s),
        int(total.max()),
        template.kv_capacity_tokens,
    )
