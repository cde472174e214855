"""The closed form of many decode iterations against adding them up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from capplan.simulator.engine import jump
from capplan.simulator.jit import from_python

decode_time_s = from_python(jump.decode_time_s)
iterations_before = from_python(jump.iterations_before)

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
    past = ticks.map(lambda span_s: -span_s)
    span_s = data.draw(st.sampled_from(ends_s.tolist()) | ticks | past | st.just(0.0))
    expected = min(most, 1 + int(np.searchsorted(ends_s, span_s)))

    assert iterations_before(first_s, slope_s, span_s, most) == expected


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_what_only_compiled_code_calls_says_so():
    with pytest.raises(TypeError, match="decode_time_s is called by compiled code"):
        jump.decode_time_s(1.0, 1.0, 1)
    assert decode_time_s(1.0, 1.0, 1) == 1.0
    with pytest.raises(TypeError, match="decode_time_s is called by compiled code"):
        jump.decode_time_s(1.0, 1.0, 1)
