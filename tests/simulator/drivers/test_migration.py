"""Live migration, worked by hand: iterations of 10 s, blocks of 4 tokens, 5 s a block.

The cases are LX-1 to LX-5 of the reference design, of the first four the milliseconds
taken as seconds and begun 10 s later.
"""

from dataclasses import replace

import numpy as np
import pytest
from numba import types

from capplan.deployment.changes import Change
from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import indices
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.fleet.motion import motion
from capplan.simulator.fleet.pool_state import Options, pool_state
from capplan.simulator.jit import compiled
from capplan.simulator.rebalancers import parse_rebalancer
from capplan.simulator.rebalancers.llumnix import RULES, freeness, rebalance
from capplan.simulator.routers import parse_router
from capplan.simulator.simulate import simulate
from capplan.simulator.state import STATE, Phase
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

SETTING = indices(RULES.settings)
TABLES = linear_tables(10.0, 0, 0, 0, 0, max_batch=8, max_tokens=64)
ENGINE = EngineSettings(64, 8, 4, kv_blocks=21, async_scheduling=False)
LLUMNIX = "llumnix:block=5s,handshake=0s,last=1,theta=6,period=22s"

COPIED_IN_MS = "llumnix:block=5ms,handshake=0s,last=1,theta=999,period=1s"


def fleet(rebalancer=LLUMNIX, engine=ENGINE, replicas=2):
    deployment = fleet_of(TABLES, engine, replicas, router="round-robin")
    return replace(deployment, rebalancer=rebalancer)


def by_priority(kv_blocks):
    engine = replace(ENGINE, kv_blocks=kv_blocks)
    named = {"router": "round-robin", "scheduler": "vllm-v1-priority"}
    return fleet_of(TABLES, engine, 2, **named)


def simulated(outputs, deployment):
    """Simulate A of 8 tokens on replica 0, X on 1, B of 32 on 0; all arrive at 0."""
    trace = Trace(np.array([8, 1, 32]), np.array([outputs, 1, 20]), np.zeros(3))
    return simulate(trace, deployment)


def test_a_request_is_copied_while_it_decodes_and_stands_still_for_the_last_block():
    # At 22 A has KV 10, in flight counted: 2 of its 3 blocks are copied until 32. It
    # leaves after the iteration in flight, at 40 with KV 11, and joins with the last
    # block at 45; its 8 tokens left end at 125 instead of 120. B alone stays.
    simulation = simulated(12, fleet())

    assert simulation.table.finish_s.tolist() == [125, 10, 200]
    assert simulation.table.longest_gap_s.tolist() == [15, 0, 10]
    assert simulation.table.migrations.tolist() == [1, 0, 0]
    (move,) = simulation.moved
    assert (move["source"], move["destination"], move["row"]) == (0, 1, 0)
    assert (move["began_s"], move["left_s"], move["ended_s"]) == (22, 40, 45)
    assert move["joined"] == 1


def test_a_request_that_ends_while_it_is_copied_is_not_moved():
    # A has its last token at 40; at the end of the stage, 32, that is in flight.
    simulation = simulated(4, fleet())

    assert simulation.table.finish_s.tolist() == [40, 10, 200]
    (move,) = simulation.moved
    assert (move["ended_s"], move["joined"]) == (32, 0)


@pytest.mark.parametrize(
    ("moving", "gap_s", "served_s"),
    [
        # Copied as in the first test: 5 ms stand still, then an iteration.
        ({"rebalancer": COPIED_IN_MS}, 0.015, 0.133),
        # Its replica dies 1 us after it would have left. Of 12 tokens 11 are a stall of
        # 10 + 11 ms; the last, 1 ms more, brings the next one. 7 iterations are left.
        ({"changes": (Change(1.018001, "fail", 1),)}, 0.022001, 0.140001),
    ],
)
def test_a_copy_stalls_a_request_for_less_time_than_computing_it_again(
    moving, gap_s, served_s
):
    # LX-5: prompts take 10 ms + 1 ms a token, decodes 10. A comes at 0.97 s to replica
    # 1 and has its prompt at 18 ms, so that the tick at 1 s is 12 ms later.
    tables = linear_tables(0.010, 0.001, 0, 0, 0, max_batch=8, max_tokens=64)
    deployment = fleet_of(tables, ENGINE, 2, router="round-robin")
    trace = Trace(np.array([1, 8]), np.array([1, 12]), np.array([0.0, 0.97]))

    times = simulate(trace, replace(deployment, **moving)).table

    assert times.replica.tolist() == [0, 0]
    assert times.longest_gap_s[1] == pytest.approx(gap_s, abs=1e-9)
    assert times.finish_s[1] - 0.97 == pytest.approx(served_s, abs=1e-9)


