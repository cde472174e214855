"""The closed form of many decode iterations against adding them up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.simulator.jump import decode_time_s, iterations_before

# Multiples of 2**-10, so that sums have no rounding and ties are exact.
ticks = st.integers(1, 200).map(lambda n: n / 1024)


def test_three_iterations_of_10_12_and_14_seconds_take_36():
    assert decode_time_s(10.0, 2.0, 3) == pytest.approx(36.0)


@given(
    first_s=ticks, slope_s=st.just(0.0) | ticks, most=st.integers(1, 60), data=st.data()
)
def test_the_count_is_the_first_whose_sum_reaches_the_span(
    first_s, slope_s, most, data
):
    ends_s = np.cumsum(first_s + slope_s * np.arange(most))
    span_s = data.draw(st.sampled_from(ends_s.tolist()) | ticks)
    expected = min(most, 1 + int(np.searchsorted(ends_s, span_s)))

    assert iterations_before(first_s, slope_s, span_s, most) == expected
