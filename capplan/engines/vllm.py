"""vLLM: ``vllm serve`` of 0.32, whose V1 scheduler is the default.

Defaults by its engine arguments; releases that first had a setting were
read in the sources of 0.8.0 to 0.32.0 (``engine/arg_utils.py``, ``config/``).
"""

import json
import math
from typing import Any

from capplan.engines.engine import Defaults, Engine, Options, Start, Taken, above_one
from capplan.fleet.gpu import Gpu
from capplan.llm.architecture import Architecture

_GIB = 2**30
GRAPHS_SINCE = "0.21"
"""First release that captures CUDA graphs within its share of memory."""
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
"""Metrics of a replica's requests."""

_KV_CACHE = {"fp8": "fp8", "bf16": "bfloat16", "fp16": "float16"}
_GATHERING = "allgather_reducescatter"
_NIXL = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
_NAMED_DRAFTS = ("eagle", "eagle3")
"""Methods whose draft is a checkpoint of its own."""
_DISAGGREGATED = (
    "a proxy in front sends each prompt to a prefill replica, then to a decode replica "
    "that pulls its KV, as llm-d's does; vLLM alone does not"
)
_ON_NODES = (
    "ranks on several nodes: give --data-parallel-size-local and "
    "--data-parallel-address on each, and --headless with --data-parallel-start-rank "
    "on all but the first"
)
_STAGES_ON_NODES = (
    "stages on several nodes: give --nnodes, --node-rank and --master-addr on each, "
    "and --headless on all but the first"
)
_FILLED = (
    "--max-model-len fills the computed KV: where vLLM says that it holds less, give "
    "the length that it names"
)


def _defaults(
    gpu: Gpu, llm: Architecture | None, tp: int, chunk_tokens: int | None
) -> Defaults:
    if gpu.memory_bytes >= 160 * _GIB:
        tokens, seqs = 16_384, 1024
    elif gpu.memory_bytes >= 70 * _GIB and "a100" not in gpu.name.lower():
        tokens, seqs = 8192, 1024
    else:
        tokens, seqs = 2048, 256
    return Defaults({"max_num_batched_tokens": tokens, "max_num_seqs": seqs})


def graph_sizes(gpu: Gpu, seats: int, budget: int) -> tuple[int, ...]:
    """Return the tokens for which vLLM 0.32 captures CUDA graphs by default.

    Up to 1,024 on GPUs of compute capability 10, which are the catalog's Blackwell, 512
    elsewhere (config/vllm.py, ``_set_cudagraph_sizes``).
    """
    ceiling = 1024 if gpu.architecture == "Blackwell" else 512
    most = min(2 * seats, ceiling, budget)
    own = {size for size in (seats, budget) if size <= most}
    usual = {1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)}
    return tuple(sorted(own | {size for size in usual if size <= most}))


def _kv_bytes(taken: Taken) -> int:
    return math.floor(taken.memory_bytes * taken.share) - taken.rest_bytes


def _unwritten(start: Start) -> str:
    if start.hand_off and start.hand_off.partition(":")[0] != "nixl":
        return f"hand-off {start.hand_off}; no vllm serve command: vLLM's pull"
    if start.engine.max_num_seqs > start.engine.max_num_batched_tokens:
        return "vllm serve refuses fewer max_num_batched_tokens than max_num_seqs"
    return ""


def _options(start: Start) -> Options:
    """Return every setting that the plan rests on, also where it is the default.

    Defaults differ by version and GPU.
    """
    engine, layout, images = start.engine, start.layout, start.engine.images
    # vLLM starts one for each rank by default.
    servers = engine.api_server_count
    has_experts_apart = layout.dp > 1 and layout.ep > 1
    serve_flags = dict(start.serve_flags)
    if images is not None:
        serve_flags.pop("--language-model-only", None)
    return {
        **serve_flags,
        "--tensor-parallel-size": layout.tp,
        "--data-parallel-size": above_one(layout.dp),
        "--enable-expert-parallel": layout.ep > 1,
        "--all2all-backend": has_experts_apart and (start.all_to_all or _GATHERING),
        "--enable-eplb": layout.ep > 1 and start.eplb,
        "--eplb-config": start.eplb_config if layout.ep > 1 and start.eplb else None,
        "--prefill-schedule-interval": above_one(engine.prefill_schedule_interval),
        "--pipeline-parallel-size": above_one(layout.pp),
        "--decode-context-parallel-size": above_one(
            engine.decode_context_parallel_size
        ),
        "--gpu-memory-utilization": f"{start.memory_share:g}",
        "--max-model-len": start.max_model_len,
        "--num-gpu-blocks-override": start.kv_blocks,
        "--block-size": start.block_size or _block_size(start),
        "--kv-cache-dtype": _KV_CACHE.get(start.kv_dtype, "auto"),
        "--max-num-batched-tokens": engine.max_num_batched_tokens,
        "--max-num-seqs": engine.max_num_seqs,
        "--api-server-count": servers if servers > 1 or layout.dp > 1 else None,
        _switch("async-scheduling", engine.async_scheduling): True,
        _switch("enable-prefix-caching", start.prefix_caching): True,
        "--scheduling-policy": ENGINE.schedulers[engine.scheduler.name] or None,
        **_of_adapters(engine.adapters),
        **_of_images(images),
        "--speculative-config": start.drafting or None,
        "--kv-transfer-config": _NIXL if start.hand_off else None,
        **_of_tier(engine.tier, engine.tier_gib),
    }


