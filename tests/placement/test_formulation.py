"""The integer program: lines in place of tables, and rows only where they can bind."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from capplan.placement.formulation import add_kv_rows, formulate, line_of
from capplan.placement.problem import PlacementProblem, violations
from capplan.placement.replica import affine_replica
from capplan.placement.solvers import SOLVERS, solve_formulation


@given(
    top=st.integers(50, 5000),
    slope=st.floats(0, 60),
    most=st.integers(1, 40),
)
def test_a_line_rounded_down_is_stated_by_a_line(top, slope, most):
    batch = np.arange(most + 1)
    limit = np.floor(top - slope * batch).astype(int)
    assume((limit[1:] >= 0).all())
    limit[0] = 0

    line = line_of(limit)

    assume(line is not None)  # else each batch size has a variable of its own
    scale, toll, right, largest = line
    assert largest == most
    for b in range(1, most + 1):
        allowed = (right - toll * b) // scale
        assert allowed == limit[b]


def test_batches_that_are_too_slow_end_the_line():
    assert line_of(np.array([0, 90, 80, 70, -1, -1]))[3] == 3


@pytest.mark.parametrize(
    "limit",
    [
        [0, 100, 40, 30, 20],  # a step after the first
        [0, 100, -1, 80],  # a batch between two that are fast enough
        [0, -1, -1],  # none
    ],
)
def test_a_table_that_is_no_line_is_not_stated_by_one(limit):
    assert line_of(np.array(limit)) is None


def kv_only(sizes, capacity=100, **changes):
    """Return requests that hold so much KV at their end, one iteration ahead."""
    replica = affine_replica(
        capacity, fixed_s=0.01, request_s=0, context_s=0, max_batch=9
    )
    n = len(sizes)
    values = dict(gamma=0.0, theta=1.0) | changes
    return PlacementProblem(
        replica, np.array(sizes) - 1, np.ones(n, int), np.ones(n), np.ones(n), **values
    )


def names(model, prefix):
    return [row[4] for row in model.rows if row[4].startswith(prefix)]


def test_the_jth_largest_request_goes_to_one_of_the_first_j_replicas():
    model = formulate(kv_only([30, 50, 40]), 3)

    assert model.free.tolist() == [1, 2, 0]
    assert (model.x >= 0).sum(axis=1).tolist() == [1, 2, 3]


def test_kv_is_stated_only_where_requests_can_exceed_it():
    assert names(formulate(kv_only([30, 30]), 1), "e_") == []
    assert names(formulate(kv_only([60, 50]), 1), "e_") == ["e_0_1"]


def test_an_iteration_is_stated_once():
    model = formulate(kv_only([60, 50]), 1, kv_iterations=np.empty(0, int))
    rows = len(model.rows)

    add_kv_rows(model, np.array([1]))
    add_kv_rows(model, np.array([1]))

    assert len(model.rows) == rows + 1


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("sizes", "bins", "status"),
    [([60, 60, 40], 2, "optimal"), ([60, 60, 60], 2, "infeasible")],
)
def test_a_solver_says_whether_so_many_replicas_are_enough(solver, sizes, bins, status):
    model = formulate(kv_only(sizes), bins)

    solution = solve_formulation(model, solver, 10.0)

    assert solution.status == status
    if status == "optimal":
        assignment = model.assignment(solution.values)
        assert violations(model.problem, assignment) == []
        assert round(solution.bound) == 2


def test_constraints_left_out_do_not_bind():
    without_kv = formulate(kv_only([60, 60, 60]), 1, families="bc")

    assert solve_formulation(without_kv, "cp-sat", 10.0).status == "optimal"


def test_ongoing_requests_are_constants_that_take_room():
    model = formulate(ongoing(), 2)

    solution = solve_formulation(model, "cp-sat", 10.0)

    assert model.ongoing == 1
    assert model.replicas.tolist() == [5, 0]
    assert round(solution.bound) == 2
    assert model.assignment(solution.values)[:2].tolist() == [5, 0]


def ongoing():
    """Return 69 of 95 tokens on replica 5, and 40 and 20 to place: 20 fit there."""
    replica = affine_replica(95, fixed_s=0.01, request_s=0, context_s=0, max_batch=9)
    return PlacementProblem(
        replica,
        np.array([68, 39, 19]),
        np.array([2, 1, 1]),
        np.ones(3),
        np.ones(3),
        np.array([1, 0, 0]),
        replica=np.array([5, -1, -1]),
        replica_count=6,
    )


def test_the_tighter_tpot_binds_only_where_its_requests_are():
    # At 20 ms a replica holds 100 tokens, at 30 ms 200; 60 + 60 share only the latter.
    replica = affine_replica(
        999, fixed_s=0.01, request_s=0, context_s=1e-4, max_batch=9
    )
    prompts = np.array([60, 60, 60, 60])

    def fewest(tpots_s):
        problem = PlacementProblem(
            replica, prompts, np.ones(4, int), np.ones(4), tpots_s, gamma=0, theta=1
        )
        return round(solve_formulation(formulate(problem, 4), "cp-sat", 10.0).bound)

    assert fewest(np.full(4, 0.02)) == 4
    assert fewest(np.full(4, 0.03)) == 2
    # The tight one alone, or with nothing above 40: three of 60 fit into 200.
    assert fewest(np.array([0.02, 0.03, 0.03, 0.03])) == 2
    assert fewest(np.array([0.02, 0.02, 0.03, 0.03])) == 3