def test_with_async_scheduling_it_leaves_after_both_iterations_in_flight():
    # At 22 the iterations to 30 and 40 are scheduled, so KV is 11: 2 blocks until 32.
    # Then 12 with the one to 50, in the same 3: it joins at 55 with 7 tokens left.
    engine = replace(ENGINE, async_scheduling=True)

    simulation = simulated(12, fleet(engine=engine))

    assert simulation.table.finish_s.tolist() == [125, 10, 200]
    (move,) = simulation.moved
    assert (move["left_s"], move["ended_s"]) == (50, 55)


def test_replicas_that_die_at_both_ends_of_a_copy_leave_nothing_behind():
    # As the first test, from replica 1 to 0, of which both die at 42, when A has left 1
    # and is not there yet; replica 2 is closed from the start. Both come back at 50 and
    # compute A's 12 known tokens and B's 36 again. From 198 on all is as in that test.
    prompts = np.array([1, 8, 1, 32, 8, 1, 32])
    outputs = np.array([1, 12, 1, 8, 12, 1, 20])
    trace = Trace(prompts, outputs, np.array([0, 0, 0, 0, 198.0, 198, 198]))
    changes = (Change(0, "close"), Change(42, "fail", 2), Change(50, "up", 2))

    simulation = simulate(trace, replace(fleet(replicas=3), changes=changes))

    finish_s = [10, 130, 10, 90, 198 + 125, 198 + 10, 198 + 200]
    assert simulation.table.finish_s.tolist() == finish_s
    assert simulation.table.migrations.tolist() == [0, 0, 0, 0, 1, 0, 0]
    assert simulation.moved[["destination", "joined"]].tolist() == [(-1, 0), (1, 1)]


def test_a_request_that_sits_an_iteration_out_may_move():
    # Of 6 blocks R has 3, P 2, Q 1 at 20. P, of lower priority, lacks one: it goes
    # back to the queue, and Q behind it sits [20, 30) out. At 25 Q leaves, as the
    # shortest, with 4 tokens of KV; it joins at 35, and has its tokens at 20, 45 and
    # 55. R ends at 40, then P has room.
    trace = Trace(
        np.array([8, 1, 7, 1, 4]),
        np.array([4, 1, 3, 1, 3]),
        np.array([0, 0, 0, 0, 5.0]),
        priority=np.array([0, 0, 2, 0, 0]),
    )
    deployment = by_priority(kv_blocks=7)
    often = LLUMNIX.replace("period=22s", "period=25s")

    times = simulate(trace, replace(deployment, rebalancer=often)).table

    assert times.finish_s.tolist() == [40, 10, 50, 10, 55]
    assert times.migrations.tolist() == [0, 0, 0, 0, 1]
    assert times.preemptions.tolist() == [0, 0, 1, 0, 0]
    assert times.longest_gap_s[4] == 25


def test_one_that_sits_an_iteration_out_runs_again_behind_one_that_has_joined():
    # On replica 0, of 7 blocks, P has to go and Q sits out as above, now that one block
    # is taken for M. M leaves the full replica 1 at 20 and joins at 25, in [20, 30).
    # From 30 on Q and M run with R; P has room when R ends.
    trace = Trace(
        np.array([8, 21, 7, 3, 4]),
        np.array([4, 6, 3, 4, 3]),
        np.array([0, 0, 0, 0, 5.0]),
        priority=np.array([0, 0, 2, 0, 0]),
    )
    deployment = by_priority(kv_blocks=8)
    often = LLUMNIX.replace("theta=6,period=22s", "theta=0.2,period=17s")

    times = simulate(trace, replace(deployment, rebalancer=often)).table

    assert times.migrations.tolist() == [0, 0, 0, 1, 0]
    assert times.finish_s.tolist() == [40, 60, 50, 50, 50]
    assert times.longest_gap_s.tolist() == [10, 10, 30, 20, 20]


def test_a_rebalancer_that_finds_no_pair_changes_nothing():
    rng = np.random.default_rng(0)
    trace = Trace(
        rng.integers(1, 30, 300),
        rng.integers(1, 30, 300),
        np.sort(rng.uniform(0, 3000, 300)),
    )
    idle = "llumnix:block=5s,theta=-1000,period={}"
    roomy = replace(ENGINE, kv_blocks=200)
    plain = simulate(trace, fleet("", roomy)).table

    for period in ("3s", "170ms", "1000s"):
        found = simulate(trace, fleet(idle.format(period), roomy))
        assert len(found.moved) == 0
        assert found.table.finish_s == pytest.approx(plain.finish_s, abs=1e-6)


