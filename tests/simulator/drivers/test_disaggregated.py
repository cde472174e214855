"""Disaggregated serving, worked by hand: iterations of 10 s, blocks of 4 tokens.

The cases are PD-1 to PD-4 of the reference design; a copy takes ``block_s`` a block.
"""

from dataclasses import replace

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.latency.contract import linear_tables
from capplan.simulator.fleet.motion import grown, motion
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of


def pools(prefills=1, token_s=1.0, block_s=2.0, prefill_blocks=100, hand_off="nixl"):
    """Return the pools; a prompt takes 10 s and ``token_s`` for each token."""
    more = ",report=end" if hand_off.startswith("nixl") else ""
    colon = "," if ":" in hand_off else ":"
    size = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "block_size": 4}
    size |= {"async_scheduling": False}
    straight = {"max_batch": 8, "max_tokens": 64}
    prefill = fleet_of(
        linear_tables(10.0, token_s, 0, 0, 0, **straight),
        EngineSettings(kv_blocks=1 + prefill_blocks, **size),
        prefills,
    )
    decode = fleet_of(
        linear_tables(10.0, 0, 0, 0, 0, **straight),
        EngineSettings(kv_blocks=101, **size),
        1,
    )
    return Deployment(
        (prefill.pool, decode.pool),
        "round-robin",
        hand_off=f"{hand_off}{colon}block={block_s}s,handshake=0s,hop=0s{more}",
    )


def served(deployment, requests):
    """Return (handed, first token, finish) of (arrival, prompt, output). [s]"""
    arrival_s, prompts, outputs = np.array(requests).T
    trace = Trace(prompts.astype(int), outputs.astype(int), arrival_s.astype(float))
    times = simulate(trace, deployment).table
    return list(zip(times.handed_s, times.first_token_s, times.finish_s, strict=True))


def test_a_copy_is_pulled_at_a_boundary_and_joined_at_the_next():
    # A prompt [0, 18), pulled [18, 22), decodes 32, 42, 52. B prompt [18, 32), pulled
    # [32, 34), joins at 42.
    found = served(pools(), [(0, 8, 3), (1, 4, 2)])

    assert found == [(18, 32, 52), (32, 52, 62)]


def test_blocks_held_for_a_reader_keep_the_next_prompt_out():
    # All 2 blocks are A's until 22: B's prompt is [22, 36), pulled at 42, joins at 52.
    found = served(pools(prefill_blocks=2), [(0, 8, 3), (1, 4, 2)])

    assert found == [(18, 32, 52), (36, 62, 72)]


def test_a_prompt_of_which_enough_is_cached_stays_on_its_decode_replica():
    # Both have the same first 32 tokens of 40. The first has its 10 blocks on the
    # decode replica from 70 on; of the second 8 are new there, fewer than 16.
    deployment = pools(hand_off="nixl:threshold=16")
    prefill, decode = deployment.pools
    engine = replace(decode.configuration.engine, prefix_caching=True)
    caching = replace(
        decode, configuration=replace(decode.configuration, engine=engine)
    )
    same = {"prefix_group": np.zeros(2, int), "prefix_tokens": np.full(2, 32)}
    trace = Trace(np.full(2, 40), np.ones(2, int), np.array([0.0, 200.0]), **same)

    times = simulate(trace, replace(deployment, pools=(prefill, caching))).table

    assert times.handed_s[0] == 50
    assert times.finish_s.tolist() == [80, 210]  # pulled [50, 70)
    assert times.cached_tokens.tolist() == [0, 32]


def test_copies_of_two_prefill_replicas_follow_each_other_on_the_link():
    # Both handed over at 10; copies [10, 30) and [30, 50).
    both = [(0, 8, 2), (0, 8, 2)]

    found = served(pools(prefills=2, token_s=0.0, block_s=10.0), both)

    assert found == [(10, 40, 50), (10, 60, 70)]


def test_the_first_token_is_the_prefill_replicas_where_it_is_not_computed_again():
    # A: first token 18, copied [18, 22), decodes [22, 32), [32, 42). B: [18, 32),
    # copied [32, 34), joins at 42.
    found = served(pools(hand_off="distserve"), [(0, 8, 3), (1, 4, 2)])

    assert found == [(18, 18, 42), (32, 32, 52)]


def test_room_for_more_requests_keeps_what_was_read_and_is_not_heard_of_yet():
    # Of replica 0: slots 3 to 1, at its call 7. Lost, their blocks are held for ever.
    before = motion(slots=4, replicas=2, others=1)
    before.reading[:] = [[3, -1], [1, -1], [7, 5]]

    after = grown(before, slots=8, replicas=2)

    assert after.reading.tolist() == [[3, -1], [1, -1], [7, 5]]
