"""Best fit, largest requests first."""

import numpy as np

from capplan.placement.heuristics.best_fit_scaled import scaled_norm
from capplan.placement.heuristics.greedy import by_falling_share, place_by_score
from capplan.placement.problem import PlacementProblem


def place(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, largest share first, on the fullest replica it fits on.

    Fullness is the norm with each axis scaled by its limit.
    """
    return place_by_score(problem, scaled_norm, by_falling_share(problem))
