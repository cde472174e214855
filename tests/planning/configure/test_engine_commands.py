"""The commands that start SGLang and TensorRT-LLM as they were planned."""

import argparse
import shlex

import pytest

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError
from capplan.llm.catalog import llm, llm_names, published
from capplan.planning.configure.configuration import configurations, only_configuration
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.launch import YOURS, launch, read_launch
from capplan.planning.settings.plan import PlanSettings, SimulateSettings

SGLANG_FLAGS = {
    "--attn-dp-size",
    "--chunked-prefill-size",
    "--context-length",
    "--deepep-mode",
    "--disable-overlap-schedule",
    "--disable-radix-cache",
    "--enable-eplb",
    "--enable-mixed-chunk",
    "--ep-num-redundant-experts",
    "--ep-size",
    "--kv-cache-dtype",
    "--language-model-only",
    "--load-balance-method",
    "--max-prefill-tokens",
    "--max-running-requests",
    "--max-total-tokens",
    "--mem-fraction-static",
    "--moe-a2a-backend",
    "--page-size",
    "--quantization",
    "--schedule-conservativeness",
    "--tp-size",
    "--trust-remote-code",
}
"""Of those that SGLang 0.5.23's parser has (srt/arg_groups/fields)."""
TRTLLM_FLAGS = {
    "--enable_chunked_prefill",
    "--ep_size",
    "--extra_llm_api_options",
    "--kv_cache_free_gpu_memory_fraction",
    "--max_batch_size",
    "--max_num_tokens",
    "--max_seq_len",
    "--tp_size",
    "--trust_remote_code",
}
"""Of the options of trtllm-serve, commands/serve.py of NVIDIA/TensorRT-LLM, that both
4c05a748 (2025) and 00209af1 (2026) have."""
KNOWN = {"sglang": SGLANG_FLAGS, "trtllm": TRTLLM_FLAGS}

FITTING = [name for name in llm_names() if llm(name).weight_bytes() < 2e12]
"""LLMs that eight of the largest GPUs hold."""


def asked(llm, engine, gpu="H100-SXM", tp=1, **given):
    prices = dict.fromkeys(gpu.split(","), "1")  # whatever the day
    times = {"latency_ms": "5,0.01,0,0.1,0"}
    shared = {"llm": llm, "engine": engine, "gpu": gpu, "tp": tp, "price": prices}
    return PlanSettings(**shared, **times, **given)


def started(llm, engine, **given):
    settings = asked(llm, engine, **given)
    (configuration,) = configurations(settings)
    assert isinstance(configuration, Configuration), configuration.reason
    return launch(configuration, settings)


def of_all(name, engine):
    """Return the commands for an LLM on the first and last layouts that hold it."""
    settings = asked(name, engine, gpu="B300,B200,H200", tp="1,2,4,8")
    fitting = [x for x in configurations(settings) if not isinstance(x, Excluded)]
    return [(x, launch(x, settings)) for x in (fitting[0], fitting[-1])]


def test_sglang_is_started_with_all_that_the_plan_rests_on():
    # H100: 81,089 MiB less 512 + 1.5 * 8192 + 128 + 2 * 256 + 8 * 58 = 13,904: 0.829
    assert started("Llama-3.1-8B", "sglang").line == (
        "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct "
        "--tp-size 1 --mem-fraction-static 0.829 --context-length 131072 "
        "--chunked-prefill-size 8192 --max-prefill-tokens 16384 "
        "--max-running-requests 2048 --page-size 1 --kv-cache-dtype auto "
        "--schedule-conservativeness 1"
    )


def test_tensorrt_llm_is_started_with_all_that_the_plan_rests_on():
    assert started("Llama-3.1-8B", "trtllm").line == (
        "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 1 "
        "--kv_cache_free_gpu_memory_fraction 0.9 --max_seq_len 131072 "
        "--max_num_tokens 8192 --max_batch_size 2048"
    )


GIVEN = {
    "max_num_batched_tokens": 1024,
    "max_num_seqs": 64,
    "block_size": 32,
    "kv_blocks": 500,
    "gpu_memory_utilization": 0.8,
}


