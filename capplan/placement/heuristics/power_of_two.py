"""Power of two choices."""

import numpy as np

from capplan.placement.heuristics.blind import fewest_that_keep_all
from capplan.placement.problem import PlacementProblem
from capplan.routing import shorter_of_two


def place(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Send each request to the replica with fewer requests of two drawn at random.

    The baseline of Aladdin, section 6.1.
    """

    def route(waiting: np.ndarray, requests: int) -> np.ndarray:
        draws = np.random.default_rng(seed).random((requests, 2)).tolist()
        queue = waiting.tolist()
        rows = np.empty(requests, np.int64)
        for request, draw in enumerate(draws):
            rows[request] = row = shorter_of_two(queue, *draw)
            queue[row] += 1
        return rows

    return fewest_that_keep_all(problem, route)
