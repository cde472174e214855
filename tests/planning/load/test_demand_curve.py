import numpy as np
import pytest

from capplan.errors import InputError
from capplan.planning.load.demand_curve import curve_of_trace, hour_name, typical_curve
from capplan.workload.trace import Trace


def trace(arrival_s):
    ones = np.ones(len(arrival_s), np.int64)
    return Trace(ones, ones, np.sort(np.asarray(arrival_s, np.float64)))


def test_an_hour_has_the_rate_of_its_busiest_ten_minutes():
    steady = np.arange(0, 25 * 3600, 60.0)  # one a minute over 25 hours
    burst = np.full(540, 3 * 3600 + 700.0)  # nine minutes' worth at one moment

    curve = curve_of_trace(trace(np.append(steady, burst)), 600.0)

    assert len(curve.peak_per_s) == 25
    assert curve.peak_per_s[3] == pytest.approx((10 + 540) / 600)
    assert curve.mean_per_s[3] == pytest.approx((60 + 540) / 3600)
    assert curve.peak_per_s[4] == pytest.approx(1 / 60)
    assert curve.busiest_per_s == curve.peak_per_s[3]


def test_the_mean_of_an_hour_hides_its_peak():
    rng = np.random.default_rng(0)
    arrivals = rng.uniform(0, 30 * 3600, 20_000)

    curve = curve_of_trace(trace(arrivals), 600.0)

    assert (curve.peak_per_s[:-1] >= curve.mean_per_s[:-1]).all()
    assert curve.is_short


def test_a_day_and_less_than_a_window_is_a_day():
    curve = curve_of_trace(trace(np.arange(0, 24 * 3600 + 300, 30.0)), 600.0)

    assert len(curve.peak_per_s) == 24
    assert curve.source.startswith("1 day of ")


def test_less_than_a_day_tells_no_hours():
    with pytest.raises(InputError, match="need a day or more"):
        curve_of_trace(trace([0.0, 7200.0]), 600.0)


@pytest.mark.parametrize("window_s", [0.0, 30.0, 700.0, 7200.0])
def test_windows_fill_an_hour(window_s):
    with pytest.raises(InputError, match="a part of an hour"):
        curve_of_trace(trace(np.arange(0, 90_000, 60.0)), window_s)


def test_the_typical_week_peaks_at_the_rate_and_rests_at_the_weekend():
    curve = typical_curve(50.0)
    days = curve.mean_per_s.reshape(7, 24).mean(axis=1)

    assert curve.busiest_per_s == pytest.approx(50.0)
    assert len(curve.peak_per_s) == 168
    # The workload states 0.568 for the mean of a weekend day over that of a weekday.
    assert days[5:].mean() / days[:5].mean() == pytest.approx(0.568, abs=0.005)
    assert curve.is_typical


def test_hours_are_named_by_the_week_or_by_the_trace():
    assert hour_name(39, of_week=True) == "Tue 15:00"
    assert hour_name(39, of_week=False) == "day 2, 15 h"