def test_what_the_user_gives_is_on_sglangs_line():
    policy = "sglang:mixed=1,init_ratio=0.35,max_prefill_tokens=4096"

    given = GIVEN | {"prefix_caching": False, "async_scheduling": False}
    flags = started("Llama-3.1-8B", "sglang", scheduler=policy, **given).flags

    assert flags["--chunked-prefill-size"] == "1024"
    assert flags["--max-running-requests"] == "64"
    assert flags["--page-size"] == "32"
    assert flags["--max-total-tokens"] == str(499 * 32)
    assert flags["--mem-fraction-static"] == "0.8"
    assert flags["--schedule-conservativeness"] == "0.5"
    assert flags["--max-prefill-tokens"] == "4096"
    assert flags["--enable-mixed-chunk"] is None
    assert flags["--disable-radix-cache"] is None
    assert flags["--disable-overlap-schedule"] is None
    assert set(flags) <= SGLANG_FLAGS


def test_what_trtllm_serve_has_no_option_for_is_written_into_its_file():
    policy = "trtllm:policy=max_utilization,chunked=1"

    given = GIVEN | {"async_scheduling": False}
    found = started("Llama-3.1-8B", "trtllm", scheduler=policy, **given)

    assert found.flags["--extra_llm_api_options"] == "trtllm.yaml"
    assert found.flags["--enable_chunked_prefill"] is None
    assert found.notes == (
        "write into trtllm.yaml: kv_cache_config: {tokens_per_block: 32, max_tokens: "
        "15968, free_gpu_memory_fraction: 0.8}; disable_overlap_scheduler: true; "
        "scheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}",
    )


@pytest.mark.parametrize("engine", KNOWN)
@pytest.mark.parametrize("name", FITTING)
def test_every_flag_is_one_that_the_engine_has_and_is_read_back(name, engine):
    for _, found in of_all(name, engine):
        assert found.engine.name == engine
        assert set(found.flags) <= KNOWN[engine]
        assert found.checkpoint in {*published(name).checkpoints.values(), YOURS}
        assert read_launch(found.line, found.notes) == found
        assert found.serving("org/mine").checkpoint == "org/mine"
        assert found.serving("org/mine").flags == found.flags


@pytest.mark.parametrize(
    ("gpu", "tp", "chunk", "page"),
    [("L4", 1, "4096", "1"), ("H200-SXM", 2, "8192", "1"), ("B200", 2, "16384", "64")],
)
def test_sglangs_defaults_go_by_the_gpu(gpu, tp, chunk, page):
    flags = started("Qwen3-8B", "sglang", gpu=gpu, tp=tp).flags

    assert (flags["--chunked-prefill-size"], flags["--page-size"]) == (chunk, page)


def test_each_engine_shares_memory_by_its_own_rule():
    def held(engine):
        (found,) = configurations(asked("Llama-3.1-8B", engine))
        return found.replica.budget

    vllm, sglang, trtllm = map(held, ("vllm", "sglang", "trtllm"))
    memory, weights = vllm.memory_bytes, vllm.weight_bytes
    rest = vllm.activation_bytes + vllm.runtime_bytes
    own = trtllm.activation_bytes + trtllm.runtime_bytes

    assert vllm.kv_bytes == int(memory * 0.92) - weights - rest
    # of what is free before it loads
    free = memory - sglang.context_bytes
    assert sglang.kv_bytes == int(free * 0.829) - weights
    assert trtllm.kv_bytes == int((memory - weights - own) * 0.9)


def of_layouts(engine, **given):
    """Return the commands for DeepSeek-R1 on H200 by layout."""
    settings = PlanSettings(llm="DeepSeek-R1", gpu="H200", engine=engine, **given)
    found = configurations(settings)
    fitting = [row for row in found if not isinstance(row, Excluded)]
    return {str(row.layout): (row, launch(row, settings)) for row in fitting}


def flags_of(started):
    """Return a command's flags with their values; True for those without."""
    words = started.words
    values = [*words[1:], "--"]
    return {
        word: True if value.startswith("--") else value
        for word, value in zip(words, values, strict=True)
        if word.startswith("--")
    }


