"""Configurations come from the catalog, from profiles, or from both."""

import pytest
import yaml

from capplan.deployment.configuration import Configuration
from capplan.errors import CapplanWarning, ExtrapolationWarning, InputError
from capplan.latency.catalog import find_profile, named_rank_profile, profile_path
from capplan.latency.profile_file import save_profile
from capplan.planning.configure.configuration import configurations
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings

LIMITS = {
    "max_num_batched_tokens": 2048,
    "max_num_seqs": 128,
    "max_model_len": 4096,
    "kv_blocks": 500,
    "block_size": 32,
    "async_scheduling": False,
}


def profile_of(tmp_path, gpu, **more):
    path = profile_path(tmp_path, gpu, "Llama-3.1-8B", 1)
    path.parent.mkdir(parents=True)
    content = {
        "schema": "capplan-profile/1",
        "gpu": gpu,
        "llm": "Llama-3.1-8B",
        "tp": 1,
        "engine": "vllm",
        "engine_version": "0.32.0",
        "source": "a test",
        "how": "measured",
        "decode_form": "aladdin",
        "fused_form": "aladdin",
        "decode": {"constant_s": 0.01, "per_request_s": 1e-4},
        "fused": {"constant_s": 0.01, "per_token_s": 1e-5},
        "kv_tokens": 499 * 32,
        "block_size": 32,
        "meta": LIMITS,
    }
    path.write_text(yaml.safe_dump({**content, **more}))
    return path


def only(**settings) -> Configuration:
    (one,) = configurations(PlanSettings(llm="Llama-3.1-8B", **settings))
    assert isinstance(one, Configuration), one.reason
    return one


def test_machine_that_only_a_profile_knows_is_planned_as_it_was_measured(tmp_path):
    profile_of(tmp_path, "cpu-of-ours")

    one = only(profiles=tmp_path, gpu="cpu-of-ours", price="cpu-of-ours=0.2")

    assert (one.engine.kv_blocks, one.engine.block_size) == (500, 32)
    assert one.engine.max_num_seqs == 128
    assert not one.engine.async_scheduling
    assert one.price.usd_per_gpu_h == 0.2
    assert one.replica is None


def test_settings_asked_for_go_before_those_measured(tmp_path):
    profile_of(tmp_path, "cpu-of-ours")

    one = only(profiles=tmp_path, gpu="cpu-of-ours", max_num_seqs=16, kv_blocks=80)

    assert (one.engine.max_num_seqs, one.engine.kv_blocks) == (16, 80)


def test_measured_profile_of_a_known_gpu_brings_its_engine_settings(tmp_path):
    profile_of(tmp_path, "H100-SXM")

    one = only(profiles=tmp_path, gpu="H100", tp="1")

    assert one.engine.max_num_batched_tokens == 2048
    assert one.engine.kv_blocks == 499
    assert one.replica.kv_source == "reported by the engine"


def test_shipped_kernel_sums_leave_the_settings_to_vllms_defaults():
    one = only(gpu="H100", tp="1")

    assert one.engine.max_num_batched_tokens == 8192
    assert one.engine.max_num_seqs == 1024


def test_above_tp_2_a_gpu_without_nvlink_is_looked_at_only_when_asked():
    price = {"L40S": "1.5"}
    request = PlanSettings(llm="Llama-3.1-8B", gpu="L40S", price=price)
    every = list(configurations(request))
    asked = only(gpu="L40S", tp="4", price=price)

    assert [(one.tp, isinstance(one, Configuration)) for one in every] == [
        (1, True),
        (2, True),
        (4, False),
        (8, False),
    ]
    assert every[2].reason == (
        "no NVLink: all-reduces of 4 GPUs reach 3.7 GB/s over PCIe; give --tp 4 to "
        "plan it"
    )
    assert asked.tp == 4


def test_profile_found_from_a_served_run_says_so_and_what_it_does_not_know(tmp_path):
    meta = {**LIMITS, "found_by": "simulation of a served run"}
    profile_of(tmp_path, "cpu-of-ours", meta={**meta, "not_identified": "decode_s"})

    one = only(profiles=tmp_path, gpu="cpu-of-ours")

    assert "found by simulation of a served run" in one.note
    assert "not identified: decode_s" in one.note
    assert "measured on the engine itself" not in one.note


def test_gpu_that_neither_catalog_nor_profile_knows_is_refused(tmp_path):
    profile_of(tmp_path, "cpu-of-ours")

    with pytest.raises(InputError, match="unknown GPU"):
        only(profiles=tmp_path, gpu="cpu-of-theirs")


def test_profile_without_kv_blocks_needs_them_given(tmp_path):
    profile_of(tmp_path, "cpu-of-ours", meta={}, kv_tokens=None)
    request = PlanSettings(llm="Llama-3.1-8B", gpu="cpu-of-ours", profiles=tmp_path)

    (one,) = configurations(request)

    assert "--kv-blocks" in one.reason


def test_an_fp8_cache_holds_twice_the_tokens_and_says_what_the_latency_is_of():
    with pytest.warns(ExtrapolationWarning, match="measured with bf16 KV"):
        small = only(gpu="H100-SXM", tp="1", kv_cache_dtype="fp8")
    usual = only(gpu="H100-SXM", tp="1")

    assert usual.replica.kv_dtype == "bf16"
    assert small.engine.kv_blocks == pytest.approx(2 * usual.engine.kv_blocks, abs=1)
    same = only(gpu="H100-SXM", tp="1", kv_cache_dtype="bf16")
    assert same.replica == usual.replica


