"""What a simulation says of its objectives, against cases worked by hand."""

import numpy as np
import pytest

from capplan.deployment import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.metrics import (
    attainment,
    is_stable,
    requests_needed,
    share_interval,
    warmup_end_s,
)
from capplan.simulator.simulate import simulate
from capplan.simulator.times import RequestTimes, Series, Simulation
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

SINGLE = EngineSettings(
    max_num_batched_tokens=16,
    max_num_seqs=1,
    block_size=16,
    kv_blocks=3,
    async_scheduling=False,
)


def simulation_of(arrival_s, first_token_s, finish_s, output_tokens) -> Simulation:
    n = len(arrival_s)
    none = np.zeros(n)
    times = RequestTimes(
        arrival_s=np.array(arrival_s, float),
        scheduled_s=np.array(arrival_s, float),
        first_token_s=np.array(first_token_s, float),
        finish_s=np.array(finish_s, float),
        longest_gap_s=none,
        prompt_tokens=np.ones(n, np.int64),
        output_tokens=np.array(output_tokens),
        replica=np.zeros(n, np.int64),
        preemptions=np.zeros(n, np.int64),
        cached_tokens=np.zeros(n, np.int64),
    )
    series = Series(*(np.zeros(1) for _ in range(6)))
    return Simulation(times, series, 1, 1, 1.0, n)


def served_at(load: float, seed: int, n: int = 20_000) -> Simulation:
    """One server of 10 ms a request under Poisson arrivals."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(0.01 / load, n))
    trace = Trace(np.ones(n, int), np.ones(n, int), arrival_s)
    tables = linear_tables(0.01, 0, 0, 0, 0, max_batch=1, max_tokens=16)
    return simulate(trace, tables, SINGLE, 1)


def test_attainment_of_a_case_worked_by_hand():
    # TTFT 0.5, 1.5, 0.5, 0.5 s; TPOT 0.1, 0.1, 0.3 s and none; e2e 1.5 2.5 3.5 0.5 s
    arrival_s = [0.0, 1.0, 2.0, 3.0]
    first_s = [0.5, 2.5, 2.5, 3.5]
    finish_s = [1.5, 3.5, 5.5, 3.5]
    tokens = [11, 11, 11, 1]
    trace = Trace(
        np.ones(4, int),
        tokens,
        arrival_s,
        request_class=np.array([0, 0, 1, 1]),
        class_names=("chat", "batch"),
    )
    simulation = simulation_of(arrival_s, first_s, finish_s, tokens)
    slo = Slo(RequestSlo(ttft_s=1.0, tpot_s=0.2))

    found = attainment(simulation, trace, slo)

    assert found.attained.tolist() == [True, False, False, True]
    assert found.share == 0.5
    assert found.by_limit == {"ttft": 0.75, "tpot": 0.75, "e2e": 1.0}
    assert found.by_class == {"chat": 0.5, "batch": 0.5}
    assert found.counted == 4


def test_each_class_is_held_to_its_own_limits():
    trace = Trace(
        np.ones(2, int),
        [1, 1],
        [0.0, 0.0],
        request_class=np.array([0, 1]),
        class_names=("chat", "batch"),
    )
    simulation = simulation_of([0, 0], [2, 2], [2, 2], [1, 1])
    slo = Slo(RequestSlo(ttft_s=1.0), by_class={"batch": RequestSlo(ttft_s=3.0)})

    found = attainment(simulation, trace, slo)

    assert found.by_class == {"chat": 0.0, "batch": 1.0}


def test_requests_of_the_warm_up_do_not_count():
    simulation = simulation_of([0, 1, 2], [5, 1, 2], [5, 1, 2], [1, 1, 1])
    trace = Trace(np.ones(3, int), [1, 1, 1], [0.0, 1.0, 2.0])

    found = attainment(simulation, trace, Slo(RequestSlo(ttft_s=1.0)), warmup_s=0.5)

    assert (found.share, found.counted) == (1.0, 2)


def test_a_limit_met_exactly_is_kept():
    simulation = simulation_of([0.0], [1.0], [2.0], [11])
    trace = Trace([1], [11], [0.0])

    found = attainment(simulation, trace, Slo(RequestSlo(ttft_s=1.0, tpot_s=0.1)))

    assert found.share == 1.0


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


def test_the_warm_up_ends_when_the_fleet_has_filled_up():
    # Every request stays 20 s: outstanding rises for 20 s, then is level.
    arrival_s = np.arange(0, 200, 0.1)
    simulation = simulation_of(
        arrival_s, arrival_s + 20, arrival_s + 20, np.ones(2000, int)
    )

    end_s = warmup_end_s(simulation)

    assert 19.0 <= end_s <= 22.0


def test_the_warm_up_is_never_more_than_half_of_the_arrivals():
    simulation = served_at(1.1, seed=0, n=500)

    end_s = warmup_end_s(simulation)

    arrival_s = simulation.times.arrival_s
    assert end_s <= (arrival_s[0] + arrival_s[-1]) / 2


@pytest.mark.parametrize("seed", range(10))
def test_a_server_at_eighty_percent_is_stable(seed):
    simulation = served_at(0.8, seed)

    assert is_stable(simulation, warmup_end_s(simulation))


@pytest.mark.parametrize("seed", range(10))
def test_a_server_at_a_hundred_and_ten_percent_is_not_stable(seed):
    simulation = served_at(1.1, seed)

    assert not is_stable(simulation, warmup_end_s(simulation))


def test_a_target_needs_ten_expected_misses():
    assert requests_needed(0.99) == 1000
    assert requests_needed(0.999) == 10_000
    assert requests_needed(1.0) == 1
