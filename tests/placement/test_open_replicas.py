"""The columns that heuristics search, against the constraints checked one by one."""

import numpy as np
import pytest

from capplan.placement.heuristics.greedy import by_falling_share
from capplan.placement.heuristics.open_replicas import OpenReplicas
from capplan.placement.problem import PlacementProblem, replica_violations
from capplan.placement.replica import affine_replica


@pytest.mark.parametrize("seed", range(900, 960))
def test_a_replica_takes_a_request_exactly_where_no_constraint_breaks(
    seed, small_problem
):
    problem = small_problem(seed)
    rng = np.random.default_rng(seed)
    state = OpenReplicas(problem)
    state.open()
    state.open()

    for request in np.flatnonzero(problem.replica < 0).tolist():
        takes = state.hold_kv(state.may_take(request), request)
        judged = [valid_with(problem, state, row, request) for row in range(len(takes))]
        if state.units.exact:
            assert takes.tolist() == judged
        assert all(valid for valid, taken in zip(judged, takes, strict=True) if taken)
        for row in np.flatnonzero(takes)[:1]:
            assert state.holds_kv(int(row), request)
        if takes.any():
            state.add(int(rng.choice(np.flatnonzero(takes))), request)


def valid_with(problem, state, row, request):
    on_row = np.flatnonzero(state.assignment == state.replica[row])
    rows = np.append(on_row, request)
    return replica_violations(problem, rows, "0") == []


def many_iterations(n, block_tokens=1):
    """Return requests with n different ends, more than one chunk of iterations."""
    replica = affine_replica(
        3 * n,
        fixed_s=0.01,
        request_s=0,
        context_s=0,
        max_batch=999,
        block_tokens=block_tokens,
    )
    return PlacementProblem(
        replica, np.full(n, 5), np.arange(1, n + 1), np.ones(n), np.ones(n)
    )


@pytest.mark.parametrize("block_tokens", [1, 16])
def test_kv_is_compared_over_chunks_of_iterations_as_over_all(block_tokens):
    problem = many_iterations(200, block_tokens)
    state = OpenReplicas(problem)
    row = state.open()

    for request in np.random.default_rng(0).permutation(200).tolist():
        takes = state.hold_kv(state.may_take(request), request)[row]
        assert takes == valid_with(problem, state, row, request)
        if takes:
            state.add(row, request)

    assert 0 < state.batch[row] < 200


def test_new_replicas_take_the_lowest_numbers_that_are_free():
    replica = affine_replica(99, fixed_s=0.01, request_s=0, context_s=0, max_batch=9)
    ones = np.ones(2, int)
    problem = PlacementProblem(
        replica, ones, ones * 9, ones, ones, ones, ones, [3, 1], replica_count=4
    )

    state = OpenReplicas(problem)
    for _ in range(3):
        state.open()

    assert state.replica[: state.count].tolist() == [1, 3, 0, 2, 4]


def test_more_replicas_than_allocated_keep_their_loads():
    problem = many_iterations(40)
    state = OpenReplicas(problem)

    for request in range(40):
        state.add(state.open(), request)

    assert state.assignment.tolist() == list(range(40))
    assert (state.batch[:40] == 1).all()


def test_the_largest_share_of_any_limit_decides_the_order():
    # Shares of 100 tokens of KV and of 90 ms of TTFT less 20: 30 %, 14/70, 70 %.
    replica = affine_replica(
        100,
        fixed_s=0.01,
        request_s=0,
        context_s=0,
        max_batch=9,
        prefill_fixed_s=0.02,
        prefill_s_per_token=0.001,
    )
    problem = PlacementProblem(
        replica,
        np.array([10, 14, 49]),
        np.array([20, 1, 1]),
        np.full(3, 0.09),
        np.ones(3),
    )

    assert by_falling_share(problem).tolist() == [2, 0, 1]
