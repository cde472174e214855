"""SGLang 0.5.23: ``python -m sglang.launch_server`` (srt/server_args.py).

Defaults of srt/arg_groups/memory_hook.py and overrides.py.
"""

import math

from capplan.engines.engine import Defaults, Engine, Options, Start, Taken, above_one
from capplan.fleet.gpu import Gpu
from capplan.llm.architecture import Architecture

_MIB = 2**20
_SIZES = (
    # Memory below [GiB], chunk [tokens], most requests of a CUDA graph below TP 4, from
    (20, 2048, 8, 8),
    (35, 4096, 48, 160),
    (60, 4096, 32, 160),
    (160, 8192, 256, 512),
    (float("inf"), 16_384, 512, 512),
)
_LEAST_SEQS, _MOST_SEQS = 2048, 4096
_INIT_RATIO = 0.7
"""Share of the answers' limits at first, at a conservativeness of 1."""
_OF_RANKS = 0.3
"""What the conservativeness is multiplied by with DP attention (parallel_hook)."""


def _defaults(
    gpu: Gpu, llm: Architecture | None, tp: int, chunk_tokens: int | None
) -> Defaults:
    """Return the defaults; memory is left by the chunk."""
    is_mla = llm is not None and llm.is_mla
    memory_mib = gpu.memory_bytes / _MIB
    _, chunk, few, many = next(row for row in _SIZES if memory_mib < row[0] * 1024)
    chunk = chunk_tokens or chunk
    reserved_mib = 512 + 1.5 * max(chunk, 2048) + tp / 8 * 1024
    reserved_mib += 2 * (few if tp < 4 else many)
    # CUDA graphs of prompts: of each size 8 MiB, of latent attention 1.5 GiB.
    reserved_mib += 1536 if is_mla else 8 * _prefill_graphs(chunk)
    if memory_mib > 60 * 1024:
        reserved_mib = max(reserved_mib, 10 * 1024)
    settings = {
        "max_num_batched_tokens": chunk,
        "max_num_seqs": _LEAST_SEQS,
        # TensorRT-LLM's attention kernels, which it takes there, have pages of 64.
        "block_size": 64 if gpu.architecture == "Blackwell" and not is_mla else 1,
    }
    return Defaults(settings, round((memory_mib - reserved_mib) / memory_mib, 3))


def _prefill_graphs(most_tokens: int) -> int:
    """Return how many sizes of prefill are captured (cuda_graph_hook.py)."""
    steps = [(4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64)]
    steps += [(1280, 4097, 256), (4608, most_tokens + 1, 512)]
    sizes = (size for step in steps for size in range(*step))
    return sum(size <= most_tokens for size in sizes)


def _seats(kv_tokens: int, positions: int, budget_tokens: int) -> int:
    """Return ``max_running_requests`` by the KV that was found.

    512 for each context of the LLM that the KV holds, from 2,048 to 4,096, and half of
    the tokens (srt/mem_cache/kv_cache_configurator.py, ``resolve_max_num_reqs``).
    """
    seats = max(min(int(kv_tokens / positions * 512), _MOST_SEQS), _LEAST_SEQS)
    return max(1, min(seats, kv_tokens // 2, budget_tokens))


def _kv_bytes(taken: Taken) -> int:
    """Return the memory for KV: what is not weights and KV has the share left."""
    free_bytes = taken.memory_bytes - taken.context_bytes
    held = math.floor(free_bytes * taken.share)
    return min(held - taken.weight_bytes, taken.memory_bytes - taken.rest_bytes)


def _options(start: Start) -> Options:
    """Return the flags; with DP attention tokens and requests are of all ranks."""
    engine, policy, layout = start.engine, start.engine.scheduler.settings, start.layout
    ranks, has_eplb = layout.dp, layout.ep > 1 and start.eplb
    is_deepep = layout.ep > 1 and start.all_to_all.startswith("deepep")
    conservativeness = policy["init_ratio"] / _INIT_RATIO
    if ranks > 1:
        conservativeness /= _OF_RANKS
    return {
        **start.serve_flags,
        "--tp-size": layout.gpus,
        "--attn-dp-size": above_one(ranks),
        "--load-balance-method": "round_robin" if ranks > 1 else None,
        "--ep-size": above_one(layout.ep),
        "--moe-a2a-backend": "deepep" if is_deepep else None,
        "--deepep-mode": "low_latency" if is_deepep else None,
        "--enable-eplb": has_eplb,
        "--ep-num-redundant-experts": layout.redundant_experts if has_eplb else None,
        "--mem-fraction-static": f"{start.memory_share:g}",
        "--context-length": start.max_model_len,
        "--max-total-tokens": start.kv_blocks and engine.kv_capacity_tokens,
        "--chunked-prefill-size": ranks * engine.max_num_batched_tokens,
        "--max-prefill-tokens": policy["max_prefill_tokens"],
        "--max-running-requests": ranks * engine.max_num_seqs,
        "--page-size": None if engine.bounded_groups else engine.block_size,
        "--kv-cache-dtype": {"fp8": "fp8_e4m3", "bf16": "bf16"}.get(
            start.kv_dtype, "auto"
        ),
        "--schedule-conservativeness": f"{conservativeness:g}",
        "--enable-mixed-chunk": bool(policy["mixed"]),
        "--disable-radix-cache": not start.prefix_caching,
        "--disable-overlap-schedule": not engine.async_scheduling,
    }


def _notes(start: Start) -> tuple[str, ...]:
    ranks, nodes = start.layout.dp, start.nodes
    notes = []
    if start.engine.bounded_groups:
        notes.append(
            "SGLang shares KV between kinds of layers by itself, not as planned"
        )
    if ranks > 1:
        older = f"--dp-size {ranks} --enable-dp-attention"
        notes.append(f"older releases have {older} for --attn-dp-size {ranks}")
    if nodes > 1:
        where = f"--nnodes {nodes} --node-rank RANK --dist-init-addr ADDRESS:PORT"
        notes.append(f"on each of its {nodes} nodes, with {where}")
    return tuple(notes)


ENGINE = Engine(
    name="sglang",
    title="SGLang",
    version="SGLang 0.5.23",
    schedulers={"sglang": ""},
    source="SGLang 0.5.23, srt/arg_groups/memory_hook.py and overrides.py",
    defaults=_defaults,
    seats=_seats,
    share_of="of the memory, for weights and KV",
    kv_bytes=_kv_bytes,
    start=("python", "-m", "sglang.launch_server", "--model-path"),
    options=_options,
    notes=_notes,
    exchange="none",
    balance="round-robin",
    quantizes={"fp8": "fp8"},
)
