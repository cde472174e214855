"""Settings of the engine behind a served run: given, by GPU, or estimated."""

import pytest

from capplan.calibration.served_engine import served_engine
from capplan.deployment.engine import EngineSettings
from capplan.deployment.replica import replica
from capplan.errors import CapplanWarning, InputError
from capplan.fleet.catalog import gpu
from capplan.latency.fitted_profile import Identity
from capplan.llm.catalog import llm
from capplan.llm.layout import Layout

IDENTITY = Identity("L4", "Llama-3.1-8B", 1, "vllm", "test", "measured")


@pytest.mark.parametrize(
    ("gpu_name", "tokens", "requests"),
    [("L4", 2048, 256), ("A100-80GB-SXM", 2048, 256), ("H100-SXM", 8192, 1024)],
)
def test_limits_default_to_those_of_vllm_serve_on_the_gpu(gpu_name, tokens, requests):
    # vLLM 0.32, EngineArgs: 70 GiB and more, but not A100: 8,192 and 1,024.
    engine, _ = served_engine(IDENTITY._replace(gpu=gpu_name), {"kv_blocks": 1000})

    assert (engine.max_num_batched_tokens, engine.max_num_seqs) == (tokens, requests)
    assert engine.prefix_caching


def test_settings_that_are_given_override_the_defaults():
    given = {
        "max_num_batched_tokens": 512,
        "max_num_seqs": 7,
        "block_size": 32,
        "kv_blocks": 99,
        "async_scheduling": False,
        "prefix_caching": False,
    }

    engine, source = served_engine(IDENTITY, given)

    assert engine == EngineSettings(512, 7, 32, 99, False, False)
    assert source == "given"


def test_kv_tokens_are_whole_blocks():
    # 1,000 tokens hold 62 whole blocks of 16.
    engine, source = served_engine(IDENTITY._replace(kv_tokens=1000), {})

    assert engine.kv_blocks == 62
    assert source == "given as tokens"


@pytest.mark.parametrize(
    ("kv_dtype", "bytes_ratio"), [("bfloat16", 1), ("fp8_e4m3", 2)]
)
def test_kv_blocks_are_estimated_as_for_a_plan_with_a_warning(kv_dtype, bytes_ratio):
    with pytest.warns(CapplanWarning, match="--kv-blocks is not given"):
        engine, source = served_engine(IDENTITY._replace(kv_dtype=kv_dtype), {})

    plain = replica(llm("Llama-3.1-8B"), gpu("L4"), Layout(1), engine).engine.kv_blocks
    assert engine.kv_blocks == pytest.approx(bytes_ratio * plain, rel=0.001)
    assert source == "estimated"


@pytest.mark.parametrize(
    ("identity", "given", "expected"),
    [
        ({"gpu": "Mine-9000"}, {}, "--max-num-batched-tokens and --max-num-seqs"),
        ({"gpu": "Mine-9000"}, {"max_num_seqs": 8}, "give --max-num-batched-tokens$"),
        ({"llm": "Mine-1B"}, {}, "give --kv-blocks or --kv-tokens"),
    ],
)
def test_outside_the_catalogs_the_missing_flags_are_named(identity, given, expected):
    with pytest.raises(InputError, match=expected):
        served_engine(IDENTITY._replace(**identity), given)


def test_outside_the_catalogs_settings_in_full_are_taken():
    given = {"max_num_batched_tokens": 512, "max_num_seqs": 8, "kv_blocks": 50}

    engine, _ = served_engine(IDENTITY._replace(gpu="Mine-9000", llm="Mine-1B"), given)

    assert engine == EngineSettings(512, 8, 16, 50, True, True)
