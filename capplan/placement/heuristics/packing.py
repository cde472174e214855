"""Bin packing: each request on the replica of the highest score that it fits on."""

import numpy as np

from capplan.placement.heuristics.greedy import by_falling_share, place_by_score
from capplan.placement.heuristics.open_replicas import OpenReplicas
from capplan.placement.integer_units import UNITS_PER_TOKEN
from capplan.placement.problem import PlacementProblem
from capplan.routing import squared_capacity_norm


def capacity_norm(state: OpenReplicas) -> np.ndarray:
    """Return the squared capacity norm of each open replica, shape (count,)."""
    return squared_capacity_norm(
        state.batch[: state.count],
        state.context[: state.count] * (1 / UNITS_PER_TOKEN),
    )


def scaled_norm(state: OpenReplicas) -> np.ndarray:
    """Return the squared norm of the loads over their limits, shape (count,).

    The loads are the batch over the largest feasible batch, the context over its
    largest limit and the KV now over the capacity.
    """
    # Of the loosest TPOT: one scale for all replicas, whatever is on them.
    limit = state.units.limit[-1]
    max_batch = int(np.flatnonzero(limit > 0).max(initial=1))
    capacity = state.problem.template.kv_capacity_tokens
    batch = state.batch[: state.count] / max_batch
    context = state.context[: state.count] / max(int(limit.max()), 1)
    # ``room`` has the iteration's number taken off; here it is put back.
    kv = 1 - (state.room[: state.count, 0] + state.iterations[0]) / capacity
    return batch * batch + context * context + kv * kv


def best_fit(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, in arrival order, on the fullest replica that meets (b) to (e).

    Aladdin, section 4.2, Algorithm 1.
    """
    return place_by_score(problem, capacity_norm)


def best_fit_scaled(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, in arrival order, on the replica closest to its limits.

    Aladdin's Algorithm 1 with a norm of our own: in the paper's, context in tokens
    outweighs the batch size, and KV does not count.
    """
    return place_by_score(problem, scaled_norm)


def best_fit_decreasing(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, largest share first, on the fullest replica it fits on.

    Fullness is the norm with each axis scaled by its limit.
    """
    return place_by_score(problem, scaled_norm, by_falling_share(problem))


def worst_fit_decreasing(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, largest share first, on the emptiest replica it fits on.

    A replica is opened only when the request fits on no open one.
    """
    order = by_falling_share(problem)
    return place_by_score(problem, lambda state: -scaled_norm(state), order)


def first_fit_decreasing(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, largest share first, on the first replica it fits on.

    Johnson et al., "Worst-case performance bounds for simple one-dimensional packing
    algorithms", SIAM J. Comput. 3 (1974); the size is the largest share of any limit.
    """
    order = by_falling_share(problem)
    return place_by_score(problem, lambda state: -np.arange(state.count), order)
