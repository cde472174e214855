"""One number or two for the times of a fleet's windows."""

import numpy as np
import pytest

from capplan.planning.backtest.fitted import fitted_times

NOISE = np.array([1.002, 0.999, 1.001, 0.998, 1.0])
ASSUMED_S = np.array([0.006, 0.007, 0.008, 0.010, 0.014])


def test_two_numbers_come_back_where_loads_are_apart():
    # Hand case: 1.1 × 6 ms and 2 ms beside are 8.6 ms, 1.433 × 6 ms.
    phi = (1.1 + 0.002 / ASSUMED_S) * NOISE

    times, held_out = fitted_times(phi, ASSUMED_S, are_apart=True)

    assert phi[0] / NOISE[0] == pytest.approx(1.433, abs=1e-3)
    assert times.factor == pytest.approx(1.1, abs=0.01)
    assert times.iteration_s == pytest.approx(0.002, abs=1e-4)
    assert np.abs(held_out - 1).max() < 0.01


def test_one_factor_stays_where_the_time_beside_may_be_chance():
    times, held_out = fitted_times(1.2 * NOISE, ASSUMED_S, are_apart=True)

    assert times.iteration_s == 0
    assert times.factor == pytest.approx(1.2, rel=1e-3)
    # Of the first: the geometric mean of the others over its own.
    others = np.exp(np.log(NOISE[1:]).mean())
    assert held_out[0] == pytest.approx(others / NOISE[0])


def test_loads_that_are_not_apart_have_one_factor():
    phi = 1.1 + 0.002 / ASSUMED_S

    times, _ = fitted_times(phi, ASSUMED_S, are_apart=False)

    assert times == (pytest.approx(np.exp(np.log(phi).mean())), 0)


def test_of_one_window_no_error_on_others_is_known():
    times, held_out = fitted_times(np.array([1.3]), np.array([0.01]), are_apart=False)

    assert times == (pytest.approx(1.3), 0)
    assert len(held_out) == 0
