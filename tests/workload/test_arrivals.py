"""Arrival processes keep their rate and their burstiness; rescaling keeps the shape."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.workload.arrivals import (
    ARRIVALS,
    ArrivalProcess,
    parse_arrivals,
    rescale,
    with_arrivals,
)
from capplan.workload.trace import Trace

PROCESSES = {
    "poisson": "poisson",
    "gamma": "gamma:cv=2",
    "weibull": "weibull:shape=0.7",
    "constant": "constant",
    "cox": "cox:sigma=0.2/0.3,tau_s=0.5/2",
}

CV_OF_WEIBULL = math.sqrt(math.gamma(1 + 2 / 0.7) / math.gamma(1 + 1 / 0.7) ** 2 - 1)


def assert_mean(replications, expected, z=4.0):
    replications = np.asarray(replications)
    error = replications.std(ddof=1) / np.sqrt(replications.size)
    assert abs(replications.mean() - expected) <= z * error + 1e-9


def requests(n):
    return Trace(np.arange(1, n + 1), np.full(n, 3), source="made up")


def test_every_process_is_under_these_laws():
    assert set(PROCESSES) == set(ARRIVALS)


@pytest.mark.parametrize("text", PROCESSES.values(), ids=PROCESSES)
@settings(deadline=None, max_examples=25)
@given(n=st.integers(1, 400), rate=st.floats(1, 1e4), seed=st.integers(0, 99))
def test_arrivals_never_fall_and_are_as_many_as_asked(text, n, rate, seed):
    rng = np.random.default_rng(seed)

    arrival_s = parse_arrivals(text).arrivals_s(n, rate, rng)

    assert arrival_s.shape == (n,)
    assert arrival_s[0] >= 0
    assert (np.diff(arrival_s) >= 0).all()
    assert np.isfinite(arrival_s).all()


@pytest.mark.parametrize("text", PROCESSES.values(), ids=PROCESSES)
def test_the_mean_rate_is_the_one_asked_for(text):
    process = parse_arrivals(text)
    horizon_s, rate = 60.0, 5.0

    counts = []
    for seed in range(60):
        arrival_s = process.arrivals_s(1200, rate, np.random.default_rng(seed))
        assert arrival_s[-1] > horizon_s
        counts.append((arrival_s < horizon_s).sum())

    # A renewal process seen from one of its points counts (cv² - 1)/2 more.
    cv = {"gamma": 2.0, "weibull": CV_OF_WEIBULL}.get(text.partition(":")[0], 1.0)
    extra = (cv**2 - 1) / 2
    assert_mean(counts, rate * horizon_s + extra)


@pytest.mark.parametrize(
    ("text", "cv"),
    [("poisson", 1), ("gamma:cv=2", 2), ("weibull:shape=0.7", CV_OF_WEIBULL)],
)
def test_gaps_vary_as_the_process_says(text, cv):
    process = parse_arrivals(text)

    squares = []
    for seed in range(40):
        arrival_s = process.arrivals_s(3000, 7.0, np.random.default_rng(seed))
        squares.append(np.mean((np.diff(arrival_s) * 7.0 - 1) ** 2))

    assert_mean(squares, cv**2)


def test_gamma_of_cv_one_is_poisson():
    # Kolmogorov-Smirnov at one in a thousand: 1.95 / sqrt(n).
    n = 20_000
    arrival_s = parse_arrivals("gamma:cv=1").arrivals_s(
        n, 2.0, np.random.default_rng(4)
    )

    gaps = np.sort(np.diff(arrival_s))
    reached = np.arange(1, n) / (n - 1)

    assert np.abs(reached - (1 - np.exp(-2.0 * gaps))).max() < 1.95 / np.sqrt(n)


@pytest.mark.parametrize("text", PROCESSES.values(), ids=PROCESSES)
@settings(deadline=None, max_examples=25)
@given(n=st.integers(1, 50), window_s=st.floats(1, 1e4), seed=st.integers(0, 99))
def test_arrivals_within_a_window_are_as_many_as_asked(text, n, window_s, seed):
    rng = np.random.default_rng(seed)
    if text.startswith("cox"):
        window_s = n / 20.0  # at other rates its steps are refused

    arrival_s = parse_arrivals(text).within_s(n, window_s, rng)

    assert arrival_s.shape == (n,)
    assert arrival_s[0] >= 0
    assert arrival_s[-1] < window_s
    assert (np.diff(arrival_s) >= 0).all()


def test_constant_arrivals_are_evenly_apart():
    arrival_s = parse_arrivals("constant").arrivals_s(5, 4.0, np.random.default_rng(0))

    assert arrival_s.tolist() == [0, 0.25, 0.5, 0.75, 1.0]


def test_a_cox_process_is_burstier_the_longer_one_counts():
    # Variance / mean of counts in w for log-rate OU: 1 + rate/w * integral of
    # (exp(sigma² exp(-|u - v| / tau)) - 1) over [0, w]².
    rate, sigma, tau_s, window_s = 6.0, 0.5, 3.0, 4.0
    process = ArrivalProcess("cox", {"sigma": (sigma,), "tau_s": (tau_s,)})
    lag_s = (np.arange(4000) + 0.5) * window_s / 4000
    correlation = np.exp(sigma**2 * np.exp(-lag_s / tau_s)) - 1
    expected = (
        1 + 2 * rate / window_s * np.mean((window_s - lag_s) * correlation) * window_s
    )

    ratios = []
    for seed in range(30):
        arrival_s = process.arrivals_s(9000, rate, np.random.default_rng(seed))
        windows = int(arrival_s[-1] // window_s)
        counts = np.bincount((arrival_s // window_s).astype(int))[:windows]
        ratios.append(np.mean((counts - rate * window_s) ** 2) / (rate * window_s))

    assert_mean(ratios, expected)


def test_the_same_seed_gives_the_same_arrivals():
    first = with_arrivals(requests(50), 3.0, "gamma:cv=2", np.random.default_rng(9))
    again = with_arrivals(requests(50), 3.0, "gamma:cv=2", np.random.default_rng(9))

    np.testing.assert_array_equal(first.arrival_s, again.arrival_s)
    assert "gamma:cv=2 at 3 requests/s" in first.notes[-1]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1e3), min_size=2, max_size=30), st.floats(0.01, 1e3))
def test_rescaling_sets_the_rate_and_keeps_the_shape(gaps_s, rate):
    arrival_s = 7.0 + np.cumsum([0.5, *gaps_s])
    trace = Trace(np.ones(len(arrival_s)), np.ones(len(arrival_s)), arrival_s=arrival_s)
    if trace.duration_s < 1e-6:
        return

    scaled = rescale(trace, rate)

    assert scaled.rate_per_s == pytest.approx(rate)
    assert scaled.arrival_s[0] == trace.arrival_s[0]
    np.testing.assert_allclose(
        np.diff(scaled.arrival_s) * rate,
        np.diff(trace.arrival_s) * trace.rate_per_s,
        atol=1e-6 * (1 + 1e3 * rate / rate),
    )


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate):
    trace = Trace([1, 1], [1, 1], arrival_s=[0.0, 1.0])

    with pytest.raises(InputError, match="--rate is"):
        with_arrivals(trace, rate, "poisson", np.random.default_rng(0))
    with pytest.raises(InputError, match="--rate is"):
        rescale(trace, rate)


@pytest.mark.parametrize("arrival_s", [None, [2.0, 2.0]])
def test_rescaling_needs_times_that_differ(arrival_s):
    with pytest.raises(InputError, match="no arrivals that differ"):
        rescale(Trace([1, 1], [1, 1], arrival_s=arrival_s), 2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pareto", "unknown arrivals 'pareto'; expected poisson, gamma"),
        ("gamma", "arrivals gamma take cv; given: nothing"),
        ("gamma:cv", "'cv' is no parameter"),
        ("gamma:cv=two", "'cv=two' is no parameter"),
        ("gamma:cv=1,cv=2", "'cv=2' is no parameter"),
        ("gamma:cv=0", "cv is (0.0,); expected more than 0"),
        ("gamma:cv=nan", "cv is (nan,); expected more than 0"),
        ("gamma:shape=2", "arrivals gamma take cv; given: shape"),
        ("poisson:cv=2", "arrivals poisson take nothing; given: cv"),
        ("cox:sigma=1/2,tau_s=1", "differ in number"),
    ],
)
def test_arrivals_that_cannot_be_drawn_are_refused(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        parse_arrivals(text)


@pytest.mark.parametrize("text", PROCESSES.values(), ids=PROCESSES)
def test_a_process_is_written_as_it_is_read(text):
    assert str(parse_arrivals(text)) == text
