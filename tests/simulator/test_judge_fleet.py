"""The judge of fleets in motion on cases worked by hand.

An iteration takes 10, in any unit, and ``token_s`` for each prompt token in it; a block
holds 4 tokens.
"""

import math

import numpy as np
import pytest
from judge_fleet import Event, judge_fleet
from judge_fleet_replica import FleetReplica, FleetRequest
from judge_fleet_service import Fleet
from judge_hand_off import HandOff
from judge_llumnix import Llumnix, freeness, rebalance, victim

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.workload.trace import Trace


def tables(token_s=1.0):
    return linear_tables(10.0, token_s, 0, 0, 0, max_batch=8, max_tokens=64)


def engine(blocks=100, **settings):
    given = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "block_size": 4}
    given |= {"async_scheduling": False, "kv_blocks": blocks + 1}
    return EngineSettings(**(given | settings))


def trace(*requests, **columns):
    """Return requests of arrival, prompt and output."""
    arrival_s, prompts, outputs = np.array(requests, float).T
    return Trace(prompts.astype(int), outputs.astype(int), arrival_s, **columns)


def pool(count=1, router="round-robin", token_s=1.0, **settings):
    return tables(token_s), engine(**settings), "vllm-v1", count, router


def replica_with(free_blocks, *requests, waiting=(), blocks=100, block_size=4):
    given = engine(blocks, block_size=block_size)
    replica = FleetReplica(tables(), given, "vllm-v1", 0, 0, None)
    replica.pool.free = replica.pool.free[:free_blocks]
    replica.running = list(requests)
    replica.waiting.extend(waiting)
    return replica


def decoding(row=0, tokens=5, priority=0):
    """Return a request that decodes, of so many known tokens."""
    request = FleetRequest(row, 0.0, 4, 99, list(range(tokens)), priority=priority)
    request.computed = tokens - 1
    return request


# Llumnix


def test_freeness_is_free_blocks_per_request():
    requests = [decoding(row) for row in range(4)]
    head = FleetRequest(9, 0.0, 480, 1, list(range(480)))
    replica = replica_with(60, *requests, block_size=16)
    behind = replica_with(60, *requests, waiting=[head], block_size=16)

    assert freeness(replica, 4, "head", 0, 0) == 15
    assert freeness(behind, 5, "head", 0, 0) == (60 - 30) / 5
    assert freeness(replica, 4, "head", 60, 1) == (60 - 40) / 4
    assert freeness(replica_with(100), 0, "head", 0, 0) == math.inf


def test_the_fullest_gives_to_the_emptiest_and_a_load_at_the_limit_does_neither():
    fleet = Fleet(trace((0, 1, 1)), [pool(5)], (), None, None, None, 0, None)
    for replica, free in zip(fleet.pools[0].replicas, [1, 2, 9, 20, 3], strict=True):
        replica.pool.free = replica.pool.free[:free]
        replica.running = [decoding()]

    rebalance(fleet, Llumnix(theta=3.0), 0.0)

    pairs = [(move.source.index, move.target.index) for move in fleet.moves]
    assert pairs == [(0, 3), (1, 2)]


def test_the_lowest_priority_moves_first_and_then_the_shortest():
    requests = [decoding(0, 6, 0), decoding(1, 9, 1), decoding(2, 7, 1)]
    replica = replica_with(50, *requests, decoding(3, 7, 1))

    assert victim(replica, Llumnix()).row == 2
    assert victim(replica, Llumnix(victim="newest")).row == 3


def moved(output, *events, block_s=5.0):
    """Let the second request decode on a replica that is closed at 30.

    The first was done at 11 on the other. Its prompt of 8 is done at 18.
    """
    return judge_fleet(
        trace((0, 1, 1), (0, 8, output)),
        [pool(2)],
        events=[Event(30.0, "close", 1), *events],
        rebalancer=Llumnix(period_s=30.0, block_s=block_s, last=1),
    )


