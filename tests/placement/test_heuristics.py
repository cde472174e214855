"""What every heuristic keeps, whatever its rule, and what tells them apart."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.heuristics import HEURISTICS, heuristic
from capplan.placement.heuristics.blind import (
    fewest_that_keep_all,
    route_in_turn,
    route_jsq,
)
from capplan.placement.problem import PlacementProblem, violations
from capplan.placement.replica import affine_replica


@pytest.mark.parametrize("name", HEURISTICS)
@pytest.mark.parametrize("seed", range(300, 325))
def test_a_placement_keeps_every_constraint(name, seed, small_problem):
    problem = small_problem(seed)

    assignment = heuristic(name)(problem, seed)

    assert violations(problem, assignment) == []


@pytest.mark.parametrize("name", HEURISTICS)
def test_a_placement_is_the_same_for_the_same_seed(name, small_problem):
    problem = small_problem(5)

    first, second = (heuristic(name)(problem, 3) for _ in range(2))

    assert first.tolist() == second.tolist()


def kv_only(sizes):
    """Return requests of so many twentieths of a replica, placed by KV alone."""
    replica = affine_replica(
        20, fixed_s=0.001, request_s=0, context_s=1e-9, max_batch=99
    )
    n = len(sizes)
    return PlacementProblem(
        replica, np.array(sizes) - 1, np.ones(n, int), np.ones(n), np.ones(n)
    )


def test_best_fit_takes_the_fullest_that_fits_and_first_fit_the_first():
    # 12 | 9 | then 8: both have room; best fit fills the first to 20.
    problem = kv_only([12, 9, 8, 11])

    assert heuristic("best-fit")(problem, 0).tolist() == [0, 1, 0, 1]


def test_worst_fit_takes_the_emptiest():
    problem = kv_only([12, 9, 5])

    assert heuristic("worst-fit-decreasing")(problem, 0).tolist() == [0, 1, 1]


def test_largest_first_packs_what_arrival_order_does_not():
    problem = kv_only([6, 6, 6, 14, 14, 14])

    assert len(np.unique(heuristic("best-fit")(problem, 0))) == 4
    assert len(np.unique(heuristic("first-fit-decreasing")(problem, 0))) == 3


def test_jsq_evens_out_counts_and_so_needs_more_than_the_sizes():
    # In turn on two, the two of 11 meet; only three keep them apart.
    problem = kv_only([11, 2, 11, 2])

    assert heuristic("jsq")(problem, 0).tolist() == [0, 1, 2, 0]
    assert len(np.unique(heuristic("best-fit")(problem, 0))) == 2


@pytest.mark.parametrize("name", ["jsq", "round-robin"])
@pytest.mark.parametrize("seed", range(330, 345))
def test_a_router_gets_no_more_replicas_than_its_first_valid_placement_takes(
    name, seed, small_problem
):
    problem = small_problem(seed)
    route = {"jsq": route_jsq, "round-robin": route_in_turn}[name]
    ongoing = problem.ongoing_replicas
    free = np.flatnonzero(problem.replica < 0)

    def routed(count):
        others = [i for i in range(99) if i not in ongoing]
        replicas = np.array([*ongoing, *others[: count - len(ongoing)]])
        waiting = np.array([(problem.replica == i).sum() for i in replicas])
        assignment = problem.replica.copy()
        assignment[free] = replicas[route(waiting, len(free))]
        return assignment

    fewest = next(
        count
        for count in range(max(len(ongoing), 1), 99)
        if not violations(problem, routed(count))
    )
    assert heuristic(name)(problem, 0).tolist() == routed(fewest).tolist()


def test_a_router_that_can_never_be_valid_is_refused():
    # The ongoing request has no time to spare, and the router sends it new ones.
    problem = PlacementProblem(
        affine_replica(
            99, fixed_s=0.01, request_s=0, context_s=0, max_batch=9, prefill_fixed_s=0.5
        ),
        np.array([5, 5]),
        np.array([9, 9]),
        np.ones(2),
        np.full(2, 0.02),
        np.array([1, 0]),
        np.array([0.02, 0.0]),
        np.array([0, -1]),
        replica_count=1,
    )

    with pytest.raises(InputError, match="breaks one even with 150 replicas"):
        fewest_that_keep_all(problem, lambda waiting, n: np.zeros(n, int))


def test_an_unknown_heuristic_names_the_known_ones():
    with pytest.raises(InputError, match="best-fit, best-fit-scaled"):
        heuristic("next-fit")
