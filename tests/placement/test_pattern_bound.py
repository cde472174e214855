"""The bound by patterns: never above the optimum, above sums where these fail."""

import time
from dataclasses import replace

import numpy as np
import pytest

from capplan.placement import mip
from capplan.placement.integer_units import integer_units
from capplan.placement.mip import solve
from capplan.placement.pattern_bound import pattern_bound
from capplan.placement.problem import PlacementProblem
from capplan.placement.replica import affine_replica
from capplan.placement.result import Status
from capplan.placement.volume_bound import volume_bound


def bound_of(problem):
    return pattern_bound(problem, integer_units(problem), time.perf_counter() + 20)


@pytest.mark.parametrize("seed", range(500, 530))
def test_patterns_never_claim_more_than_the_optimum(
    seed, small_problem, fewest_replicas
):
    problem = small_problem(seed)

    assert bound_of(problem) <= fewest_replicas(problem)


def tenths(sizes):
    """Return requests of so many hundreds of tokens of a context limit of 1000."""
    replica = affine_replica(
        10**6, fixed_s=0.01, request_s=0, context_s=1e-5, max_batch=9
    )
    n = len(sizes)
    return PlacementProblem(
        replica,
        np.array(sizes) * 100,
        np.ones(n, int),
        np.ones(n),
        np.full(n, 0.02),
        gamma=0.0,
        theta=1.0,
    )


def test_requests_that_fit_with_no_other_count_whole():
    # 33 tenths need 4; but 7 goes with nothing here, and 4 with one other 4.
    problem = tenths([7, 7, 7, 4, 4, 4])

    assert volume_bound(problem).replicas == 4
    assert bound_of(problem) == 5


@pytest.mark.thorough
def test_it_proves_an_instance_optimal_that_is_too_large_for_a_model(monkeypatch):
    # 180 of seven tenths and 180 of four: 180 + 90 replicas; sums say 198. The step
    # of the iteration time after batch 3 makes the limit no line in the batch.
    problem = tenths([7] * 180 + [4] * 180)
    stepped_s = problem.template.decode_s + 0.002 * (np.arange(10) > 3)
    problem = replace(problem, template=replace(problem.template, decode_s=stepped_s))

    proven = solve(problem, time_limit_s=20)
    monkeypatch.setattr(mip, "pattern_bound", lambda *_: 0)
    unproven = solve(problem, time_limit_s=2)

    assert proven.status == Status.OPTIMAL
    assert (proven.replica_count, proven.lower_bound) == (270, 270)
    assert proven.bound_source == "patterns of decode SLO (b)"
    assert unproven.status == Status.FEASIBLE
    assert unproven.lower_bound < 270


def test_a_cover_by_mixed_patterns_is_not_overestimated():
    assert bound_of(tenths([7, 7, 3, 3, 5, 5])) == 3


def test_nothing_is_said_with_ongoing_requests(small_problem):
    seeds = (seed for seed in range(99) if small_problem(seed).replica_count)

    assert bound_of(small_problem(next(seeds))) == 0
