"""The count beside a guess: against trying every count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.planning.count_ladder import fewest_near


@given(st.integers(1, 80), st.integers(-3, 100), st.integers(1, 60))
def test_it_is_the_fewest_that_holds_wherever_it_begins(fewest, about, most):
    looked = []

    def holds(count):
        looked.append(count)
        return count >= fewest

    found = fewest_near(holds, about, most)

    by_trial = next((count for count in range(1, most + 1) if count >= fewest), None)
    assert found == by_trial
    assert len(set(looked)) == len(looked)
    assert all(1 <= count <= most for count in looked)


@pytest.mark.parametrize("about", [9, 8])
def test_a_right_guess_and_one_too_few_take_two_counts(about):
    looked = []

    fewest_near(lambda count: looked.append(count) or count >= 9, about, 99)

    assert sorted(looked) == [8, 9]


def test_none_is_found_where_none_holds():
    assert fewest_near(lambda count: False, 3, 11) is None
