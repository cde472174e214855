"""Intervals of a share and stability, against cases with a known outcome."""

import numpy as np
import pytest

from capplan.deployment import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.metrics import (
    is_stable,
    requests_needed,
    share_interval,
)
from capplan.simulator.simulate import simulate
from capplan.simulator.times import Simulation
from capplan.workload.trace import Trace

SINGLE = EngineSettings(
    max_num_batched_tokens=16,
    max_num_seqs=1,
    block_size=16,
    kv_blocks=3,
    async_scheduling=False,
)


def served_at(load: float, seed: int, n: int = 20_000) -> Simulation:
    """One server of 10 ms a request under Poisson arrivals."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(0.01 / load, n))
    trace = Trace(np.ones(n, int), np.ones(n, int), arrival_s)
    tables = linear_tables(0.01, 0, 0, 0, 0, max_batch=1, max_tokens=16)
    return simulate(trace, tables, SINGLE, 1)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_the_interval_of_independent_hits_covers_their_share(share):
    # 95 % is promised; the variance is floored at that of independent hits, so
    # the count of misses is binomial with at most 5 %: a z-test at 4 errors.
    repeats = 600
    rng = np.random.default_rng(7)

    covered = 0
    for _ in range(repeats):
        low, high = share_interval(rng.random(1500) < share)
        covered += low <= share <= high

    expected = 0.95 * repeats
    assert covered >= expected - 4 * np.sqrt(0.95 * 0.05 * repeats)


def test_the_interval_of_hits_that_come_in_runs_is_wider():
    rng = np.random.default_rng(3)
    runs = np.repeat(rng.random(30) < 0.5, 100)

    low, high = share_interval(runs)
    alone_low, alone_high = share_interval(rng.permutation(runs))

    assert high - low > 3 * (alone_high - alone_low)


def test_the_interval_of_runs_covers_their_share():
    # Runs of 20 hits alike, 30 batches of 100: the batches are independent.
    repeats, share = 400, 0.8
    rng = np.random.default_rng(11)

    covered = 0
    for _ in range(repeats):
        low, high = share_interval(np.repeat(rng.random(150) < share, 20))
        covered += low <= share <= high

    # A t quantile with 29 degrees of freedom would be 2.05, not 1.96: 94 %.
    assert covered >= 0.935 * repeats - 4 * np.sqrt(0.94 * 0.06 * repeats)


def test_the_interval_of_all_hits_stays_below_one():
    low, high = share_interval(np.ones(100, bool))

    # Wilson with no miss: n / (n + z^2)
    assert low == pytest.approx(100 / (100 + 1.96**2), abs=1e-4)
    assert high == 1.0


@pytest.mark.parametrize("seed", range(10))
def test_a_server_at_eighty_percent_is_stable(seed):
    simulation = served_at(0.8, seed)

    assert is_stable(simulation, 0.0)


@pytest.mark.parametrize("seed", range(10))
def test_a_server_at_a_hundred_and_ten_percent_is_not_stable(seed):
    simulation = served_at(1.1, seed)

    assert not is_stable(simulation, 0.0)


def test_a_target_needs_ten_expected_misses():
    assert requests_needed(0.99) == 1000
    assert requests_needed(0.999) == 10_000
    assert requests_needed(1.0) == 1
