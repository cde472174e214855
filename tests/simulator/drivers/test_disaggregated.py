"""Prefill and decode apart, worked by hand: iterations of 10 ms, blocks of 4 tokens."""

from pathlib import Path

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from tests.deployments import fleet_of
from tests.simulator.drivers.disaggregated import serve

PULLING = Path(__file__).parent / "pulling.py"


def pools(prefills=1, token_ms=1.0, block_ms=2.0, prefill_blocks=100):
    """Return the pools; a prompt takes 10 ms and ``token_ms`` for each token."""
    size = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "block_size": 4}
    size |= {"async_scheduling": False}
    straight = {"max_batch": 8, "max_tokens": 64}
    prefill = fleet_of(
        linear_tables(10.0, token_ms, 0, 0, 0, **straight),
        EngineSettings(kv_blocks=1 + prefill_blocks, **size),
        prefills,
        router="round-robin",
    )
    decode = fleet_of(
        linear_tables(10.0, 0, 0, 0, 0, **straight),
        EngineSettings(kv_blocks=101, **size),
        1,
        scheduler=f"{PULLING}:block_s={block_ms}",
    )
    return prefill, decode


def test_a_copy_is_pulled_at_a_boundary_and_joined_at_the_next():
    # A prompt [0, 18), pulled [18, 22), decodes 32, 42, 52. B prompt [18, 32), pulled
    # [32, 34), joins at 42.
    found = serve(*pools(), [(0.0, 8, 3), (1.0, 4, 2)])

    assert found == [(18, 32, 52), (32, 52, 62)]


def test_blocks_held_for_a_reader_keep_the_next_prompt_out():
    # All 2 blocks are A's until 22: B's prompt is [22, 36), pulled at 42, joins at 52.
    found = serve(*pools(prefill_blocks=2), [(0.0, 8, 3), (1.0, 4, 2)])

    assert found == [(18, 32, 52), (36, 62, 72)]


def test_copies_of_two_prefill_replicas_follow_each_other_on_the_link():
    # Both handed over at 10; copies [10, 30) and [30, 50).
    both = [(0.0, 8, 2), (0.0, 8, 2)]

    found = serve(*pools(prefills=2, token_ms=0.0, block_ms=10.0), both)

    assert found == [(10, 40, 50), (10, 60, 70)]
