"""Routers blind to the constraints: fewest replicas at which they satisfy all."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from capplan import routing
from capplan.errors import InputError
from capplan.placement.problem import PlacementProblem, replica_numbers, violations

Route = Callable[[np.ndarray, int], np.ndarray]
"""``route(waiting per replica, requests) -> row of each request``, in arrival order."""


def route_jsq(waiting: np.ndarray, requests: int) -> np.ndarray:
    """Send each request to the replica with the fewest, the first among equals.

    Aladdin's baseline, section 6.1, with queues counted in requests as in its Figure 3.
    """
    return _one_by_one(waiting, requests, routing.shortest_queue)


def route_by_two_draws(seed: int) -> Route:
    """Send each request to the replica with fewer requests of two drawn at random.

    Aladdin's other baseline, section 6.1.
    """

    def route(waiting: np.ndarray, requests: int) -> np.ndarray:
        # The same draws at every count of replicas: counts are compared on them.
        draws = iter(np.random.default_rng(seed).random((requests, 2)).tolist())
        return _one_by_one(
            waiting, requests, lambda queue: routing.shorter_of_two(queue, *next(draws))
        )

    return route


def route_in_turn(waiting: np.ndarray, requests: int) -> np.ndarray:
    """Send each request to the next replica in turn, first to one without requests."""
    turns = np.arange(requests) + np.count_nonzero(waiting)
    return routing.round_robin(turns, len(waiting))


def _one_by_one(
    waiting: np.ndarray, requests: int, choose: Callable[[list[int]], int]
) -> np.ndarray:
    """Send each request to the row chosen from the queues that those before left."""
    queue = waiting.tolist()
    rows = np.empty(requests, np.int64)
    for request in range(requests):
        rows[request] = row = choose(queue)
        queue[row] += 1
    return rows


def fewest_that_keep_all(problem: PlacementProblem, route: Route) -> np.ndarray:
    """Return the router's assignment at the fewest replicas that satisfy (b) to (e).

    The count grows in steps of 2 % until the placement is valid. Validity is not
    monotone in the count, so each count of the last step is then tried from below.
    """
    problem = replace(problem, max_replicas=None)  # the caller compares the count
    ongoing = problem.ongoing_replicas
    count = max(len(ongoing), 1)
    # Some placements are valid at no count: ongoing requests may leave no time for a
    # prefill, and a router sends them one all the same.
    max_count = 50 * (len(ongoing) + len(problem))
    below = count - 1
    while violations(problem, _routed(problem, route, count)):
        if count >= max_count:
            raise InputError(
                f"{problem.source}: a router that looks at no constraint breaks one "
                f"even with {count} replicas"
            )
        below, count = count, min(count + max(count // 50, 1), max_count)
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


BLIND: dict[str, Callable[[int], Route]] = {
    "jsq": lambda seed: route_jsq,
    "power-of-two": route_by_two_draws,
    "round-robin": lambda seed: route_in_turn,
}
"""Routers by name, of a seed."""
