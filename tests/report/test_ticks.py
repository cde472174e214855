"""Ticks are round, inside the axis, and not too many."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.report.charts.ticks import linear_ticks, log_ticks


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_linear_ticks_are_two_to_six_and_inside(low, span):
    ticks = linear_ticks(low, low + span)

    assert 2 <= len(ticks) <= 6
    assert all(low - span * 1e-6 <= t <= low + span * (1 + 1e-6) for t in ticks)


@given(st.floats(-1e3, 1e3), st.floats(0.1, 1e6))
def test_linear_ticks_are_multiples_of_1_2_or_5_times_a_power_of_ten(low, span):
    ticks = linear_ticks(low, low + span)

    step = ticks[1] - ticks[0]
    digit = step / 10.0 ** math.floor(math.log10(step * 1.001))
    assert min(abs(digit - round_digit) for round_digit in (1, 2, 5)) < 1e-6
    for tick in ticks:
        assert tick / step == pytest.approx(round(tick / step), abs=1e-6)


@given(st.floats(0.1, 1e6))
def test_an_axis_of_a_round_length_has_ticks_at_both_ends(scale):
    power = 10.0 ** math.floor(math.log10(scale))

    ticks = linear_ticks(0, 10 * power)

    assert (ticks[0], ticks[-1]) == (0, pytest.approx(10 * power))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 7, [0, 2, 4, 6]),
        (3, 14, [5, 10]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (5, 5, [5]),
    ],
)
def test_linear_ticks_by_hand(low, high, expected):
    assert linear_ticks(low, high) == pytest.approx(expected)


@given(st.floats(1e-4, 1e3), st.floats(3, 1e6))
def test_log_ticks_stand_inside_rise_and_are_few(low, ratio):
    ticks = log_ticks(low, low * ratio)

    assert ticks == sorted(set(ticks))
    assert all(low * 0.998 <= tick <= low * ratio * 1.002 for tick in ticks)
    assert len(ticks) <= 7
    assert {f"{tick:e}"[0] for tick in ticks} <= set("1235")


@pytest.mark.parametrize(
    ("high", "expected"),
    [
        (100, [1, 2, 5, 10, 20, 50, 100]),
        (1000, [1, 3, 10, 30, 100, 300, 1000]),
        (1e6, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
    ],
)
def test_log_ticks_thin_out_over_many_decades(high, expected):
    assert log_ticks(1, high) == expected
