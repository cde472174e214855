"""Loads of replicas: a case worked by hand, and agreement with the constraints."""

import numpy as np
import pytest

from capplan.placement.load import replica_loads
from capplan.placement.problem import PlacementProblem, violations
from capplan.placement.replica import affine_replica


def test_loads_and_limits_of_an_ongoing_and_a_new_request():
    replica = affine_replica(
        100,
        fixed_s=0.010,
        request_s=0.001,
        context_s=0.0001,
        max_batch=8,
        prefill_fixed_s=0.020,
        prefill_s_per_token=0.001,
    )
    problem = PlacementProblem(
        replica,
        np.array([20, 10]),
        np.array([20, 4]),
        np.full(2, 0.1),
        np.full(2, 0.02),
        np.array([5, 0]),
        np.array([0.04, 0.0]),
        np.array([0, -1]),
        replica_count=1,
        theta=1.0,
    )

    (load,) = replica_loads(problem, np.array([0, 0]))

    assert (load.replica, load.requests, load.new_requests) == (0, 2, 1)
    # 20 + 20/2 and 10 + 4/2; 20 ms leave 8 ms at batch 2, 80 tokens.
    assert load.context_tokens == 42
    assert load.context_limit_tokens == pytest.approx(80)
    # 20 + 10 ms; five tokens at 20 ms less 40 ms are tighter than TTFT 100 ms.
    assert load.prefill_s == pytest.approx(0.030)
    assert load.prefill_limit_s == pytest.approx(0.060)
    # 25 + 4 and 10 + 4 four iterations ahead; 40 when the ongoing one ends.
    assert load.kv_peak_tokens == 43


def test_without_new_requests_prefill_has_no_limit():
    replica = affine_replica(100, fixed_s=0.01, request_s=0, context_s=0, max_batch=8)
    one = np.ones(1)
    problem = PlacementProblem(replica, one * 5, one * 5, one, one, one * 2)

    (load,) = replica_loads(problem, np.array([0]))

    assert load.prefill_s == 0
    assert load.prefill_limit_s == np.inf


@pytest.mark.parametrize("seed", range(700, 760))
def test_a_load_is_above_its_limit_exactly_where_a_constraint_is_broken(
    seed, small_problem
):
    problem = small_problem(seed)
    rng = np.random.default_rng(seed)
    assignment = np.where(
        problem.replica >= 0, problem.replica, rng.integers(0, 3, len(problem))
    )

    loads = replica_loads(problem, assignment)

    over = set()
    for load in loads:
        replica = load.replica
        if load.context_tokens > load.context_limit_tokens * (1 + 1e-12):
            over.add((replica, "b"))
        if load.prefill_s > load.prefill_limit_s + 1e-12 * abs(load.prefill_limit_s):
            over.add((replica, "c or d"))
        if load.kv_peak_tokens > load.kv_capacity_tokens:
            over.add((replica, "e"))
    broken = set()
    for line in violations(problem, assignment):
        letter, replica = line[1], int(line.split("replica ")[1].split(":")[0])
        broken.add((replica, "c or d" if letter in "cd" else letter))
    fits = {
        load.replica for load in loads if load.requests <= problem.template.max_batch
    }
    assert {pair for pair in over if pair[0] in fits} == {
        pair for pair in broken if pair[0] in fits
    }