@pytest.mark.filterwarnings("ignore")
def test_sglang_has_tokens_and_requests_of_all_ranks():
    # parallel_hook.py and pool_configurator.py: with DP attention
    # it divides both by the ranks, and multiplies the conservativeness by 0.3.
    found = of_layouts("sglang")
    ranks, command = found["dp8-ep8"]

    flags = flags_of(command)

    assert flags["--tp-size"] == flags["--attn-dp-size"] == flags["--ep-size"] == "8"
    assert command.notes == (
        "older releases have --dp-size 8 --enable-dp-attention for --attn-dp-size 8",
    )
    engine = ranks.engine
    assert int(flags["--chunked-prefill-size"]) == 8 * engine.max_num_batched_tokens
    assert int(flags["--max-running-requests"]) == 8 * engine.max_num_seqs
    assert float(flags["--schedule-conservativeness"]) == pytest.approx(1 / 0.3, 1e-4)
    assert flags["--load-balance-method"] == "round_robin"
    experts = flags_of(found["tp8-ep8"][1])
    assert experts["--tp-size"] == experts["--ep-size"] == "8"
    assert "--attn-dp-size" not in experts
    assert "--ep-size" not in flags_of(found["dp8"][1])
    for _, started in found.values():
        assert set(flags_of(started)) - {"--model-path"} <= SGLANG_FLAGS
        assert read_launch(started.line).words == started.words


@pytest.mark.filterwarnings("ignore")
def test_sglang_is_told_of_copies_of_experts_and_of_deepep():
    apart = {"enable_expert_parallel": True}
    copies = {"enable_eplb": True, "eplb_config": '{"num_redundant_experts": 32}'}
    backend = {"all2all_backend": "deepep_low_latency", "max_num_batched_tokens": 512}

    level = flags_of(of_layouts("sglang", **apart, **copies)["dp8-ep8"][1])
    sent = flags_of(of_layouts("sglang", **apart, **backend)["dp8-ep8"][1])

    assert level["--enable-eplb"] is True
    assert level["--ep-num-redundant-experts"] == "32"
    assert sent["--moe-a2a-backend"] == "deepep"
    assert sent["--deepep-mode"] == "low_latency"
    assert set(level) | set(sent) <= SGLANG_FLAGS | {"--model-path"}


@pytest.mark.filterwarnings("ignore")
def test_tensorrt_llms_ranks_are_in_its_file_and_have_a_gpu_each():
    found = of_layouts("trtllm")
    ranks, command = found["dp8-ep8"]

    flags = flags_of(command)

    assert flags["--tp_size"] == flags["--ep_size"] == "8"
    # Its ranks take both by themselves.
    assert int(flags["--max_num_tokens"]) == ranks.engine.max_num_batched_tokens
    assert int(flags["--max_batch_size"]) == ranks.engine.max_num_seqs
    assert command.notes == ("write into trtllm.yaml: enable_attention_dp: true",)
    assert set(flags) <= TRTLLM_FLAGS
    eplb = of_layouts("trtllm", enable_expert_parallel=True, enable_eplb=True)
    assert "EPLB" in eplb["dp8-ep8"][1].notes[0]
    assert not eplb["dp8-ep8"][1].words


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_kv_that_a_group_shares_is_vllms_alone(engine):
    """Another engine's command would start it with an eighth of the planned KV."""
    asked = {"llm": "DeepSeek-R1", "gpu": "H200", "tp": 8, "engine": engine}
    settings = SimulateSettings(**asked, decode_context_parallel_size=8)

    with pytest.raises(InputError, match=f"--engine {engine} is not modelled"):
        only_configuration(settings)


def test_a_version_beside_times_in_milliseconds_is_refused():
    with pytest.raises(InputError, match="engine is of a profile; latency_ms takes"):
        asked("Llama-3.1-8B", "sglang@0.5.14")


@pytest.fixture(scope="module")
def sglang_reads():
    """What SGLang's own parser reads from a line."""
    args = pytest.importorskip("sglang.srt.server_args")
    parser = argparse.ArgumentParser()
    args.ServerArgs.add_cli_args(parser)
    return lambda line: parser.parse_args(shlex.split(line)[3:])


@pytest.mark.sglang
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITTING)
def test_sglangs_own_parser_reads_the_launch_line(name, sglang_reads):
    for configuration, found in of_all(name, "sglang"):
        args, engine = sglang_reads(found.line), configuration.engine

        assert args.model_path == found.checkpoint
        assert args.tp_size == configuration.tp
        assert args.chunked_prefill_size == engine.max_num_batched_tokens
        assert args.max_running_requests == engine.max_num_seqs
        assert args.context_length == engine.max_model_len
        assert args.mem_fraction_static == configuration.replica.budget.utilization


@pytest.mark.sglang
@pytest.mark.filterwarnings("ignore")
def test_sglangs_own_parser_reads_the_layouts(sglang_reads):
    for configuration, found in of_layouts("sglang").values():
        args, layout = sglang_reads(found.line), configuration.layout

        assert (args.tp_size, args.ep_size) == (layout.gpus, layout.ep)
        assert args.attn_dp_size == layout.dp
