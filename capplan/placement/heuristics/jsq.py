"""Join the shortest queue."""

import numpy as np

from capplan.placement.heuristics.blind import fewest_that_keep_all
from capplan.placement.problem import PlacementProblem
from capplan.routing import shortest_queue


def route(waiting: np.ndarray, requests: int) -> np.ndarray:
    """Send each request to the replica with the fewest, the first among equals."""
    queue = waiting.tolist()
    rows = np.empty(requests, np.int64)
    for request in range(requests):
        rows[request] = row = shortest_queue(queue)
        queue[row] += 1
    return rows


def place(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Send each request, in arrival order, to the replica with the fewest requests.

    The baseline of Aladdin, section 6.1, with queues counted in requests as in its
    Figure 3.
    """
    return fewest_that_keep_all(problem, route)
