"""The highest rate that is held: the same wherever its search begins."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.planning.evaluate.highest_rate import STEP, highest_decided, highest_rate

STEPS = st.integers(-60, 90)


def upto(step):
    """Return what holds each rate up to a step, and the rates that it was asked of."""
    asked = []

    @cache
    def holds(rate_per_s):
        asked.append(rate_per_s)
        return rate_per_s < STEP ** (step + 0.5)

    return holds, asked


@given(STEPS, st.integers(-15, 15), st.integers(0, 8), STEPS)
def test_where_a_search_begins_changes_no_answer(most, optimism, below, near):
    seems, _ = upto(most + optimism)
    holds, _ = upto(most)

    found = highest_decided(seems, holds, 1.0, below=below, near_per_s=STEP**near)

    assert found == pytest.approx(STEP**most, rel=1e-12)
    assert highest_rate(holds, 1.0) == pytest.approx(found, rel=1e-12)


@given(STEPS, st.integers(0, 15))
def test_from_the_answer_of_a_like_system_two_rates_decide(most, optimism):
    holds, asked = upto(most)

    highest_decided(upto(most + optimism)[0], holds, 1.0, near_per_s=STEP**most)

    assert len(asked) == 2


def test_nothing_is_decided_where_one_sample_shows_that_none_or_any_rate_is_held():
    holds, asked = upto(0)

    assert highest_decided(lambda rate: False, holds, 1.0) is None
    assert highest_decided(lambda rate: True, holds, 1.0) == float("inf")
    assert not asked
