"""Memory of a GPU by use: weights, activations, runtime and KV cache."""

from dataclasses import dataclass
from typing import NamedTuple

from capplan.deployment.engine import EngineSettings
from capplan.engines.catalog import VLLM
from capplan.engines.engine import DEFAULT_UTILIZATION, Engine, Taken
from capplan.engines.vllm import graph_sizes
from capplan.errors import InputError
from capplan.fleet.gpu import Gpu
from capplan.llm.architecture import Architecture
from capplan.llm.dtypes import QUANTIZED_BYTES
from capplan.llm.layout import Layout

_MIB, _GIB = 2**20, 2**30
_LOGIT_BYTES, _OLD_LOGIT_BYTES = 2, 14
"""Of a token of the vocabulary for each request that vLLM samples at once: its logit;
before 0.21 also in 32 bits, its probability and a random number. [bytes]"""
_CONTEXT_TOKENS = 2**16
"""Of cached context whose latent KV is expanded at once for a prompt. [tokens]"""
_BUFFERS_BYTES = 123 * _MIB
_RUNTIME_BYTES = _GIB // 4
_COMM_BYTES = round(1.85 * _GIB)
"""What is left of vLLM 0.19's peak, outside of torch and, more of it, with TP: medians
of 24 starts on H100 (docs/internals/accuracy.md). [bytes]"""
_GRAPHS_BYTES, _GRAPH_BYTES = 265 * _MIB, 0.35 * _MIB
"""CUDA graphs: all, and of each size and layer, of the same starts. [bytes]"""
_CONTEXT_BYTES, _TP_CONTEXT_BYTES = round(0.51 * _GIB), round(1.53 * _GIB)
"""What is taken before an engine loads, alone and with TP. [bytes]"""


class MemoryShare(NamedTuple):
    """Share of memory that an engine is told, and what of it graphs take."""

    share: float = DEFAULT_UTILIZATION  # see ``Engine.share_of``
    engine: Engine = VLLM
    has_graphs: bool = True  # CUDA graphs are within it, as in vLLM since 0.21


@dataclass(frozen=True)
class MemoryBudget:
    """Memory of one GPU of a replica by use, as its engine finds it when it starts."""

    memory_bytes: int  # of the GPU
    utilization: float  # share of it that the engine takes
    weight_bytes: int
    activation_bytes: int  # peak of an iteration
    runtime_bytes: int  # CUDA graphs and what the framework does not allocate
    comm_bytes: int  # buffers of the all-reduce
    context_bytes: int = 0  # taken before the engine loads, which vLLM leaves out
    engine: Engine = VLLM  # whose share it is
    adapter_bytes: int = 0  # slots of LoRA adapters
    encoder_bytes: int = 0  # of images: the encoder and what it keeps

    @property
    def engine_bytes(self) -> int:
        """Memory that the engine may use. [bytes]"""
        share = self.utilization if self.engine.takes_share else 1
        return int(self.memory_bytes * share)

    @property
    def beside_bytes(self) -> int:
        """Memory for neither weights nor KV. [bytes]"""
        held = self.activation_bytes + self.runtime_bytes + self.comm_bytes
        return held + self.adapter_bytes + self.encoder_bytes

    @property
    def kv_bytes(self) -> int:
        """Memory left for KV; negative when the rest does not fit. [bytes]"""
        taken = Taken(
            self.memory_bytes,
            self.utilization,
            self.weight_bytes,
            self.weight_bytes + self.beside_bytes,
            self.context_bytes,
        )
        return self.engine.kv_bytes(taken)


