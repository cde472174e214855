"""Best fit by capacity norm: Aladdin's Algorithm 1."""

import numpy as np

from capplan.placement.heuristics.greedy import place_by_score
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


def place(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, in arrival order, on the fullest replica that meets (b) to (e).

    Aladdin, section 4.2, Algorithm 1.
    """
    return place_by_score(problem, capacity_norm)