def _switch(flag: str, on: bool) -> str:
    return f"--{flag}" if on else f"--no-{flag}"


def _of_adapters(adapters: Any) -> Options:
    if adapters is None:
        return {}
    return {
        "--enable-lora": True,
        "--max-loras": adapters.max_loras,
        "--max-cpu-loras": adapters.max_cpu_loras,
        "--max-lora-rank": adapters.max_lora_rank,
    }


def _of_tier(tier: Any, gib: float) -> Options:
    """Return the flags of a tier; of settings that have none as JSON."""
    if tier is None:
        return {}
    if not tier.is_native or (tier.blocks_per_chunk == 1 and not tier.answers):
        backend = "native" if tier.is_native else tier.preset
        size = f"{gib:.10g}"
        return {"--kv-offloading-size": size, "--kv-offloading-backend": backend}
    extra = {
        "cpu_bytes_to_use": int(gib * _GIB),
        "blocks_per_chunk": tier.blocks_per_chunk,
        "offload_prompt_only": not tier.answers,
    }
    config = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }
    return {"--kv-transfer-config": json.dumps(config, separators=(",", ":"))}


def _of_images(images: Any) -> Options:
    """Return the flags of images; videos, whose encoder cache is larger, are off."""
    if images is None:
        return {}
    limit = json.dumps({"image": images.limit_per_prompt, "video": 0})
    return {
        "--limit-mm-per-prompt": limit,
        "--mm-encoder-tp-mode": "data" if images.encoders > 1 else "weights",
        "--disable-chunked-mm-input": images.disable_chunked_mm_input,
    }


def _block_size(start: Start) -> int | None:
    """Return the block size to be told; None where vLLM picks it by itself.

    Of latent attention by GPU, where a given one may exclude the fastest kernels; of
    recurrent states and of windows with other heads so that all blocks have one size.
    """
    llm, tp = start.llm, start.layout.tp
    full, windowed = (
        llm.layer_kv_bytes_per_gpu(tp, windowed=windowed) for windowed in (False, True)
    )
    is_picked = llm.is_mla or llm.state_layers > 0 or full != windowed
    return None if is_picked else start.engine.gpu_block_size


def _notes(start: Start) -> tuple[str, ...]:
    engine, drafts = start.engine, start.engine.speculation
    notes = []
    is_named = drafts is None or drafts.method not in _NAMED_DRAFTS
    if not (is_named or '"model"' in start.drafting):
        notes.append('name the draft: the key "model" of --speculative-config')
    if start.nodes > 1:
        notes.append(_ON_NODES if engine.pipeline is None else _STAGES_ON_NODES)
    notes += [_DISAGGREGATED] * bool(start.hand_off) + [_FILLED] * start.is_filled
    return tuple(notes)


ENGINE = Engine(
    name="vllm",
    title="vLLM",
    version="vLLM 0.24 to 0.33",
    schedulers={"vllm-v1": "", "vllm-v1-priority": "priority"},
    source="vLLM 0.32, engine arguments",
    defaults=_defaults,
    share_of="of the memory, for all of the engine",
    kv_bytes=_kv_bytes,
    takes_share=True,
    start=("vllm", "serve"),
    options=_options,
    notes=_notes,
    starts_stages=True,
    unwritten=_unwritten,
    exchange=_GATHERING,
    quantizes={"fp8": "fp8", "fp8_block": "fp8_per_block"},
    since={
        "all2all_backend": "0.11.1",
        "decode_context_parallel_size": "0.10.2",
        "enable_eplb": "0.9.2",
        "eplb_config": "0.10.2",
        "prefill_schedule_interval": "0.24.0",
    },
    drafts_since={"mtp": "0.11.0", "eagle3": "0.8.5"},
)
