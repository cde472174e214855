"""Intervals of a share and stability, against cases with a known outcome."""

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from capplan.errors import InputError
from capplan.simulator.results.metrics import (
    requests_needed,
    share_interval,
    standard_errors,
)


def interval_of(hits):
    """Return the interval of hits, each a block of its own."""
    return share_interval(hits.astype(float), np.ones(len(hits)))


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_the_interval_of_independent_hits_covers_their_share(share):
    # 95 % is promised; the variance is floored at that of independent hits, so
    # the count of misses is binomial with at most 5 %: a z-test at 4 errors.
    repeats = 600
    rng = np.random.default_rng(7)

    covered = 0
    for _ in range(repeats):
        low, high = interval_of(rng.random(1500) < share)
        covered += low <= share <= high

    expected = 0.95 * repeats
    assert covered >= expected - 4 * np.sqrt(0.95 * 0.05 * repeats)


def test_the_interval_of_hits_that_come_in_runs_is_wider():
    rng = np.random.default_rng(3)
    runs = np.repeat(rng.random(30) < 0.5, 100)

    low, high = interval_of(runs)
    alone_low, alone_high = interval_of(rng.permutation(runs))

    assert high - low > 3 * (alone_high - alone_low)


def test_the_interval_of_runs_covers_their_share():
    # Runs of 20 hits alike, 30 batches of 100: the batches are independent.
    repeats, share = 400, 0.8
    rng = np.random.default_rng(11)

    covered = 0
    for _ in range(repeats):
        low, high = interval_of(np.repeat(rng.random(150) < share, 20))
        covered += low <= share <= high

    assert covered >= 0.95 * repeats - 4 * np.sqrt(0.95 * 0.05 * repeats)


def test_the_interval_of_all_hits_stays_below_one():
    low, high = interval_of(np.ones(100, bool))

    # Wilson with no miss: n / (n + z^2)
    assert low == pytest.approx(100 / (100 + 1.96**2), abs=1e-4)
    assert high == 1.0


def test_a_target_needs_ten_expected_misses():
    assert requests_needed(0.99) == 1000
    assert requests_needed(0.999) == 10_000
    assert requests_needed(1.0) == 1


def test_a_target_that_no_sample_can_show_is_refused():
    assert requests_needed(0.999999) == pytest.approx(10_000_000, abs=1)
    with pytest.raises(InputError, match=r"at most 0\.999999, or 1 for every"):
        requests_needed(0.999999999)


@pytest.mark.parametrize("count", [3, 5, 13])
def test_the_interval_between_few_samples_covers_their_share(count):
    # Samples of 2,000 requests whose shares are spread by 0.01 around 0.95.
    rng = np.random.default_rng(5)
    repeats, covered = 500, 0

    for _ in range(repeats):
        shares = np.clip(rng.normal(0.95, 0.01, count), 0, 1)
        hits = rng.binomial(2000, shares).astype(float)
        low, high = share_interval(hits, np.full(count, 2000.0))
        covered += low <= 0.95 <= high

    assert covered >= 0.95 * repeats - 4 * np.sqrt(0.95 * 0.05 * repeats)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99, 0.995, 0.999])
def test_standard_errors_are_the_quantiles_of_scipy(confidence):
    freedoms = range(1, 60)

    found = [standard_errors(confidence, freedom) for freedom in freedoms]

    upper = 0.5 + confidence / 2
    assert found == pytest.approx(stdtrit(freedoms, upper), rel=1e-12)
    assert standard_errors(confidence) == pytest.approx(ndtri(upper), rel=1e-14)