@compiled(types.float64(STATE, types.int64, types.float64))
def _freeness(state, r, target):
    return freeness(state, r, False, target, 0.0)


def state_of(replicas):
    state = pool_state(
        replace(ENGINE, kv_blocks=101),
        TABLES,
        replicas,
        router=parse_router("jsq"),
        options=Options(bin_width_s=1.0, chunk=1, longest_jump=1),
    )
    return state, motion(len(state.requests), replicas)


def settings_of(moving, text):
    policy = parse_rebalancer(f"llumnix:{text}")
    moving.settings[: len(policy.values)] = policy.values
    return moving.settings


def test_freeness_is_free_blocks_for_each_request():
    # LX-1: of 100 blocks 40 are used. 4 run: 15. The head wants 30 (120 tokens): 6.
    state, _ = state_of(1)
    replica = state.replicas[0]
    replica.free_blocks, replica.running_count = 60, 4

    alone = _freeness(state, 0, 0.0)
    replica.waiting_count, replica.waiting_head = 1, 7
    state.requests[7].known_tokens = 120
    state.requests[7].next = -1
    queued = _freeness(state, 0, 0.0)
    # With a target of 60 blocks beside a request of high priority: (60 - 40) / 4.
    replica.waiting_count, replica.waiting_head = 0, -1
    replica.running_head = 7
    state.requests[7].priority = -1
    kept_free = _freeness(state, 0, 60.0)
    replica.running_count = 0
    idle = _freeness(state, 0, 0.0)

    assert (alone, queued, kept_free, idle) == (15, 6, 5, np.inf)


def test_the_fullest_replica_is_paired_with_the_emptiest():
    # LX-2: theta 3, freeness of A 1, B 2, C 9, D 20, E 3: A to D, B to C; E neither.
    state, moving = state_of(5)
    settings_of(moving, "theta=3")
    state.replicas["running_count"] = 1
    state.replicas["free_blocks"] = [1, 2, 9, 20, 3]
    state.replicas["running_head"] = range(5)
    state.requests["next"][:5] = -1
    state.requests["phase"][:5] = Phase.DECODING
    state.requests["prompt_tokens"][:5], state.requests["end_step"][:5] = 10, 1

    pairs = rebalance(state, moving, 0.0)

    assert pairs == 2
    assert moving.pairs[:2].tolist() == [[0, 3, 0], [1, 2, 1]]


def test_a_request_of_high_priority_is_not_moved_where_room_is_kept_for_it():
    # Replica 0 has less than theta: of its two requests that of priority 1 moves, and
    # where both are of priority 0 none does, as in the artifact.
    state, moving = state_of(2)
    state.replicas["running_count"] = [2, 0]
    state.replicas["running_head"] = [0, -1]
    state.requests["next"][:2] = [1, -1]
    state.requests["phase"][:2] = Phase.DECODING
    state.requests["prompt_tokens"][:2], state.requests["end_step"][:2] = 10, 1
    state.requests["priority"][:2] = [0, 1]

    settings_of(moving, "theta=60")
    unknown = [rebalance(state, moving, 0.0), moving.pairs[0, 2]]
    settings_of(moving, "theta=60,target=60,high=1")
    normal = [rebalance(state, moving, 0.0), moving.pairs[0, 2]]
    state.requests["priority"][1] = 0
    high = rebalance(state, moving, 0.0)
    settings_of(moving, "theta=60,target=0,high=1")
    of_all = rebalance(state, moving, 0.0)

    assert (unknown, normal, high, of_all) == ([1, 1], [1, 1], 0, 1)


def test_requests_of_a_scheduler_with_an_order_of_its_own_are_not_moved():
    deployment = fleet_of(TABLES, ENGINE, 2, scheduler="sa")
    trace = Trace(np.array([8]), np.array([8]), np.zeros(1))

    with pytest.raises(InputError, match="with scheduler sa is not modelled: it moves"):
        simulate(trace, replace(deployment, rebalancer="llumnix:block=5s"))


def test_requests_placed_at_a_beat_are_moved_before_the_next_one_arrives():
    # All are held from 1 to the beat at 5, and the tick at 2 finds nothing to move. The
    # next request is a million seconds away.
    often = LLUMNIX.replace("period=22s", "period=2s")
    deployment = replace(fleet(often), dispatcher="aladdin:beat=5s")
    trace = Trace(
        np.array([8, 32, 8]), np.array([12, 20, 1]), np.array([1.0, 1.0, 1e6])
    )

    simulation = simulate(trace, deployment)

    assert len(simulation.moved) > 0
    assert simulation.moved["began_s"].max() < 1e6
