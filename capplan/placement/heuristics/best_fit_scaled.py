"""Best fit by a norm with each axis scaled by its limit."""

import numpy as np

from capplan.placement.heuristics.greedy import place_by_score
from capplan.placement.heuristics.open_replicas import OpenReplicas
from capplan.placement.problem import PlacementProblem


def scaled_norm(state: OpenReplicas) -> np.ndarray:
    """Return the squared norm of the loads over their limits, shape (count,).

    The loads are the batch over the largest feasible batch, the context over its
    largest limit and the KV now over the capacity.
    """
    limit = state.units.limit[-1]
    most = max(int(np.flatnonzero(limit > 0)[-1]), 1) if (limit > 0).any() else 1
    capacity = state.problem.template.kv_capacity_tokens
    first = state.iterations[0]
    batch = state.batch[: state.count] / most
    context = state.context[: state.count] / max(int(limit.max()), 1)
    kv = 1 - (state.room[: state.count, 0] + first) / capacity
    return batch * batch + context * context + kv * kv


def place(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, in arrival order, on the replica closest to its limits.

    Aladdin's Algorithm 1 with a norm of our own: in the paper's, context in tokens
    outweighs the batch size, and KV does not count.
    """
    return place_by_score(problem, scaled_norm)
