"""Round robin."""

import numpy as np

from capplan.placement.heuristics.blind import fewest_that_keep_all
from capplan.placement.problem import PlacementProblem
from capplan.routing import round_robin


def route(waiting: np.ndarray, requests: int) -> np.ndarray:
    """Send each request to the next replica in turn, first to one without requests."""
    turns = np.arange(requests) + np.count_nonzero(waiting)
    return round_robin(turns, len(waiting))


def place(problem: PlacementProblem, seed: int = 0) -> np.ndarray:
    """Send the requests to the replicas in turn, without regard to their load."""
    return fewest_that_keep_all(problem, route)
