"""Flags that start SGLang and TensorRT-LLM as they were planned.

``python -m sglang.launch_server`` of SGLang 0.5.23 (srt/server_args.py);
``trtllm-serve`` of TensorRT-LLM (commands/serve.py), whose options were the same in the
releases of 2025 and 2026.
"""

from collections.abc import Callable

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.llm.catalog import llm as find_llm
from capplan.llm.dtypes import UNQUANTIZED
from capplan.llm.memory import DEFAULT_UTILIZATION
from capplan.planning.settings.groups import ConfigurationSettings
from capplan.planning.settings.layouts import DEEPEP, LayoutSettings

Flags = tuple[list[str], tuple[str, ...]]
"""Words after the checkpoint, and notes."""

_OPTIONS = "trtllm.yaml"
"""File of what trtllm-serve has no flags for."""
_SGLANG_KV = {"fp8": "fp8_e4m3", "bf16": "bf16"}
"""Values of SGLang's ``--kv-cache-dtype``."""
_INIT_RATIO = 0.7
"""SGLang's share of the answers' limits at first, at a conservativeness of 1."""
_OF_RANKS = 0.3
"""What SGLang multiplies the conservativeness by with DP attention (parallel_hook)."""


def _memory_share(configuration: Configuration) -> float:
    if configuration.replica is None:
        return DEFAULT_UTILIZATION
    return configuration.replica.budget.utilization


def _has_length(engine: EngineSettings) -> bool:
    return engine.max_model_len < EngineSettings().max_model_len


def kv_dtype_told(configuration: Configuration, settings: ConfigurationSettings) -> str:
    """Return the KV's dtype that an engine is to be told; empty: the checkpoint's own.

    The checkpoint's own is FP8 in some that are quantized.
    """
    kv_dtype = configuration.kv_dtype or settings.kv_cache_dtype
    llm = find_llm(str(settings.llm))
    is_own = kv_dtype in UNQUANTIZED and llm.weight_dtype in UNQUANTIZED
    return "" if is_own else kv_dtype


def sglang(
    configuration: Configuration,
    settings: ConfigurationSettings,
    serve_flags: tuple[str, ...],
) -> Flags:
    """Return the flags of ``python -m sglang.launch_server``.

    With DP attention tokens of an iteration and requests are of all ranks there.
    """
    engine, policy = configuration.engine, configuration.engine.scheduler.settings
    ranks = configuration.layout.dp
    words = [*serve_flags, *_sglang_layout(configuration, settings)]
    words += ["--mem-fraction-static", f"{_memory_share(configuration):g}"]
    if _has_length(engine):
        words += ["--context-length", str(engine.max_model_len)]
    if settings.kv_blocks is not None:
        words += ["--max-total-tokens", str(engine.kv_capacity_tokens)]
    words += ["--chunked-prefill-size", str(ranks * engine.max_num_batched_tokens)]
    words += ["--max-prefill-tokens", str(policy["max_prefill_tokens"])]
    words += ["--max-running-requests", str(ranks * engine.max_num_seqs)]
    if not engine.bounded_groups:
        words += ["--page-size", str(engine.block_size)]
    told = _SGLANG_KV.get(kv_dtype_told(configuration, settings), "auto")
    words += ["--kv-cache-dtype", told]
    conservativeness = policy["init_ratio"] / _INIT_RATIO
    if ranks > 1:
        conservativeness /= _OF_RANKS
    words += ["--schedule-conservativeness", f"{conservativeness:g}"]
    if policy["mixed"]:
        words.append("--enable-mixed-chunk")
    if not (engine.prefix_caching or configuration.caching_unused):
        words.append("--disable-radix-cache")
    if not engine.async_scheduling:
        words.append("--disable-overlap-schedule")
    notes: tuple[str, ...] = ()
    if engine.bounded_groups:
        notes = ("SGLang shares KV between kinds of layers by itself, not as planned",)
    if ranks > 1:
        older = f"--dp-size {ranks} --enable-dp-attention"
        notes += (f"older releases have {older} for --attn-dp-size {ranks}",)
    if configuration.nodes_per_replica > 1:
        nodes = configuration.nodes_per_replica
        where = f"--nnodes {nodes} --node-rank RANK --dist-init-addr ADDRESS:PORT"
        notes += (f"on each of its {nodes} nodes, with {where}",)
    return words, notes


