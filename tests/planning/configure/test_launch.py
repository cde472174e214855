"""The command that starts the engine that was planned."""

import json
import shlex
from dataclasses import replace

import pytest

from capplan.deployment.configuration import Configuration
from capplan.llm.catalog import llm, llm_names, published
from capplan.planning.configure.configuration import configurations
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.launch import YOURS, launch, read_launch
from capplan.planning.settings.plan import PlanSettings

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
EVERY_SETTING = {
    "max_num_batched_tokens": 1024,
    "max_num_seqs": 64,
    "block_size": 32,
    "kv_blocks": 500,
    "gpu_memory_utilization": 0.8,
    "prefix_caching": False,
    "async_scheduling": False,
    "scheduler": "vllm-v1-priority",
}

FITTING = [name for name in llm_names() if llm(name).weight_bytes() < 2e12]
"""LLMs that eight of the largest GPUs hold."""


def asked(llm, gpu="H100-SXM", tp=1, **given):
    prices = dict.fromkeys(gpu.split(","), "1")  # whatever the day
    times = {"latency_ms": "5,0.01,0,0.1,0"}
    return PlanSettings(llm=llm, gpu=gpu, tp=tp, price=prices, **times, **given)


def started(llm, **given):
    settings = asked(llm, **given)
    (configuration,) = configurations(settings)
    assert isinstance(configuration, Configuration), configuration.reason
    return launch(configuration, settings)


def test_the_launch_line_gives_every_setting_that_the_plan_rests_on():
    assert started("Llama-3.1-70B", tp=4).line == (
        "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 "
        "--gpu-memory-utilization 0.92 --max-model-len 131072 --block-size 16 "
        "--kv-cache-dtype auto --max-num-batched-tokens 8192 --max-num-seqs 1024 "
        "--async-scheduling --enable-prefix-caching"
    )


def test_the_launch_line_has_the_settings_that_the_user_gave():
    assert started("Llama-3.1-8B", tp=2, **EVERY_SETTING).line == (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 "
        "--gpu-memory-utilization 0.8 --max-model-len 15968 "
        "--num-gpu-blocks-override 500 --block-size 32 --kv-cache-dtype auto "
        "--max-num-batched-tokens 1024 --max-num-seqs 64 --no-async-scheduling "
        "--no-enable-prefix-caching --scheduling-policy priority"
    )


def test_a_longest_request_that_fills_the_computed_kv_is_noted():
    small = started("Llama-3.1-8B", gpu="A10G")
    large = started("Llama-3.1-8B")

    (words,) = [note for note in small.notes if "--max-model-len" in note]
    assert "fills the computed KV" in words
    assert large.notes == ()


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Llama-3.1-8B-FP8", "nvidia/Llama-3.1-8B-Instruct-FP8"),
        ("Qwen3-8B-FP8", "Qwen/Qwen3-8B-FP8"),
        ("Qwen3-32B-FP8-dynamic", "RedHatAI/Qwen3-32B-FP8-dynamic"),
        # What nobody has published in FP8 is quantized while it is loaded.
        ("Llama-2-7B-FP8", "meta-llama/Llama-2-7b-chat-hf --quantization fp8"),
        ("Phi-4-FP8-block", "microsoft/phi-4 --quantization fp8_per_block"),
        # The user's own repository is served as it is named.
        ("my-team/Llama-3.1-8B-FP8", "my-team/Llama-3.1-8B-FP8"),
        ("Phi-4-AWQ", YOURS),
        ("Gemma-3-4B", "google/gemma-3-4b-it --language-model-only"),
    ],
)
def test_the_launch_line_names_the_checkpoint_on_hugging_face(name, served):
    assert started(name).line.startswith(f"vllm serve {served} --")


def test_a_checkpoint_that_nobody_has_published_is_said():
    assert started("Phi-4-AWQ").notes == (
        "no checkpoint of Phi-4 in int4 is listed; name yours",
    )


def test_a_tuning_that_the_catalog_does_not_list_is_said():
    thinking = started("Qwen3-4B-Thinking-2507")

    assert thinking.notes == (
        "Qwen3-4B-Thinking-2507 is planned as Qwen3-4B-2507; serve your checkpoint "
        "of it",
    )
    assert started("Qwen3-4B-Instruct-2507").notes == ()


def test_a_folder_is_quoted_for_the_shell(tmp_path):
    folder = tmp_path / "my llm"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY))

    assert shlex.split(started(str(folder)).line)[2] == str(folder)


@pytest.mark.parametrize(
    ("name", "tp"), [("DeepSeek-R1", 8), ("Qwen3-Next-80B-A3B", 8), ("Gemma-4-31B", 1)]
)
def test_vllm_picks_the_block_size_of_latent_attention_states_mixed_heads(name, tp):
    words = started(name, gpu="B200", tp=tp, block_size=64).words

    assert "--block-size" not in started(name, gpu="B200", tp=tp).words
    assert words[words.index("--block-size") + 1] == "64"