def memory_budget(
    llm: Architecture,
    gpu: Gpu,
    layout: Layout,
    limits: EngineSettings,
    memory: MemoryShare = MemoryShare(),
) -> MemoryBudget:
    """Return the memory of each GPU of a replica by use.

    It has attention and KV of its TP degree, and its share of the experts of all ranks.
    vLLM before 0.21 captures CUDA graphs on top of its share, and samples with more
    memory.
    """
    layout.check(llm)
    if not 0 < memory.share <= 1:
        raise InputError(
            f"gpu_memory_utilization is {memory.share}; "
            "expected more than 0 and at most 1"
        )
    seats, tokens = limits.max_num_seqs, limits.max_num_batched_tokens
    graphs = len(graph_sizes(gpu, seats, tokens)) if memory.has_graphs else 0
    if memory.engine.overheads is None:
        runtime_bytes = _RUNTIME_BYTES + (graphs > 0) * _GRAPHS_BYTES
        runtime_bytes += round(graphs * llm.layers * _GRAPH_BYTES)
        comm_bytes = _COMM_BYTES if layout.gpus > 1 else 0
        logit_bytes = _LOGIT_BYTES if graphs else _OLD_LOGIT_BYTES
        sampling_bytes = logit_bytes * min(seats, tokens) * llm.vocab
        activation_bytes = _peak_bytes(llm, layout, tokens, sampling_bytes)
    else:
        activation_bytes, runtime_bytes, comm_bytes = memory.engine.overheads(
            llm, layout, tokens, gpu.memory_bytes
        )
    adapters, images = limits.adapters, limits.images
    return MemoryBudget(
        memory_bytes=gpu.memory_bytes,
        utilization=memory.share,
        weight_bytes=_loaded_bytes(llm, layout),
        activation_bytes=activation_bytes,
        runtime_bytes=runtime_bytes,
        comm_bytes=comm_bytes,
        context_bytes=_TP_CONTEXT_BYTES if layout.gpus > 1 else _CONTEXT_BYTES,
        engine=memory.engine,
        adapter_bytes=0 if adapters is None else adapters.gpu_bytes,
        encoder_bytes=0 if images is None else images.gpu_bytes(tokens),
    )


def _expert_width(llm: Architecture, layout: Layout) -> int:
    """Return the inner width of an expert on one GPU."""
    return llm.expert_ffn // (1 if layout.ep > 1 else layout.gpus)


def _loaded_bytes(llm: Architecture, layout: Layout) -> int:
    """Return the weights on a GPU as vLLM holds them once they are loaded. [bytes]

    Beside the checkpoint's: the table of rotary positions up to the longest context,
    the up-projections of latent attention in 16 bits once more, and experts in MXFP4 as
    wide as their kernels take them (fused_moe/oracle/mxfp4.py).
    """
    gpus, dtype = layout.expert_gpus(llm.experts), llm.weight_dtype
    held = llm.weight_bytes_per_gpu(layout.tp, dtype, expert_gpus=gpus)
    if not llm.learned_positions:
        rotary = llm.rope_head_dim or max(llm.head_dim, llm.full_head_dim)
        held += 2 * llm.max_positions * rotary
    up = llm.head_dim + llm.value_head_dim
    held += 2 * llm.layers * llm.kv_lora_rank * llm.heads // layout.tp * up
    if dtype == "mxfp4" and llm.experts:
        width, hidden = _expert_width(llm, layout), llm.routed_hidden
        wider = _up_to(hidden, 256) * _up_to(width, 128) / (hidden * width)
        experts = 3 * llm.expert_layers * llm.experts * hidden * llm.expert_ffn
        held += round((wider - 1) * experts / gpus * QUANTIZED_BYTES[dtype])
    return held


def _up_to(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _peak_bytes(
    llm: Architecture, layout: Layout, tokens: int, sampling_bytes: int
) -> int:
    """Return the peak that vLLM's trial run adds to the weights. [bytes]

    Of its two parts, a forward pass of all tokens and a sampling of all requests, the
    greater; the activations that the first leaves for the second; and the workspaces of
    the experts, which stay (fused_moe/fused_moe.py, ``workspace_shapes``).
    """
    rows_bytes = 2 * tokens
    forward = rows_bytes * (3 * max(llm.dense_ffn, llm.shared_ffn) / layout.tp)
    forward += rows_bytes * 2 * llm.hidden * llm.residual_streams
    if llm.is_mla:
        context = min(8 * llm.max_positions, _CONTEXT_TOKENS)
        up = llm.head_dim + llm.value_head_dim
        forward = max(forward, 2 * context * llm.heads / layout.tp * up)
    held = rows_bytes * llm.hidden + _BUFFERS_BYTES
    if llm.experts and llm.weight_dtype != "mxfp4":
        width, hidden = _expert_width(llm, layout), llm.routed_hidden
        wide = max(width, hidden) + max(2 * width, hidden)
        held += rows_bytes * llm.experts_per_token * wide
    return round(max(sampling_bytes, forward) + held)
