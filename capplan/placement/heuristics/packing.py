"""Bin packing: each request on the replica of the highest score that it fits on."""

from collections.abc import Callable

import numpy as np

from capplan.placement.heuristics.greedy import Score, by_falling_share, place_by_score
from capplan.placement.heuristics.open_replicas import OpenReplicas
from capplan.placement.integer_units import UNITS_PER_TOKEN
from capplan.placement.problem import PlacementProblem
from capplan.routing import squared_capacity_norm


def capacity_norm(state: OpenReplicas) -> np.ndarray:
    """Return the squared capacity norm of each open replica, shape (count,)."""
    return squared_capacity_norm(
        state.batch[: state.count], state.context[: state.count] * (1 / UNITS_PER_TOKEN)
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


def best_fit(problem: PlacementProblem) -> np.ndarray:
    """Put each request, in arrival order, on the fullest replica that meets (b) to (e).

    Aladdin, section 4.2, Algorithm 1.
    """
    return place_by_score(problem, capacity_norm)


def _decreasing(score: Score) -> Callable[[PlacementProblem], np.ndarray]:
    """Return what places the largest share of any limit first."""
    return lambda problem: place_by_score(problem, score, by_falling_share(problem))


PACKING: dict[str, Callable[[PlacementProblem], np.ndarray]] = {
    "best-fit": best_fit,
    # A norm of our own: in the paper's, context in tokens outweighs the batch size, and
    # KV does not count.
    "best-fit-scaled": lambda problem: place_by_score(problem, scaled_norm),
    # Johnson et al., "Worst-case performance bounds for simple one-dimensional packing
    # algorithms", SIAM J. Comput. 3 (1974).
    "first-fit-decreasing": _decreasing(lambda state: -np.arange(state.count)),
    "best-fit-decreasing": _decreasing(scaled_norm),
    # On the emptiest that it fits on; a replica is opened only where there is none.
    "worst-fit-decreasing": _decreasing(lambda state: -scaled_norm(state)),
}
"""Heuristics by name: ``place(problem) -> replica of each request``."""
