"""One number or two for the times of a fleet's windows."""

import numpy as np
import pytest

from capplan.planning.backtest.fitted import left_out, two_numbers

NOISE = np.array([1.002, 0.999, 1.001, 0.998, 1.0])
ASSUMED_S = np.array([0.006, 0.007, 0.008, 0.010, 0.014])
DESIGN = np.stack([np.ones(5), 1 / ASSUMED_S], axis=1)


def test_two_numbers_come_back_where_loads_are_apart():
    # Hand case: 1.1 × 6 ms and 2 ms beside are 8.6 ms, 1.433 × 6 ms.
    phi = (1.1 + 0.002 / ASSUMED_S) * NOISE

    factor, beside_s = two_numbers(DESIGN, phi, -0.001)

    assert phi[0] / NOISE[0] == pytest.approx(1.433, abs=1e-3)
    assert factor == pytest.approx(1.1, abs=0.01)
    assert beside_s == pytest.approx(0.002, abs=1e-4)
    assert np.abs(left_out(DESIGN, phi) - 1).max() < 0.01


def test_one_factor_stays_where_the_time_beside_may_be_chance():
    assert two_numbers(DESIGN, 1.2 * NOISE, -0.001) is None


def test_one_factor_stays_where_it_is_off_by_less_than_such_a_factor_is_itself():
    """A fleet as assumed, whose windows of little load end 0.4 % apart."""
    phi = 0.95 + 0.0004 / ASSUMED_S

    assert np.abs(left_out(DESIGN[:, :1], phi) - 1).max() > 0.02
    assert two_numbers(DESIGN, phi, -0.001) is not None
    assert two_numbers(DESIGN, 1 + (phi - 1) / 10, -0.001) is None


def test_no_iteration_takes_less_than_its_kernels():
    phi = (1.3 - 0.001 / ASSUMED_S) * NOISE

    assert two_numbers(DESIGN, phi, -0.001)[1] == pytest.approx(-0.001, abs=1e-4)
    assert two_numbers(DESIGN, phi, -0.0005) is None


def test_of_windows_without_a_time_between_tokens_one_factor_is_told():
    assert two_numbers(np.full((5, 2), np.nan), NOISE, -0.001) is None


def test_a_window_left_out_is_predicted_from_the_others():
    found = left_out(np.ones((3, 1)), np.array([1.0, 1.2, 1.4]))

    assert found == pytest.approx([1.3 / 1.0, 1.2 / 1.2, 1.1 / 1.4])


def test_of_one_window_no_error_on_others_is_known():
    assert len(left_out(np.ones((1, 1)), np.array([1.3]))) == 0