def _sglang_layout(
    configuration: Configuration, settings: ConfigurationSettings
) -> list[str]:
    """Return the flags of ranks and of experts; its TP size is of all GPUs."""
    layout = configuration.layout
    words = ["--tp-size", str(layout.gpus)]
    if layout.dp > 1:
        words += ["--attn-dp-size", str(layout.dp)]
        words += ["--load-balance-method", "round_robin"]
    if layout.ep > 1:
        words += ["--ep-size", str(layout.ep)]
        if configuration.all_to_all == DEEPEP:
            words += ["--moe-a2a-backend", "deepep", "--deepep-mode", "low_latency"]
        if isinstance(settings, LayoutSettings) and settings.enable_eplb:
            copies = str(layout.redundant_experts)
            words += ["--enable-eplb", "--ep-num-redundant-experts", copies]
    return words


def trtllm(
    configuration: Configuration,
    settings: ConfigurationSettings,
    serve_flags: tuple[str, ...],
) -> Flags:
    """Return the options of ``trtllm-serve``, and what to write into its file.

    Its DP attention has a rank on each GPU; tokens and requests are of a rank.
    """
    engine, policy = configuration.engine, configuration.engine.scheduler.settings
    layout = configuration.layout
    words = ["--tp_size", str(layout.gpus)]
    if layout.ep > 1:
        words += ["--ep_size", str(layout.ep)]
    if "--trust-remote-code" in serve_flags:
        words.insert(0, "--trust_remote_code")
    share = _memory_share(configuration)
    words += ["--kv_cache_free_gpu_memory_fraction", f"{share:g}"]
    if _has_length(engine):
        words += ["--max_seq_len", str(engine.max_model_len)]
    words += ["--max_num_tokens", str(engine.max_num_batched_tokens)]
    words += ["--max_batch_size", str(engine.max_num_seqs)]
    if policy["chunked"]:
        words.append("--enable_chunked_prefill")
    kv = {}
    if settings.block_size is not None:
        kv["tokens_per_block"] = str(engine.block_size)
    if settings.kv_blocks is not None:
        kv["max_tokens"] = str(engine.kv_capacity_tokens)
    if kv_dtype_told(configuration, settings) == "fp8":
        kv["dtype"] = "fp8"
    lines = []
    if kv:  # the file's takes the place of the flag's
        kv["free_gpu_memory_fraction"] = f"{share:g}"
        inside = ", ".join(f"{key}: {value}" for key, value in kv.items())
        lines.append(f"kv_cache_config: {{{inside}}}")
    if not engine.async_scheduling:
        lines.append("disable_overlap_scheduler: true")
    if layout.dp > 1:
        lines.append("enable_attention_dp: true")
    if policy["policy"]:
        lines.append("scheduler_config: {capacity_scheduler_policy: MAX_UTILIZATION}")
    if not lines:
        return words, ()
    words += ["--extra_llm_api_options", _OPTIONS]
    return words, (f"write into {_OPTIONS}: {'; '.join(lines)}",)


COMMANDS: dict[
    str, Callable[[Configuration, ConfigurationSettings, tuple[str, ...]], Flags]
] = {"sglang": sglang, "trtllm": trtllm}
"""The flags of each engine but vLLM."""


def unwritten(
    name: str, configuration: Configuration, settings: ConfigurationSettings
) -> str:
    """Return what of a layout another engine than vLLM has no flags for here."""
    layout = configuration.layout
    if layout.pp > 1:
        return "stages: capplan writes their command for vLLM alone"
    if name != "trtllm":
        return ""
    if layout.dp > 1 and layout.tp > 1:
        return f"{layout.text}: a rank of TensorRT-LLM's DP attention has one GPU"
    if isinstance(settings, LayoutSettings) and (
        settings.enable_eplb or configuration.all_to_all == DEEPEP
    ):
        return f"{layout.text}: EPLB and DeepEP of TensorRT-LLM are not written here"
    return ""
