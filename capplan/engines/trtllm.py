"""TensorRT-LLM of 2026: ``trtllm-serve`` (commands/serve.py, llmapi/llm_args.py).

Its options were the same in the releases of 2025 and 2026.
"""

import math

from capplan.engines.engine import Defaults, Engine, Options, Start, Taken, above_one
from capplan.fleet.gpu import Gpu
from capplan.llm.architecture import Architecture
from capplan.llm.layout import Layout

_MIB, _GIB = 2**20, 2**30
_SMALL_BYTES = 40 * _GIB
"""Smallest GPU with the whole runtime reserve. [bytes]"""
_OPTIONS = "trtllm.yaml"
"""File of what trtllm-serve has no flags for."""


def _defaults(
    gpu: Gpu, llm: Architecture | None, tp: int, chunk_tokens: int | None
) -> Defaults:
    """Return max_num_tokens, max_batch_size and tokens_per_block.

    A chunk is cut to whole blocks.
    """
    settings = {"max_num_batched_tokens": 8192, "max_num_seqs": 2048, "block_size": 32}
    return Defaults(settings, 0.9)


def _overheads(
    llm: Architecture, layout: Layout, tokens: int, memory_bytes: int
) -> tuple[int, int, int]:
    """Return activations, runtime and all-reduce, as aiconfigurator-core 0.12 has it.

    Its licence is Apache-2.0. [bytes]
    """
    width = max(llm.hidden, llm.attention_width)
    token_bytes = 2 * width * max(5.0, 2 + 9 / layout.tp) * (2 if llm.experts else 1)
    share = 1.0 if memory_bytes >= _SMALL_BYTES else memory_bytes / (80 * _GIB)
    comm_bytes = {1: 0, 2: 342 * _MIB}.get(layout.gpus, 392 * _MIB)
    return round(tokens * token_bytes), round(3.5 * _GIB * share), comm_bytes


def _kv_bytes(taken: Taken) -> int:
    return math.floor((taken.memory_bytes - taken.rest_bytes) * taken.share)


def _options(start: Start) -> Options:
    """Return the flags; DP attention has a rank on each GPU, limits are of a rank."""
    engine, layout = start.engine, start.layout
    return {
        "--trust_remote_code": "--trust-remote-code" in start.serve_flags,
        "--tp_size": layout.gpus,
        "--ep_size": above_one(layout.ep),
        "--kv_cache_free_gpu_memory_fraction": f"{start.memory_share:g}",
        "--max_seq_len": start.max_model_len,
        "--max_num_tokens": engine.max_num_batched_tokens,
        "--max_batch_size": engine.max_num_seqs,
        "--enable_chunked_prefill": bool(engine.scheduler.settings["chunked"]),
        "--extra_llm_api_options": _OPTIONS if _lines(start) else None,
    }


def _lines(start: Start) -> list[str]:
    """Return the lines of the file beside the flags."""
    engine = start.engine
    kv = {
        "tokens_per_block": start.block_size and engine.block_size,
        "max_tokens": start.kv_blocks and engine.kv_capacity_tokens,
        "dtype": "fp8" if start.kv_dtype == "fp8" else None,
    }
    told = {key: value for key, value in kv.items() if value}
    if told:  # the file's takes the place of the flag's
        told["free_gpu_memory_fraction"] = f"{start.memory_share:g}"
    inside = ", ".join(f"{key}: {value}" for key, value in told.items())
    capacity = "{capacity_scheduler_policy: MAX_UTILIZATION}"
    lines = {
        f"kv_cache_config: {{{inside}}}": bool(told),
        "disable_overlap_scheduler: true": not engine.async_scheduling,
        "enable_attention_dp: true": start.layout.dp > 1,
        f"scheduler_config: {capacity}": bool(engine.scheduler.settings["policy"]),
    }
    return [line for line, is_told in lines.items() if is_told]


def _notes(start: Start) -> tuple[str, ...]:
    lines = _lines(start)
    return (f"write into {_OPTIONS}: {'; '.join(lines)}",) if lines else ()


def _unwritten(start: Start) -> str:
    layout = start.layout
    if layout.dp > 1 and layout.tp > 1:
        return f"{layout.text}: a rank of TensorRT-LLM's DP attention has one GPU"
    if start.eplb or start.all_to_all.startswith("deepep"):
        return f"{layout.text}: EPLB and DeepEP of TensorRT-LLM are not written here"
    return ""


ENGINE = Engine(
    name="trtllm",
    title="TensorRT-LLM",
    version="TensorRT-LLM of 2026",
    schedulers={"trtllm": ""},
    source="TensorRT-LLM, llmapi/llm_args.py of 2026",
    defaults=_defaults,
    share_of="of what weights, activations and runtime leave, for KV",
    kv_bytes=_kv_bytes,
    overheads=_overheads,
    start=("trtllm-serve",),
    options=_options,
    notes=_notes,
    unwritten=_unwritten,
    exchange="default",
    mark="trt",
)