def test_states_are_started_with_the_prefix_caching_that_is_simulated():
    drafts = '{"method": "mtp", "num_speculative_tokens": 1}'
    states = started("Qwen3-Next-80B-A3B", gpu="B200", tp=8)
    drafted = started(
        "Qwen3-Next-80B-A3B",
        gpu="B200",
        tp=8,
        speculative_config=drafts,
        acceptance_rates="0.8",
    )

    assert "--enable-prefix-caching" in states.words
    assert "--enable-prefix-caching" in drafted.words


@pytest.mark.filterwarnings("ignore:.*attention to fp8 KV is assumed to take")
@pytest.mark.parametrize(("dtype", "value"), [("fp8", "fp8"), ("bf16", "auto")])
def test_the_launch_line_has_the_dtype_of_the_kv_cache(dtype, value):
    words = started("Llama-3.1-8B", kv_cache_dtype=dtype).words

    assert words[words.index("--kv-cache-dtype") + 1] == value


def test_quantized_weights_keep_the_planned_kv_cache():
    """Some checkpoints say that their KV is FP8, which "auto" would follow."""
    words = started("Llama-3.1-8B-FP8").words

    assert words[words.index("--kv-cache-dtype") + 1] == "bfloat16"


def test_caching_that_no_request_uses_is_on_in_the_engine_that_is_started():
    settings = asked("Llama-3.1-8B")
    (configuration,) = configurations(settings)
    off = replace(configuration.engine, prefix_caching=False)

    unused = replace(configuration, engine=off, caching_unused=True)
    words = launch(unused, settings).words

    assert "--enable-prefix-caching" in words


def test_no_release_of_vllm_is_started_for_another_scheduler():
    other = started("Llama-3.1-8B", scheduler="orca")

    assert other.words == ()
    assert other.notes[0].endswith("no vllm serve command: vLLM does not")


def test_seats_that_nobody_gave_are_no_more_than_the_tokens_of_an_iteration():
    words = started("Llama-3.1-8B", max_num_batched_tokens=512).words

    assert words[words.index("--max-num-seqs") + 1] == "512"


def test_more_seats_than_tokens_are_not_started():
    given = {"max_num_batched_tokens": 512, "max_num_seqs": 1024}

    assert started("Llama-3.1-8B", **given).notes == (
        "vllm serve refuses fewer max_num_batched_tokens than max_num_seqs",
    )


def test_without_an_llm_nothing_can_be_started():
    (configuration,) = configurations(asked("Llama-3.1-8B"))

    assert launch(configuration, PlanSettings()) is None


@pytest.mark.parametrize("name", [x for x in llm_names() if x != "OPT-175B"])
def test_every_llm_of_the_catalog_names_its_checkpoint(name):
    entry = published(name)

    assert entry is not None
    assert entry.checkpoints
    assert entry.is_named
    assert all(x.count("/") == 1 for x in entry.checkpoints.values())


@pytest.mark.parametrize("name", FITTING)
def test_a_launch_line_that_is_read_is_the_same(name):
    settings = asked(name, gpu="B300,B200", tp="1,2,4,8", **EVERY_SETTING)
    fitting = [x for x in configurations(settings) if not isinstance(x, Excluded)]
    started = launch(fitting[0], settings)

    read = read_launch(started.line, started.notes)

    assert read == started
    assert read.checkpoint == started.words[2]
    assert read.flags["--max-num-seqs"] == "64"
    assert read.flags["--no-async-scheduling"] is None
    arguments = read.arguments
    assert arguments["max_num_seqs"] == 64
    assert arguments["gpu_memory_utilization"] == 0.8
    assert arguments["async_scheduling"] is arguments["enable_prefix_caching"] is False
    assert arguments["scheduling_policy"] == "priority"


def test_a_replica_across_nodes_keeps_its_flags():
    alone = started("Llama-3.1-70B", tp=4)

    across = alone.across("2", "0", "10.0.0.1")

    assert across.flags == alone.flags | {
        "--nnodes": "2",
        "--node-rank": "0",
        "--master-addr": "10.0.0.1",
    }


