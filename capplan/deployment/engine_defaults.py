"""Default settings of each engine that a plan may be of, with their source.

vLLM's are those of :func:`default_engine_settings`. The share of memory is that of
the engine's own flag: what it is a share of differs, see ``llm/memory.py``.
"""

from typing import NamedTuple

from capplan.deployment.engine import EngineSettings, default_engine_settings
from capplan.fleet.gpu import Gpu
from capplan.llm.architecture import Architecture
from capplan.llm.memory import DEFAULT_UTILIZATION

_MIB = 2**20
_SGLANG_SIZES = (
    # Memory below [GiB], chunk [tokens], most requests of a CUDA graph below TP 4, from
    (20, 2048, 8, 8),
    (35, 4096, 48, 160),
    (60, 4096, 32, 160),
    (160, 8192, 256, 512),
    (float("inf"), 16_384, 512, 512),
)
_SGLANG_LEAST_SEQS, _SGLANG_MOST_SEQS = 2048, 4096


class EngineDefaults(NamedTuple):
    """What an engine takes where nobody says otherwise."""

    settings: dict[str, int]  # fields of ``EngineSettings`` in place of vLLM's
    memory_share: float  # of its own flag for memory
    source: str


SOURCES = {
    "vllm": "vLLM 0.32, engine arguments",
    "sglang": "SGLang 0.5.23, srt/arg_groups/memory_hook.py and overrides.py",
    "trtllm": "TensorRT-LLM, llmapi/llm_args.py of 2026",
}
"""Where the defaults of each engine were read."""


def engine_defaults(
    name: str, gpu: Gpu, llm: Architecture, tp: int, chunk_tokens: int | None = None
) -> EngineDefaults:
    """Return the defaults of an engine for an LLM on a GPU type at a TP degree.

    ``chunk_tokens`` is the token budget where it is given; SGLang leaves memory by it.

    Examples
    --------
    >>> from capplan.fleet.catalog import gpu
    >>> from capplan.llm.catalog import llm
    >>> found = engine_defaults("sglang", gpu("H100"), llm("Llama-3.1-8B"), 1)
    >>> found.settings["max_num_batched_tokens"], found.memory_share
    (8192, 0.829)
    """
    if name == "sglang":
        return _sglang(gpu, llm, tp, chunk_tokens)
    if name == "trtllm":
        # A chunk is cut to whole blocks; max_batch_size, max_num_tokens,
        # tokens_per_block and free_gpu_memory_fraction.
        settings = {
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 2048,
            "block_size": 32,
        }
        return EngineDefaults(settings, 0.9, SOURCES[name])
    return EngineDefaults({}, DEFAULT_UTILIZATION, SOURCES["vllm"])


def settings_by_default(
    defaults: EngineDefaults, gpu: Gpu, given: dict[str, object]
) -> EngineSettings:
    """Return an engine's settings: those given, else its defaults.

    No more requests run than the budget has tokens: each decodes one.
    """
    settings = {**defaults.settings, **given}
    budget = settings.get("max_num_batched_tokens")
    if "max_num_seqs" in defaults.settings and "max_num_seqs" not in given:
        assert isinstance(budget, int)
        settings["max_num_seqs"] = min(defaults.settings["max_num_seqs"], budget)
    return default_engine_settings(gpu, **settings)


def graph_sizes(gpu: Gpu, engine: EngineSettings) -> tuple[int, ...]:
    """Return the tokens for which vLLM 0.32 captures CUDA graphs by default.

    Up to 1,024 on GPUs of compute capability 10, which are the catalog's Blackwell, 512
    elsewhere (config/vllm.py, ``_set_cudagraph_sizes``).
    """
    seats, budget = engine.max_num_seqs, engine.max_num_batched_tokens
    ceiling = 1024 if gpu.architecture == "Blackwell" else 512
    most = min(2 * seats, ceiling, budget)
    own = {size for size in (seats, budget) if size <= most}
    usual = {1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)}
    return tuple(sorted(own | {size for size in usual if size <= most}))


def sglang_seats(engine: EngineSettings, positions: int) -> int:
    """Return SGLang's ``max_running_requests`` by the KV that it found.

    512 for each context of the LLM that the KV holds, from 2,048 to 4,096, and half of
    the tokens (srt/mem_cache/kv_cache_configurator.py, ``resolve_max_num_reqs``).
    """
    held = engine.kv_capacity_tokens
    seats = int(held / positions * 512)
    seats = max(min(seats, _SGLANG_MOST_SEQS), _SGLANG_LEAST_SEQS)
    return max(1, min(seats, held // 2, engine.max_num_batched_tokens))


def _sglang(
    gpu: Gpu, llm: Architecture, tp: int, chunk_tokens: int | None
) -> EngineDefaults:
    memory_mib = gpu.memory_bytes / _MIB
    below = next(row for row in _SGLANG_SIZES if memory_mib < row[0] * 1024)
    _, chunk, few, many = below
    chunk = chunk_tokens or chunk
    reserved_mib = 512 + 1.5 * max(chunk, 2048) + tp / 8 * 1024
    reserved_mib += 2 * (few if tp < 4 else many)
    # CUDA graphs of prompts: of each size 8 MiB, of latent attention 1.5 GiB.
    reserved_mib += 1536 if llm.is_mla else 8 * _prefill_graphs(chunk)
    if memory_mib > 60 * 1024:
        reserved_mib = max(reserved_mib, 10 * 1024)
    settings = {
        "max_num_batched_tokens": chunk,
        "max_num_seqs": _SGLANG_LEAST_SEQS,
        # TensorRT-LLM's attention kernels, which SGLang takes there, have pages of 64.
        "block_size": 64 if gpu.architecture == "Blackwell" and not llm.is_mla else 1,
    }
    share = round((memory_mib - reserved_mib) / memory_mib, 3)
    return EngineDefaults(settings, share, SOURCES["sglang"])


def _prefill_graphs(most_tokens: int) -> int:
    """Return how many sizes of prefill SGLang captures (cuda_graph_hook.py)."""
    steps = [(4, 33, 4), (48, 257, 16), (288, 513, 32), (576, 1025, 64)]
    steps += [(1280, 4097, 256), (4608, most_tokens + 1, 512)]
    sizes = (size for step in steps for size in range(*step))
    return sum(size <= most_tokens for size in sizes)
