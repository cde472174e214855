"""The worth of knowing more: by hand, and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.planning.risk.worth import losses, worth_of, worth_of_all

NEEDS = st.lists(st.integers(1, 30), min_size=5, max_size=60).map(np.array)
USD = st.floats(0.0, 1e5)


def test_two_draws_by_hand():
    choices, lost_usd = losses(np.array([1, 3]), 10.0, 30.0)

    # One node: nothing, or two missing at 30. Three: two unused at 10, or nothing.
    assert choices.tolist() == [1, 3]
    assert lost_usd.tolist() == [[0.0, 20.0], [60.0, 0.0]]
    assert worth_of_all(lost_usd) == 10.0


@given(NEEDS, USD, USD)
def test_the_best_choice_of_all_numbers_is_one_that_a_draw_needs(needs, over, under):
    _, lost_usd = losses(needs, over, under)

    by_trial = min(
        np.mean([over * max(0, a - need) + under * max(0, need - a) for need in needs])
        for a in range(40)
    )
    assert worth_of_all(lost_usd) == pytest.approx(by_trial, abs=1e-6)


@given(NEEDS, st.floats(1.0, 100.0), st.floats(1.0, 100.0))
def test_the_best_choice_is_the_quantile_of_the_costs(needs, over, under):
    choices, lost_usd = losses(needs, over, under)

    best = choices[lost_usd.mean(axis=0).argmin()]

    share = under / (over + under)
    assert (needs <= best).mean() >= share - 1e-9
    assert (needs < best).mean() <= share + 1e-9


@given(st.data(), NEEDS, USD, USD)
def test_one_input_is_worth_no_less_than_nothing_and_no_more_than_all(
    data, needs, over, under
):
    values = data.draw(
        st.lists(st.floats(-5, 5), min_size=len(needs), max_size=len(needs))
    )
    _, lost_usd = losses(needs, over, under)

    found = worth_of(np.array(values), lost_usd)

    assert 0 <= found <= worth_of_all(lost_usd)


def test_an_input_that_says_everything_is_worth_as_much_as_all():
    values = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], 20)
    needs = np.repeat([2, 4, 7, 9, 20], 20)
    _, lost_usd = losses(needs, 10.0, 90.0)

    assert worth_of(values, lost_usd) == pytest.approx(worth_of_all(lost_usd))


def test_an_input_that_says_nothing_is_worth_little():
    rng = np.random.default_rng(4)
    needs = rng.poisson(20, 2000) + 1
    _, lost_usd = losses(needs, 10.0, 90.0)

    found = worth_of(rng.random(2000), lost_usd)

    assert found < 0.02 * worth_of_all(lost_usd)


def test_an_input_that_says_half_is_worth_what_is_left_by_hand():
    # The need is a or a + 2, each as likely; the input says a, which is 1 or 11.
    rng = np.random.default_rng(6)
    values = rng.permutation(np.repeat([0.0, 1.0], 2000))
    needs = 1 + 10 * values.astype(int) + 2 * rng.integers(0, 2, 4000)
    _, lost_usd = losses(needs, 10.0, 10.0)

    # Without it the best number lies between: (|1-3| + 0 + |3-11| + |13-3|) / 4 × 10.
    assert worth_of_all(lost_usd) == pytest.approx(50.0, rel=0.05)
    # With it 1 or 3, and 11 or 13, are as good as each other: half miss by 2. A fifth
    # of the draws lies across the two, where nothing is known.
    assert worth_of(values, lost_usd) == pytest.approx(0.8 * (50 - 10), rel=0.05)
