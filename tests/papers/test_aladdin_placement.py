"""Aladdin (arXiv:2405.06856): the worked figure and the algorithms of section 4."""

import numpy as np

from capplan.placement.heuristics.blind import route_jsq as route
from capplan.placement.mip import solve
from capplan.placement.problem import (
    PlacementProblem,
    kv_over_iterations,
    replica_violations,
    violations,
)
from capplan.placement.replica import affine_replica


def figure_3():
    """Return Figure 3: two long prompts and two long answers in turn, KV 9.

    The text gives the sums only: 10 for two of a kind, 7 for one of each. Prompt 4
    with answer 1, and prompt 1 with answer 4, is what makes both true.
    """
    replica = affine_replica(9, fixed_s=0.01, request_s=0, context_s=1e-6, max_batch=8)
    return PlacementProblem(
        replica,
        np.array([4, 1, 4, 1]),
        np.array([1, 4, 1, 4]),
        np.ones(4),
        np.ones(4),
    )


def peaks(problem, assignment):
    return [
        int(kv_over_iterations(problem, np.flatnonzero(assignment == i))[1].max())
        for i in np.unique(assignment)
    ]


def test_figure_3_jsq_needs_10_tokens_of_kv_where_9_are_there():
    problem = figure_3()

    jsq = route(np.zeros(2, int), 4)

    assert peaks(problem, jsq) == [10, 10]
    assert [line[:3] for line in violations(problem, jsq)] == ["(e)", "(e)"]


def test_figure_3_optimum_needs_7_tokens_of_kv_on_two_workers():
    problem = figure_3()

    placement = solve(problem)

    assert placement.replica_count == 2
    assert peaks(problem, placement.assignment) == [7, 7]
    assert replica_violations(problem, np.arange(4), "one") != []
