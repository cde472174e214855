"""Aladdin's heartbeat: hand-worked cases, and the judge's opinion of random fleets."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from cases import EXAMPLES
from fleet_cases import check, draw, happened
from judge_aladdin import cancel, group_count, split
from simulated_fleet import differences, simulated

from capplan.deployment.changes import Change
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.dispatchers import aladdin
from capplan.simulator.dispatchers.rebalancing import rebalance, sort_longest
from capplan.simulator.fleet.beats import knowing, predicted_again
from capplan.simulator.fleet.motion import Beat, motion
from capplan.simulator.jit import from_python
from capplan.simulator.simulate import simulate
from capplan.simulator.state import Sizes, empty_state, no_pool
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.rest_slow import rest_slow

TABLES = linear_tables(0.01, 1e-5, 0, 1e-4, 1e-7, max_batch=64, max_tokens=4096)
ENGINE = EngineSettings(4096, 64, kv_blocks=10_001, async_scheduling=False)
SLO = Slo(RequestSlo(ttft_s=1.0, tpot_s=0.1))


def fleet(dispatcher="aladdin:beat=1s", replicas=2, engine=ENGINE):
    deployment = Deployment.of(Configuration(engine, TABLES), replicas)
    return replace(deployment, dispatcher=dispatcher)


def test_a_request_moves_where_the_errors_cancel():
    # AL-1: alpha 1, beta 10; errors (30, 1) = +40 and (-50, -2) = -70. A request of 20
    # takes 20 + 10 along: |10| + |-40| = 50 < 110.
    lines = [(1.0, 10.0, 30.0, 1), (1.0, 10.0, -50.0, -2)]

    assert cancel(lines, [0], [20]) == [1]
    assert compiled_rebalance([40.0, -70.0], [0], [20]) == [1]


def compiled_rebalance(errors, chosen, predicted):
    """Return the new places; ``errors`` in units of the norm."""
    norm = np.hypot(1.0, 10.0)
    sizes = Sizes(len(errors), 8, 1, 1, 0, 1, 0, 0, 1, 1)
    state = empty_state(sizes, tuple(np.ones(2) for _ in range(5)))
    between = motion(8, len(errors))
    between.beats[Beat.DISTANCE] = np.array(errors) / norm
    between.beats[Beat.PER_TOKEN] = 1.0 / norm
    between.beats[Beat.PER_REQUEST] = 10.0 / norm
    for slot, (place, tokens) in enumerate(zip(chosen, predicted, strict=True)):
        state.requests[slot].replica = place
        state.requests[slot].predicted_tokens = tokens
        between.placed[0, slot] = slot
    from_python(sort_longest)(state, between, len(chosen))
    from_python(rebalance)(state, between, 0, len(errors), len(chosen))
    return state.requests["replica"][: len(chosen)].tolist()


def test_the_longest_prediction_moves_first_and_none_in_vain():
    # +40 and -70: 25 takes 35 along, 5 and -35; then 20's 30 would leave 25 and 5 + ...
    # |5 - 30| + |-35 + 30| = 30 < 40; and 1's 11 finds 0 at most: it stays.
    moved = compiled_rebalance([40.0, -70.0], [0, 0, 0], [20, 1, 25])

    assert moved == [1, 0, 1]


@pytest.mark.parametrize(
    ("workers", "waste", "sizes"),
    [
        (23, 0.1, [6, 6, 6, 5]),  # AL-2
        (9, 0.1, [9]),  # AL-3
        (5, 0.1, [5]),
        (10, 0.1, [5, 5]),
        (7, 0.0, [7]),
    ],
)
def test_a_group_has_workers_enough_that_little_is_wasted(workers, waste, sizes):
    groups = from_python(aladdin.group_count)(workers, waste)
    start = from_python(aladdin.group_start)
    starts = [start(workers, groups, group) for group in range(groups + 1)]

    assert np.diff(starts).tolist() == sizes
    judged = split(range(workers), group_count(workers, waste))
    assert [len(group) for group in judged] == sizes


def test_groups_take_requests_in_proportion_to_their_workers():
    between = motion(1, 23)
    turn = from_python(aladdin.next_group)

    turns = [turn(between, 23, 4) for _ in range(2 * 23)]

    assert np.bincount(turns).tolist() == [12, 12, 12, 10]
    assert turns[:4] == [0, 1, 2, 3]


def test_arrivals_are_placed_at_the_next_beat():
    # AL-4: one at the beat itself belongs to it.
    arrival_s = np.array([0.2, 0.9, 1.0, 1.1])
    trace = Trace(np.full(4, 100), np.full(4, 5), arrival_s)

    times = simulate(trace, fleet(), slo=SLO).table

    assert times.scheduled_s.tolist() == [1.0, 1.0, 1.0, 2.0]


def test_best_fit_fills_one_replica_before_the_next():
    # Constraint (b) with theta 0.5: 2 requests of 300 tokens fit 0.5 * l_d(2), no 3:
    # l_d(b) = (tpot - 10 ms - b * 0.1 ms) / 0.1 us = 1,000 tokens at 10.3 ms for b = 2.
    trace = Trace(np.full(5, 240), np.full(5, 2), np.full(5, 0.5))
    slo = Slo(RequestSlo(ttft_s=1.0, tpot_s=0.0103))
    rows = simulate(trace, fleet(replicas=4), slo=slo).table.replica

    assert rows.tolist() == [0, 0, 1, 1, 2]


def test_a_second_prediction_is_the_mean_of_what_was_longer():
    trace = Trace(np.full(4, 7), np.array([10, 30, 20, 50]), np.arange(4.0))
    between = knowing(motion(1, 1), trace)
    request = no_pool().requests
    again = from_python(predicted_again)

    def of(tokens):
        request[0].prompt_tokens, request[0].predicted_tokens = 7, tokens
        return again(between, request[0])

    assert [of(9), of(10), of(20), of(49), of(50)] == [27.5, 100 / 3, 40.0, 50.0, 51.0]


def test_chunks_change_nothing_but_what_is_known_of_outputs():
    rng = np.random.default_rng(3)
    n = 400
    trace = Trace(
        rng.integers(1, 300, n),
        rng.integers(1, 60, n),
        np.cumsum(rng.exponential(0.02, n)),
        predicted_output_tokens=rng.integers(1, 60, n),
    )
    small = replace(ENGINE, max_num_seqs=8)
    deployment = fleet("aladdin:beat=0.1s,waste=0.25,rebalance=off", 4, small)

    whole = simulate(trace, deployment, slo=SLO).table
    parts = [trace.select(slice(0, 150)), trace.select(slice(150, n))]
    halves = simulate(iter(parts), deployment, slo=SLO).table

    assert halves.replica.tolist() == whole.replica.tolist()
    assert halves.finish_s.tolist() == whole.finish_s.tolist()


def test_a_dispatcher_is_of_one_pool():
    pool = fleet().pools[0]

    with pytest.raises(InputError, match="dispatcher aladdin is not modelled"):
        Deployment((pool, pool), hand_off="nixl", dispatcher="aladdin")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("aladin", "did you mean aladdin"),
        ("aladdin:beat=0s", "beat is '0s'"),
        ("aladdin:heartbeat=1s", "'heartbeat' is not a setting"),
    ],
)
def test_a_wrong_dispatcher_is_named(given, message):
    trace = Trace(np.array([4]), np.array([9]), np.zeros(1))

    with pytest.raises(InputError, match=message):
        simulate(trace, fleet(given), slo=SLO)


def found(case, verdict):
    """Return the differences, but of gaps where replicas die: see failing.py."""
    all_of_them = differences(case, verdict, simulated(case))
    if "events" not in case.moving:
        return all_of_them
    return [text for text in all_of_them if ".longest_gap_s:" not in text]


def test_a_short_trace_is_served_by_more_replicas_than_it_has_requests():
    trace = Trace(np.full(2, 10), np.full(2, 5), np.array([0.0, 9.0]))
    changes = (Change(1.0, "up", 4),)

    times = simulate(trace, replace(fleet(replicas=1), changes=changes), slo=SLO).table

    assert len(times) == 2


@pytest.mark.parametrize("kind", ["aladdin", "aladdin-events"])
@pytest.mark.parametrize("number", range(EXAMPLES))
def test_the_judge_agrees(kind, number):
    case = draw(kind, number)

    verdict = case.judged()

    check(case, verdict)
    assert found(case, verdict) == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["aladdin", "aladdin-events"])
@pytest.mark.parametrize("of", rest_slow(range(6), lambda of: of < 1))
def test_the_judge_agrees_on_many(kind, of):
    counted: Counter = Counter()

    for number in range(100 * of, 100 * of + 100):
        case = draw(kind, number)
        verdict = case.judged()
        check(case, verdict)
        counted.update(happened(case, verdict))
        assert found(case, verdict) == [], number

    assert counted["re-balanced"]
    assert counted["placed together"] > 100
