"""Worst fit, largest requests first."""

import numpy as np

from capplan.placement.heuristics.best_fit_scaled import scaled_norm
from capplan.placement.heuristics.greedy import by_falling_share, place_by_score
from capplan.placement.problem import PlacementProblem


def place(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, largest share first, on the emptiest replica it fits on.

    A replica is opened only when the request fits on no open one.
    """
    order = by_falling_share(problem)
    return place_by_score(problem, lambda state: -scaled_norm(state), order)
