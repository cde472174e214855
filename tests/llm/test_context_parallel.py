"""Degrees of decode context parallelism that vLLM starts, and those refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.deployment.engine import EngineSettings, default_engine_settings
from capplan.deployment.replica import Replica, replica
from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.llm.catalog import llm
from capplan.llm.context_parallel import check_dcp
from capplan.llm.layout import Layout


def sharing(name: str, on: str, tp: int, dcp: int, **more) -> Replica:
    engine = default_engine_settings(
        gpu(on), block_size=16 * dcp, decode_context_parallel_size=dcp
    )
    return replica(llm(name), gpu(on), Layout(tp), engine, **more)


def test_eight_gpus_hold_eight_times_the_tokens_of_deepseek_r1():
    alone = sharing("DeepSeek-R1", "H200-SXM", 8, 1, kv_dtype="fp8").engine
    shared = sharing("DeepSeek-R1", "H200-SXM", 8, 8, kv_dtype="fp8").engine

    assert shared.kv_capacity_tokens == 8 * alone.kv_capacity_tokens
    assert shared.kv_block_bytes == alone.kv_block_bytes
    # aiconfigurator-core 0.12 computes 1,065,619 tokens without, see test_layout.py.
    assert 1.0 <= shared.kv_capacity_tokens / (8 * 1_065_619) <= 1.3


def test_a_request_of_1000_tokens_takes_16_blocks_of_16_at_dcp_4():
    engine = EngineSettings(block_size=64, decode_context_parallel_size=4)

    assert engine.gpu_block_size == 16
    assert engine.request_blocks(1000) == 16


@given(st.integers(1, 5000), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 16]))
def test_blocks_are_those_of_the_gpu_with_most_tokens(tokens, dcp, block_size):
    # vLLM puts token i on GPU i % dcp (cp_kv_cache_interleave_size 1).
    on_gpu = [len(range(rank, tokens, dcp)) for rank in range(dcp)]
    engine = EngineSettings(
        block_size=dcp * block_size, decode_context_parallel_size=dcp
    )

    assert engine.request_blocks(tokens) == max(-(-n // block_size) for n in on_gpu)


@pytest.mark.parametrize(
    ("name", "on", "tp", "dcp"),
    [
        ("DeepSeek-R1", "B200-SXM", 8, 8),
        ("Kimi-K2", "B200-SXM", 8, 4),
        ("Qwen3-235B-A22B", "H200-SXM", 8, 2),
        ("Qwen3.5-397B-A17B", "B200-SXM", 8, 4),
    ],
)
def test_capacity_is_dcp_times_as_much_and_no_more_than_all_gpus_hold(
    name, on, tp, dcp
):
    alone, shared = (sharing(name, on, tp, each) for each in (1, dcp))

    tokens = shared.engine.kv_capacity_tokens
    assert tokens == dcp * alone.engine.kv_capacity_tokens
    held_bytes = tokens * llm(name).kv_bytes_per_token()
    assert held_bytes <= tp * shared.budget.kv_bytes


def test_recurrent_states_are_held_whole_by_each_gpu():
    alone, shared = (
        sharing("Qwen3.5-397B-A17B", "B200-SXM", 8, dcp).engine for dcp in (1, 4)
    )

    assert shared.kv_blocks == alone.kv_blocks
    # With prefix caching a request holds two; with DCP it is off.
    assert (alone.bounded_blocks, shared.bounded_blocks) == (2, 1)
    assert shared.bounded_groups == alone.bounded_groups


@pytest.mark.parametrize(
    ("name", "tp", "dcp", "reason"),
    [
        ("DeepSeek-R1", 8, 3, "at TP 8; it does not divide TP; expected 2"),
        ("DeepSeek-R1", 4, 8, "at TP 4; it does not divide TP; expected 4"),
        ("Llama-3.1-70B", 8, 2, "its 8 KV heads have no copies at this TP; expected 1"),
        ("Qwen3-235B-A22B", 8, 4, "each of its 4 KV heads has 2 copies; expected 2"),
        ("gpt-oss-120b", 8, 2, "layers with a window cannot share their KV; expected"),
        (
            "DeepSeek-V4-Flash",
            8,
            2,
            "layers with a window cannot share their KV; expect",
        ),
        (None, 4, 3, "decode_context_parallel_size is 3 at TP 4; it does not divide"),
        ("DeepSeek-R1", 8, 0, "decode_context_parallel_size is 0; expected >= 1"),
    ],
)
def test_a_degree_that_vllm_does_not_start_is_refused(name, tp, dcp, reason):
    # vLLM 0.32, config/model.py and config/parallel.py.
    with pytest.raises(InputError) as refused:
        check_dcp(llm(name) if name else None, tp, dcp)

    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_blocks_that_gpus_cannot_share_evenly_are_refused():
    with pytest.raises(InputError, match="block_size is 18; expected a multiple of"):
        EngineSettings(block_size=18, decode_context_parallel_size=4)