@pytest.fixture(scope="module")
def served():
    """What vLLM's own parser reads from a line."""
    pytest.importorskip("vllm", reason="vLLM is not installed here")
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser, command = FlexibleArgumentParser(), ServeSubcommand()
    command.subparser_init(parser.add_subparsers(dest="subparser"))

    def parse(line):
        args = parser.parse_args(shlex.split(line)[1:])
        command.validate(args)
        return args

    return parse


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", FITTING)
def test_vllms_own_parser_reads_the_launch_line(name, served):
    settings = asked(name, gpu="B300,B200", tp="1,2,4,8")
    fitting = [x for x in configurations(settings) if not isinstance(x, Excluded)]
    assert fitting
    for configuration in (fitting[0], fitting[-1]):
        line = launch(configuration, settings).line

        args = served(line)

        engine = configuration.engine
        assert args.model_tag in {*published(name).checkpoints.values(), YOURS}
        assert args.tensor_parallel_size == configuration.tp
        assert args.max_num_batched_tokens == engine.max_num_batched_tokens
        assert args.max_num_seqs == engine.max_num_seqs
        assert args.max_model_len == engine.max_model_len
        assert args.async_scheduling == engine.async_scheduling
        assert args.enable_prefix_caching == engine.prefix_caching


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*attention to bf16 KV is assumed to take")
@pytest.mark.parametrize("gpu", ["H200", "GB200"])
def test_vllms_own_parser_reads_the_flags_of_ranks_and_experts(gpu, served):
    settings = PlanSettings(
        llm="DeepSeek-R1",
        gpu=gpu,
        price={gpu: "1"},
        engine="vllm",
        enable_expert_parallel=True,
        enable_eplb=True,
        eplb_config={"num_redundant_experts": 32},
    )
    asking = settings.model_copy(
        update={"data_parallel_size": (8, 16), "prefill_schedule_interval": 4}
    )
    found = [*configurations(settings), *configurations(asking)]
    fitting = [row for row in found if not isinstance(row, Excluded)]
    # On GB200 a node of 4 GPUs has no room for one rank with copies of experts.
    assert {row.layout.dp for row in fitting} >= ({1, 8} if gpu == "H200" else {8, 16})
    for configuration in fitting:
        args = served(launch(configuration, asking).line)

        layout, engine = configuration.layout, configuration.engine
        assert args.tensor_parallel_size == layout.tp
        assert args.data_parallel_size == layout.dp
        assert args.enable_expert_parallel
        assert args.all2all_backend == "allgather_reducescatter"
        assert args.enable_eplb
        assert args.eplb_config.num_redundant_experts == 32
        assert args.prefill_schedule_interval == engine.prefill_schedule_interval
        assert args.max_num_batched_tokens == engine.max_num_batched_tokens
        assert args.api_server_count in (None, 1)


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vllms_own_parser_reads_the_degree_of_context_parallelism(served):
    settings = asked("DeepSeek-R1", gpu="B200", tp=8, decode_context_parallel_size=8)
    (one,) = configurations(settings)

    args = served(launch(one, settings).line)

    assert args.decode_context_parallel_size == 8
    assert args.tensor_parallel_size == 8


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vllms_own_parser_reads_the_line_of_ranks_that_decode_with_drafts(served):
    drafts = {"method": "mtp", "num_speculative_tokens": 1}
    settings = PlanSettings(
        llm="DeepSeek-R1",
        gpu="B200",
        tp=1,
        data_parallel_size="8",
        speculative_config=drafts,
    )
    one, *_ = (x for x in configurations(settings) if not isinstance(x, Excluded))

    args = served(launch(one, settings, "nixl").line)

    assert args.data_parallel_size == 8
    assert args.speculative_config == drafts
    assert args.kv_transfer_config.kv_connector == "NixlConnector"


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vllms_own_parser_reads_the_stages(served):
    settings = asked("Llama-3.1-8B", tp=2, pipeline_parallel_size=4)
    (one,) = configurations(settings)

    args = served(launch(one, settings).line)

    assert args.tensor_parallel_size == 2
    assert args.pipeline_parallel_size == 4


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vllms_own_parser_reads_the_slots_of_adapters(served):
    slots = {"max_loras": 4, "max_cpu_loras": 8, "max_lora_rank": 32}
    settings = asked("Llama-3.1-8B", enable_lora=True, lora_slowdown=0.1, **slots)
    (one,) = configurations(settings)

    args = served(launch(one, settings).line)

    assert args.enable_lora
    assert {name: getattr(args, name) for name in slots} == slots


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vllms_own_parser_reads_the_limit_of_images(served):
    settings = asked(
        "Qwen3-VL-8B",
        limit_mm_per_prompt='{"image": 4}',
        mm_encoder_tp_mode="data",
        image_encode_ms=20,
        tp=2,
    )
    (one,) = configurations(settings)

    args = served(launch(one, settings).line)

    assert args.limit_mm_per_prompt == {"image": 4, "video": 0}
    assert args.mm_encoder_tp_mode == "data"
    assert not args.language_model_only


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vllm_arrives_at_the_engine_that_was_planned(served, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm.engine.arg_utils import AsyncEngineArgs

    (tmp_path / "config.json").write_text(json.dumps(TINY))
    given = EVERY_SETTING | {"prefix_caching": True}
    settings = asked(str(tmp_path), **given)
    (configuration,) = configurations(settings)
    engine = configuration.engine

    args = served(launch(configuration, settings).line)
    args.model = args.model_tag
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config()

    scheduler, cache = config.scheduler_config, config.cache_config
    assert scheduler.max_num_batched_tokens == engine.max_num_batched_tokens
    assert scheduler.max_num_seqs == engine.max_num_seqs
    assert scheduler.async_scheduling == engine.async_scheduling
    assert scheduler.policy == "priority"
    assert scheduler.enable_chunked_prefill
    assert cache.block_size == engine.block_size
    assert cache.num_gpu_blocks_override == engine.kv_blocks
    assert cache.enable_prefix_caching == engine.prefix_caching
    assert cache.gpu_memory_utilization == configuration.replica.budget.utilization
    assert cache.cache_dtype == "auto"
    assert config.model_config.max_model_len == engine.max_model_len
    assert config.parallel_config.tensor_parallel_size == configuration.tp