def test_a_request_is_copied_in_two_stages_while_it_goes_on():
    # At 30 it will have KV of 10 in 3 blocks when the iteration in flight is done: 2 go
    # until 40. It is in the iteration until 48 and in none after: KV 11, 1 block left,
    # there at 53. The other eight tokens come from the other replica.
    verdict = moved(12)

    assert verdict.moves == [(30.0, 1, 0, 1, 2, 3, "joined", 53.0)]
    served = verdict.requests[1]
    assert served.token_s == [18, 28, 38, 48, 63, 73, 83, 93, 103, 113, 123, 133]
    assert (served.replica, served.migrations, served.preemptions) == (0, 1, 0)


@pytest.mark.parametrize(
    ("output", "block_s", "moves"),
    [
        (3, 5.0, []),  # its last token is in flight at 30: nobody moves
        (4, 5.0, [(30.0, 1, 0, 1, 1, 2, "finishing", 40.0)]),
        (4, 10.0, [(30.0, 1, 0, 1, 1, 2, "finished", 50.0)]),
    ],
)
def test_a_copy_is_given_up_at_the_end_of_its_stage(output, block_s, moves):
    verdict = moved(output, block_s=block_s)

    assert verdict.moves == moves
    assert verdict.requests[1].token_s == [18, 28, 38, 48][:output]


def test_a_replica_that_fails_costs_its_requests_their_kv():
    # 11 tokens are known at 39 and computed again as one prompt in 10 + 11.
    verdict = judge_fleet(
        trace((0, 1, 1), (0, 8, 5)), [pool(2)], events=[Event(39.0, "fail", 1)]
    )

    served = verdict.requests[1]
    assert served.token_s == [18, 28, 38, 60, 70]
    assert (served.replica, served.preemptions) == (0, 1)


def test_a_result_of_the_instant_of_a_failure_is_lost():
    verdict = judge_fleet(
        trace((0, 1, 1), (0, 8, 3)), [pool(2)], events=[Event(38.0, "fail", 1)]
    )

    assert verdict.requests[1].token_s == [18, 28, 38 + 10 + 10]


def test_a_request_whose_destination_fails_computes_all_again_at_its_source():
    # It left at 48 and is lost at 53, as it would join; 12 tokens are known.
    verdict = moved(6, Event(50.0, "fail", 1))

    assert verdict.moves == [(30.0, 1, 0, 1, 2, 3, "target died", 53.0)]
    served = verdict.requests[1]
    assert served.token_s == [18, 28, 38, 48, 53 + 10 + 12, 85]
    assert (served.replica, served.migrations, served.preemptions) == (1, 0, 1)


def test_a_request_runs_on_where_its_destination_fails_before_it_left():
    verdict = moved(6, Event(35.0, "fail", 1))

    assert verdict.moves == [(30.0, 1, 0, 1, 1, 2, "target died", 35.0)]
    assert verdict.requests[1].token_s == [18, 28, 38, 48, 58, 68]


def test_requests_wait_for_a_replica_to_come_up():
    verdict = judge_fleet(
        trace((0, 8, 2), (5, 4, 1)),
        [pool(1)],
        events=[Event(3.0, "fail", 1), Event(100.0, "up", 1)],
    )

    assert [served.token_s for served in verdict.requests] == [[122, 132], [122]]
    assert [served.replica for served in verdict.requests] == [1, 1]
    assert verdict.requests[0].preemptions == 1


# Disaggregated prefill and decode


def apart(requests, kind="nixl", prefills=1, token_s=1.0, prefill_blocks=100, **given):
    settings = {"block_s": 2.0} | given
    first = pool(prefills, token_s=token_s, blocks=prefill_blocks)
    return judge_fleet(
        trace(*requests),
        [first, pool(1, token_s=0.0)],
        hand_off=HandOff(kind, **settings),
    ).requests


def test_a_copy_is_pulled_at_a_boundary_and_joined_at_the_next():
    # A: prompt [0, 18), copied [18, 22). B: prompt [18, 32), copied [32, 34).
    first, second = apart([(0, 8, 3), (1, 4, 2)])

    assert (first.handed_s, first.ready_s, first.token_s) == (18, 22, [32, 42, 52])
    assert (second.handed_s, second.ready_s, second.token_s) == (32, 34, [52, 62])


