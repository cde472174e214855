"""Routers blind to the constraints: fewest replicas at which they satisfy all."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from capplan.errors import InputError
from capplan.placement.problem import PlacementProblem, replica_numbers, violations

Route = Callable[[np.ndarray, int], np.ndarray]
"""``route(waiting per replica, requests) -> row of each request``, in arrival order."""


def fewest_that_keep_all(problem: PlacementProblem, route: Route) -> np.ndarray:
    """Return the router's assignment at the fewest replicas that satisfy (b) to (e).

    The count grows in steps of 2 % until the placement is valid. Validity is not
    monotone in the count, so each count of the last step is then tried from below.
    """
    problem = replace(problem, max_replicas=None)  # the caller compares the count
    ongoing = problem.ongoing_replicas
    count = max(len(ongoing), 1)
    most = 50 * (len(ongoing) + len(problem))
    below = count - 1
    while violations(problem, _routed(problem, route, count)):
        if count >= most:
            raise InputError(
                f"{problem.source}: a router that looks at no constraint breaks one "
                f"even with {count} replicas"
            )
        below, count = count, min(count + max(count // 50, 1), most)
    for fewer in range(below + 1, count):
        assignment = _routed(problem, route, fewer)
        if not violations(problem, assignment):
            return assignment
    return _routed(problem, route, count)


def _routed(problem: PlacementProblem, route: Route, count: int) -> np.ndarray:
    replicas = replica_numbers(problem, count)
    waiting = np.array([(problem.replica == replica).sum() for replica in replicas])
    assignment = problem.replica.copy()
    free = np.flatnonzero(assignment < 0)
    assignment[free] = replicas[route(waiting, len(free))]
    return assignment
