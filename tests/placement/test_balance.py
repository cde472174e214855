"""Balanced placements: valid, down to the bound, and on instances only they decide."""

import numpy as np
import pytest

from capplan.placement import mip
from capplan.placement.balance import balance, watched_iterations
from capplan.placement.integer_units import integer_units
from capplan.placement.mip import solve
from capplan.placement.problem import PlacementProblem, violations
from capplan.placement.replica import affine_replica
from capplan.placement.result import Status
from capplan.placement.volume_bound import volume_bound


def many(n, seed, **changes):
    """Return requests of log-normal lengths on replicas with a linear decode limit."""
    rng = np.random.default_rng(seed)
    values = dict(fixed_s=0.0075, request_s=2e-4, context_s=2e-7, max_batch=512)
    values |= dict(prefill_fixed_s=0.008, prefill_s_per_token=2e-5)
    return PlacementProblem(
        affine_replica(60_000, **values),
        np.clip(rng.lognormal(5, 1.2, n).astype(int), 1, 3000),
        np.clip(rng.lognormal(5, 1.0, n).astype(int), 1, 1500),
        np.full(n, 2.0),
        np.full(n, 0.015),
        **changes,
    )


def test_balance_proves_an_instance_too_large_for_a_model_optimal(monkeypatch):
    problem = many(2500, 0)

    balanced = solve(problem)
    monkeypatch.setattr(mip, "_squeeze", lambda *_: None)
    without = solve(problem)

    assert balanced.status == Status.OPTIMAL
    assert balanced.found_by == "balance"
    assert without.status == Status.FEASIBLE
    assert without.replica_count > balanced.replica_count


@pytest.mark.slow
@pytest.mark.parametrize("n", [4000, 12_000])
def test_thousands_of_requests_reach_the_bound(n):
    placement = solve(many(n, 1), time_limit_s=120)

    assert placement.gap <= 0.01
    assert violations(many(n, 1), placement.assignment) == []


def test_balance_leaves_ongoing_requests_where_they_are():
    fresh = many(300, 3)
    held = np.flatnonzero(fresh.predicted_output_tokens > 60)[:20]
    generated, replica = np.zeros(300, int), np.full(300, -1)
    generated[held] = 50
    replica[held] = np.arange(20) % 4
    problem = many(300, 3, generated_tokens=generated, replica=replica, replica_count=4)

    assignment = balance(problem, integer_units(problem), 14)

    assert violations(problem, assignment) == []
    assert (assignment[held] == replica[held]).all()
    assert len(np.unique(assignment)) <= 14


@pytest.mark.parametrize("seed", range(960, 990))
def test_no_balanced_placement_is_below_the_optimum(
    seed, small_problem, fewest_replicas
):
    problem = small_problem(seed)
    fewest = fewest_replicas(problem)
    units = integer_units(problem)

    for count in range(max(len(problem.ongoing_replicas), 1), fewest + 2):
        assignment = balance(problem, units, count, steps=200, seed=seed)
        assert assignment is None or count >= fewest
        if assignment is not None:
            assert violations(problem, assignment) == []
            assert len(np.unique(assignment)) <= count


def halves():
    """Return requests of 11 and 9 of 20 tokens of KV: pairs fill three replicas."""
    replica = affine_replica(
        20, fixed_s=0.001, request_s=0, context_s=1e-9, max_batch=99
    )
    sizes = np.array([11, 9, 11, 9, 11, 9])
    return PlacementProblem(replica, sizes - 1, np.ones(6, int), np.ones(6), np.ones(6))


def test_a_replica_of_a_larger_placement_is_emptied_by_moves_and_swaps():
    problem = halves()
    start = np.array([0, 1, 2, 1, 3, 4])

    assignment = balance(
        problem, integer_units(problem), 3, start=start, steps=2000, seed=0
    )

    assert violations(problem, assignment) == []
    assert len(np.unique(assignment)) == 3
    assert volume_bound(problem).replicas == 3


def test_no_steps_give_up_where_the_greedy_start_is_overloaded():
    problem = halves()

    assert balance(problem, integer_units(problem), 2) is None


def test_few_completions_are_all_watched_and_many_by_their_density():
    few = np.array([3, 1, 2, 2])
    many_ends = np.concatenate([np.arange(1000), np.full(9000, 500)])

    watched = watched_iterations(many_ends, 50)

    assert watched_iterations(few, 50).tolist() == [1, 2, 3]
    assert len(watched) <= 51
    assert watched[-1] == 999
    assert 500 in watched