def test_a_prompt_waits_for_the_blocks_of_one_that_was_not_read_yet():
    _, second = apart([(0, 8, 3), (1, 4, 2)], prefill_blocks=2)

    assert second.scheduled_s == 22
    assert (second.handed_s, second.ready_s, second.token_s) == (36, 44, [62, 72])


@pytest.mark.parametrize(("prefills", "handed_s"), [(1, [10, 20]), (2, [10, 10])])
def test_copies_follow_each_other_on_a_link(prefills, handed_s):
    # One prompt after the other fits an iteration: A [10, 30), B [30, 50).
    requests = [(0, 8, 2), (0 if prefills == 2 else 1, 8, 2)]

    first, second = apart(requests, prefills=prefills, token_s=0.0, block_s=10.0)

    assert [first.handed_s, second.handed_s] == handed_s
    assert (first.ready_s, first.token_s) == (30, [40, 50])
    assert (second.ready_s, second.token_s) == (50, [60, 70])


def test_a_prompt_that_is_mostly_cached_is_served_by_decode_alone():
    requests = trace(
        (0, 36, 1),
        (1000, 40, 1),
        prefix_group=np.array([0, 0]),
        prefix_tokens=np.array([32, 32]),
    )
    caching = pool(1, prefix_caching=True, token_s=0.0)

    verdict = judge_fleet(
        requests, [caching, caching], hand_off=HandOff(threshold=16, block_s=2.0)
    )

    first, second = verdict.requests
    assert (first.prefill_replica, first.token_s) == (0, [10 + 9 * 2 + 10])
    assert (second.prefill_replica, second.cached_tokens) == (-1, 32)
    assert second.token_s == [1010]


def test_decode_does_not_wait_for_a_copy_when_it_can_run_another():
    # The copy of A takes until 34; B, short, is served by decode alone from 20 on.
    first, second = apart([(0, 8, 1), (20, 4, 1)], threshold=5, block_s=8.0)

    assert first.ready_s == 34
    assert (second.prefill_replica, second.token_s) == (-1, [30])
    assert first.token_s == [44]


def test_distserve_gives_the_first_token_of_the_prefill_replica():
    # A joins at 22 with its first token known. B and C are computed together in
    # [18, 36); B is copied from 42 on, when A is done, and C never leaves.
    first, second, third = apart([(0, 8, 3), (1, 4, 2), (2, 4, 1)], kind="distserve")

    assert first.token_s == [18, 32, 42]
    assert (second.ready_s, second.token_s) == (44, [36, 54])
    assert third.token_s == [36]
    assert math.isnan(third.handed_s)


# Routers


@pytest.mark.parametrize(("refresh", "replica"), [("1s", 0), ("0s", 1)])
def test_old_metrics_send_two_requests_to_the_same_replica(refresh, replica):
    # Three requests at 0, before anything is seen: one on the first replica, two on the
    # second, which has one seat. At 1 one waits there. Two more come at 1.5.
    requests = trace((0, 8, 9), (0, 8, 9), (0, 8, 9), (1.5, 8, 9), (1.5, 8, 9))
    router = f"llm-d:kv=0,prefix=0,refresh={refresh}"
    pools = [pool(2, router, max_num_seqs=1)]

    def chosen(seed):
        draws = np.random.default_rng(seed).random((5, 2))[:, 0]
        if refresh == "0s":  # the first looks are fresh too
            return draws[0] < 0.5 and draws[2] >= 0.5 and draws[4] >= 0.5
        return draws[0] < 0.5 and draws[1] >= 0.5 and draws[2] >= 0.5

    seed = next(filter(chosen, range(99)))
    verdict = judge_fleet(requests, pools, seed=seed)

    places = [served.replica for served in verdict.requests]
    assert places == [0, 1, 1, 0, replica]


def test_llumnix_sends_an_arrival_to_the_most_blocks_per_request():
    # 100 blocks each. All come at once and wait: the first wants 10 blocks, which leave
    # 90 for one request; the next two want one each, which leave 98 for two.
    requests = trace((0, 40, 9), (0, 4, 9), (0, 4, 9), (0, 4, 9))

    verdict = judge_fleet(requests, [pool(2, "llumnix:refresh=0s")])

    assert [served.replica for served in verdict.requests] == [0, 1, 1, 0]
