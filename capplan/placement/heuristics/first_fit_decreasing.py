"""First fit, largest requests first."""

import numpy as np

from capplan.placement.heuristics.greedy import by_falling_share, place_by_score
from capplan.placement.problem import PlacementProblem


def place(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Put each request, largest share first, on the first replica it fits on.

    Johnson et al., "Worst-case performance bounds for simple one-dimensional packing
    algorithms", SIAM J. Comput. 3 (1974); the size is the largest share of any limit.
    """
    order = by_falling_share(problem)
    return place_by_score(problem, lambda state: -np.arange(state.count), order)