def test_auto_gives_an_fp8_checkpoint_without_a_kv_scheme_16_bit_kv():
    named = "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"
    asked = {"gpu": "H100-SXM", "tp": "2", "gpu_memory_utilization": 0.95}

    with pytest.warns(ExtrapolationWarning, match="attention to bf16 KV .* 2 times"):
        (auto,) = configurations(PlanSettings(llm=named, **asked))
    (asked_for,) = configurations(
        PlanSettings(llm=named, **asked, kv_cache_dtype="fp8")
    )

    assert (auto.replica.kv_dtype, asked_for.replica.kv_dtype) == ("bf16", "fp8")
    assert auto.engine.kv_capacity_tokens == pytest.approx(244_000, rel=0.04)
    assert auto.tables.decode_context_s == pytest.approx(
        2 * asked_for.tables.decode_context_s
    )


def test_blocks_and_kv_dtype_are_taken_together_as_a_fleet_states_both(tmp_path):
    profile_of(tmp_path, "cpu-of-ours")
    stated = {"kv_blocks": 900, "kv_cache_dtype": "fp8"}

    with pytest.warns(ExtrapolationWarning, match="0.5 times"):
        known = only(gpu="H100-SXM", tp="1", **stated)
    own = only(profiles=tmp_path, gpu="cpu-of-ours", **stated)
    bf16 = only(gpu="H100-SXM", tp="1")

    for one in (known, own):
        assert one.engine.kv_blocks == 900
    assert known.replica.kv_dtype == "fp8"
    assert known.engine.kv_block_bytes == bf16.engine.kv_block_bytes / 2
    assert own.engine.kv_block_bytes == known.engine.kv_block_bytes * 2  # of 32 tokens
    assert known.tables.decode_context_s == pytest.approx(
        bf16.tables.decode_context_s / 2
    )


def test_a_measured_capacity_holds_for_the_kv_it_was_measured_with(tmp_path):
    profile_of(tmp_path, "H100-SXM")
    profile_of(tmp_path, "cpu-of-ours")

    with pytest.warns(ExtrapolationWarning, match="measured with bf16 KV"):
        known = only(profiles=tmp_path, gpu="H100", tp="1", kv_cache_dtype="fp8")
    settings = PlanSettings(
        llm="Llama-3.1-8B", profiles=tmp_path, gpu="cpu-of-ours", kv_cache_dtype="fp8"
    )
    (unknown,) = configurations(settings)

    assert known.replica.kv_source == "estimated"
    assert "its KV blocks are of bf16; give --kv-blocks" in unknown.reason


def test_gpu_without_a_price_is_said_and_never_wins_by_cost():
    settings = {
        "workload": "synthetic:prompt=300,output=80,n=2000",
        "rate": 5.0,
        "llm": "gpt-oss-20b",
        "tp": (1,),
        "slo": ("ttft=2s",),
        "price": {"H100-SXM": "4"},
    }
    beside = plan(PlanSettings(**settings, gpu=("GB300", "H100-SXM")))
    alone = plan(PlanSettings(**settings | {"price": {}}, gpu=("GB300",)))

    assert (beside.best.gpu, beside.best.gpu_count) == ("H100-SXM", 1)
    assert (alone.best.gpu, alone.best.cost) == ("GB300", None)
    for found in (beside, alone):
        (told,) = [text for text in found.warnings if "price" in text]
        assert told.startswith("no price is known for GB300")
        assert "--price GB300=DOLLARS" in told


def test_ones_own_profiles_of_ranks_are_not_taken_with_tp_alone(tmp_path):
    ranks = named_rank_profile("H200-SXM/DeepSeek-R1/tp8-ep8")
    tp_alone = find_profile("DeepSeek-R1", "H200-SXM", 8)
    mine = tp_alone.model_copy(update={"source": "kernels of mine"})
    save_profile(ranks, tmp_path / "H200-SXM" / "DeepSeek-R1" / "dp8-ep8.yaml")
    save_profile(mine, tmp_path / "mine.yaml")
    settings = PlanSettings(
        llm="DeepSeek-R1", gpu="H200-SXM", tp=8, profiles=tmp_path, price="H200-SXM=3"
    )

    with pytest.warns(CapplanWarning, match="profiles of tp8-ep8 of DeepSeek-R1 on H2"):
        found = list(configurations(settings))

    (one,) = found
    assert one.tp == 8
    assert one.profile.source.startswith("kernels of mine")


def test_ones_own_profiles_of_ranks_are_taken_before_the_shipped(tmp_path):
    ranks = named_rank_profile("H200-SXM/DeepSeek-R1/dp8-ep8")
    mine = ranks.model_copy(update={"source": "kernels of mine"})
    save_profile(mine, tmp_path / "H200-SXM" / "DeepSeek-R1" / "dp8-ep8.yaml")
    tp_alone = find_profile("DeepSeek-R1", "H200-SXM", 8)
    save_profile(tp_alone, tmp_path / "mine.yaml")
    settings = PlanSettings(
        llm="DeepSeek-R1", gpu="H200-SXM", profiles=tmp_path, price="H200-SXM=3"
    )

    found = {str(row.layout): row for row in configurations(settings)}

    assert found["dp8-ep8"].profile.source.startswith("kernels of mine")
    assert not found["tp8-ep8"].profile.source.startswith("kernels of mine")
