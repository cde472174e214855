"""The solvers against a judge that tries every placement."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.heuristics import HEURISTICS, heuristic
from capplan.placement.lp_export import whole_model, write_model
from capplan.placement.mip import solve
from capplan.placement.problem import PlacementProblem, violations
from capplan.placement.replica import affine_replica
from capplan.placement.result import Status
from capplan.placement.solvers import SOLVERS, solve_formulation
from capplan.placement.volume_bound import volume_bound


def assert_solved(problem, fewest):
    placement = solve(problem, time_limit_s=30.0)

    assert placement.status == Status.OPTIMAL
    assert placement.replica_count == fewest
    assert placement.lower_bound == placement.replica_count
    assert placement.gap == 0
    assert violations(problem, placement.assignment) == []


def assert_solved_by(solver, problem, fewest):
    model = whole_model(problem)

    solution = solve_formulation(model, solver, 30.0)

    assignment = model.assignment(solution.values)
    assert solution.status == "optimal"
    assert round(solution.bound) == fewest
    assert len(np.unique(assignment)) == fewest
    assert violations(problem, assignment) == []


def assert_order(problem, fewest):
    assert volume_bound(problem).replicas <= fewest
    for name in HEURISTICS:
        assignment = heuristic(name)(problem, 0)
        assert violations(problem, assignment) == [], name
        assert len(np.unique(assignment)) >= fewest, name


@pytest.mark.thorough
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(12))
def test_solver_alone_finds_what_trying_every_placement_finds(
    solver, seed, small_problem, fewest_replicas
):
    problem = small_problem(seed)

    assert_solved_by(solver, problem, fewest_replicas(problem))


@pytest.mark.parametrize("seed", range(100, 140))
def test_bound_heuristics_and_solver_together_are_as_exact(
    seed, small_problem, fewest_replicas
):
    problem = small_problem(seed)

    assert_solved(problem, fewest_replicas(problem))


@pytest.mark.parametrize("seed", range(200, 230))
def test_bound_is_at_most_the_optimum_and_every_heuristic_at_least(
    seed, small_problem, fewest_replicas
):
    problem = small_problem(seed)

    assert_order(problem, fewest_replicas(problem))


def fewest_in_file(path):
    """Return the objective of an exported model, by CBC in its own process."""
    import pulp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of PuLP 4
        _, model = pulp.LpProblem.fromMPS(str(path))
        model.solve(pulp.PULP_CBC_CMD(msg=False))
    assert model.sol_status == pulp.LpSolutionOptimal
    return round(sum(v.varValue for v in model.variables() if v.name[:2] == "y_"))


@pytest.mark.parametrize("seed", range(4))
def test_another_solver_finds_the_optimum_in_the_exported_model(
    seed, small_problem, fewest_replicas, tmp_path
):
    problem = small_problem(seed)
    ongoing = len(np.unique(problem.replica[problem.replica >= 0]))

    write_model(problem, tmp_path / "model.mps")

    assert ongoing + fewest_in_file(tmp_path / "model.mps") == fewest_replicas(problem)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_five_hundred_instances_are_solved_as_by_trying_every_placement(
    seed, small_problem, fewest_replicas
):
    problem = small_problem(seed)
    fewest = fewest_replicas(problem)

    assert_solved(problem, fewest)
    for solver in SOLVERS:
        assert_solved_by(solver, problem, fewest)
    assert_order(problem, fewest)


def kv_pairs(count, **more):
    """Return requests of which two fill a replica's KV exactly, three never fit."""
    replica = affine_replica(20, fixed_s=0.01, request_s=0, context_s=1e-6, max_batch=8)
    return PlacementProblem(
        replica,
        np.full(count, 5),
        np.full(count, 5),
        np.ones(count),
        np.ones(count),
        **more,
    )


def test_too_few_replicas_are_infeasible_and_the_conflict_is_named():
    placement = solve(kv_pairs(6, max_replicas=2))

    assert placement.status == Status.INFEASIBLE
    assert placement.assignment is None
    assert placement.lower_bound == 3
    assert placement.conflict == ("at most 2 replicas", "(e) KV capacity")


def test_infeasibility_is_found_by_the_solver_as_well():
    # Seven tokens of prompt and output each: two fit into 20, and 10 * 7 / 20 = 3.5.
    problem = replace(
        kv_pairs(10, max_replicas=4), predicted_output_tokens=np.full(10, 2)
    )

    placement = solve(problem)

    assert volume_bound(problem).replicas == 4
    assert placement.status == Status.INFEASIBLE
    assert placement.conflict == ("at most 4 replicas", "(e) KV capacity")


def test_time_limit_is_not_called_optimal():
    # Three of four 0.4-replica requests fill no replica: volume says 2 for 4.
    problem = replace(kv_pairs(40), predicted_output_tokens=np.full(40, 4))

    placement = solve(problem, time_limit_s=1e-6)

    assert placement.status == Status.FEASIBLE
    assert placement.lower_bound < placement.replica_count
    assert 0 < placement.gap < 1
    assert violations(problem, placement.assignment) == []


def test_unknown_solver_names_the_known_ones():
    with pytest.raises(InputError, match="cp-sat, scip, highs"):
        solve(kv_pairs(2), "gurobi")


def test_time_limit_must_be_positive():
    with pytest.raises(InputError, match="more than 0"):
        solve(kv_pairs(2), time_limit_s=0)
