"""Rounding of the placement problem to integers never admits what is not valid."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.placement.integer_units import integer_units
from capplan.placement.problem import PlacementProblem, replica_violations
from capplan.placement.replica import affine_replica


def valid_in_integers(problem, units, rows):
    """Return whether the requests satisfy (b), (c) and (d) in integers."""
    if len(rows) >= units.limit.shape[1]:
        return False
    limit = units.limit[units.tpot_class[rows].min(), len(rows)]
    prefill = units.prefill[rows].sum()
    fits = prefill == 0 or prefill <= units.prefill_ceiling[rows].min()
    return units.context[rows].sum() <= limit and fits


@pytest.mark.parametrize("seed", range(800, 860))
def test_what_is_valid_in_integers_is_valid_and_the_reverse_where_exact(
    seed, small_problem
):
    # Linear iteration times, so that no limit lies within a rounding error of a sum.
    problem = small_problem(seed)
    roomy = replace(problem.template, kv_capacity_tokens=10**6)
    problem = replace(problem, template=roomy)
    units = integer_units(problem)
    rng = np.random.default_rng(seed)

    for _ in range(40):
        rows = np.flatnonzero(rng.random(len(problem)) < 0.5)
        if len(rows) == 0:
            continue
        valid = replica_violations(problem, rows, "0") == []
        in_integers = valid_in_integers(problem, units, rows)
        assert valid or not in_integers
        if units.exact:
            assert in_integers == valid


def some(prompts, gamma=0.5, **prefill):
    n = len(prompts)
    replica = affine_replica(
        10**6, fixed_s=0.01, request_s=0, context_s=1e-6, max_batch=8, **prefill
    )
    return PlacementProblem(
        replica, np.array(prompts), np.full(n, 3), np.ones(n), np.ones(n), gamma=gamma
    )


def test_contexts_are_in_thousandths_of_a_token():
    units = integer_units(some([10, 20]))

    assert units.context.tolist() == [11_500, 21_500]
    assert units.exact


def test_a_gamma_finer_than_a_thousandth_is_not_exact():
    units = integer_units(some([10], gamma=1 / 3000))

    assert units.context.tolist() == [10_001]
    assert not units.exact
    assert "weights rounded up, limits down" in units.scale_text


@pytest.mark.parametrize(
    ("prefill", "unit", "weights", "ceiling"),
    [
        (dict(), "requests", [1, 1], 2),
        (dict(prefill_s_per_token=0.01), "tokens", [10, 20], 30),
        # 10 * 1 ms + 100 * 10 µs and 20 * 1 ms + 400 * 10 µs.
        (
            dict(prefill_s_per_token=1e-3, prefill_s_per_token2=1e-5),
            "ns",
            [11_000_000, 24_000_000],
            35_000_000,
        ),
    ],
)
def test_prefill_counts_in_the_coarsest_unit_that_is_exact(
    prefill, unit, weights, ceiling
):
    units = integer_units(some([10, 20], **prefill))

    assert units.prefill_unit == unit
    assert units.prefill.tolist() == weights
    # One second of TTFT is more than both need; the ceiling is cut at their sum.
    assert units.prefill_ceiling.tolist() == [ceiling, ceiling]


@given(
    prompts=st.lists(st.integers(1, 1000), min_size=1, max_size=9),
    gamma=st.floats(0, 1),
)
def test_a_context_is_rounded_up_by_less_than_a_unit(prompts, gamma):
    problem = some(prompts, gamma)
    exact = 1000 * (problem.prompt_tokens + gamma * problem.predicted_output_tokens)

    units = integer_units(problem)

    assert (units.context >= exact - 2e-3).all()
    assert (units.context < exact + 1).all()
