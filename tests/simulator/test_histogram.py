"""Percentiles from bins are within the stated error of the exact ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.simulator.results.histogram import (
    BINS,
    LEAST_S,
    RELATIVE_ERROR,
    Histogram,
    bin_middles_s,
    bin_of,
)

LEVELS = np.array([0, 0.01, 0.5, 0.9, 0.99, 0.999, 1])


def histogram_of(values_s):
    return Histogram(np.bincount(bin_of(values_s), minlength=BINS), values_s.sum())


def test_the_stated_error_is_below_half_a_percent():
    assert 0.003 < RELATIVE_ERROR < 0.005


@given(st.lists(st.floats(2 * LEAST_S, 1e8), min_size=1, max_size=200))
def test_every_percentile_is_within_the_stated_error(times_s):
    values_s = np.array(times_s)

    found_s = histogram_of(values_s).quantiles_s(LEVELS)

    exact_s = np.quantile(values_s, LEVELS)
    assert np.all(np.abs(found_s - exact_s) <= exact_s * (RELATIVE_ERROR + 1e-12))


@given(st.floats(LEAST_S, 1e9, exclude_max=True))
def test_a_time_lies_within_the_error_of_its_bin(time_s):
    middle_s = bin_middles_s()[bin_of(np.array([time_s]))[0]]

    assert middle_s / time_s - 1 == pytest.approx(0, abs=RELATIVE_ERROR + 1e-12)


@pytest.mark.parametrize("time_s", [0.0, -1e-15, LEAST_S * 0.99])
def test_less_than_a_microsecond_counts_as_nothing(time_s):
    assert bin_middles_s()[bin_of(np.array([time_s]))[0]] == 0


def test_more_than_a_lifetime_falls_into_the_last_bin():
    assert bin_of(np.array([1e300]))[0] == BINS - 1


def test_the_mean_is_exact():
    values_s = np.array([1.0, 2.0, 4.5])

    assert histogram_of(values_s).mean_s == 2.5


def test_nothing_has_no_percentiles():
    empty = Histogram(np.zeros(BINS, np.int64), 0.0)

    assert np.isnan(empty.mean_s)
    assert np.isnan(empty.quantiles_s(LEVELS)).all()
