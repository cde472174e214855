"""Memory of a GPU by use: weights, activations, runtime and KV cache."""

import math
from dataclasses import dataclass

from capplan.errors import InputError
from capplan.llm.architecture import Architecture
from capplan.llm.dtypes import QUANTIZED_BYTES
from capplan.llm.layout import Layout

SHARE_OF = {
    "vllm": "of the memory, for all of the engine",
    "sglang": "of the memory, for weights and KV",
    "trtllm": "of what weights, activations and runtime leave, for KV",
}
"""What the share of memory that an engine is told is a share of, and for what.

vLLM's ``--gpu-memory-utilization``, SGLang's ``--mem-fraction-static`` and
TensorRT-LLM's ``free_gpu_memory_fraction``.
"""

DEFAULT_UTILIZATION = 0.92
"""Share of GPU memory that vLLM takes (``gpu_memory_utilization``)."""

_MIB, _GIB = 2**20, 2**30
_SMALL_BYTES = 40 * _GIB
"""Smallest GPU with TensorRT-LLM's whole runtime reserve. [bytes]"""
_LOGIT_BYTES, _OLD_LOGIT_BYTES = 2, 14
"""Of a token of the vocabulary for each request that vLLM samples at once: its logit;
before 0.21 also in 32 bits, its probability and a random number. [bytes]"""
_CONTEXT_TOKENS = 2**16
"""Of cached context whose latent KV is expanded at once for a prompt. [tokens]"""
_BUFFERS_BYTES = 123 * _MIB
_RUNTIME_BYTES = _GIB // 4
_COMM_BYTES = round(1.85 * _GIB)
"""What is left of vLLM 0.19's peak, outside of torch and, more of it, with TP: medians
of 24 starts on H100 (docs/accuracy.md). [bytes]"""
_GRAPHS_BYTES, _GRAPH_BYTES = 265 * _MIB, 0.35 * _MIB
"""CUDA graphs: all, and of each size and layer, of the same starts. [bytes]"""
_CONTEXT_BYTES, _TP_CONTEXT_BYTES = round(0.51 * _GIB), round(1.53 * _GIB)
"""What is taken before an engine loads, alone and with TP. [bytes]"""


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
    engine: str = "vllm"  # of ``SHARE_OF``
    adapter_bytes: int = 0  # slots of LoRA adapters
    encoder_bytes: int = 0  # of images: the encoder and what it keeps

    @property
    def engine_bytes(self) -> int:
        """Memory that the engine may use. [bytes]"""
        if self.engine == "vllm":
            return math.floor(self.memory_bytes * self.utilization)
        return self.memory_bytes

    @property
    def kv_bytes(self) -> int:
        """Memory left for KV; negative when the rest does not fit. [bytes]"""
        rest = self.weight_bytes + self.activation_bytes
        rest += self.runtime_bytes + self.comm_bytes
        rest += self.adapter_bytes + self.encoder_bytes
        if self.engine == "sglang":
            # What is not weights and KV has the share that is left.
            free_bytes = self.memory_bytes - self.context_bytes
            held = math.floor(free_bytes * self.utilization)
            return min(held - self.weight_bytes, self.memory_bytes - rest)
        if self.engine == "trtllm":
            return math.floor((self.memory_bytes - rest) * self.utilization)
        return self.engine_bytes - rest


def memory_budget(
    llm: Architecture,
    memory_bytes: int,
    tp: int,
    max_num_batched_tokens: int,
    *,
    gpu_memory_utilization: float = DEFAULT_UTILIZATION,
    weight_dtype: str | None = None,
    layout: Layout | None = None,
    engine: str = "vllm",
    max_num_seqs: int = 1024,
    graphs: int = 0,
) -> MemoryBudget:
    """Return the memory of each GPU of a replica by use.

    ``gpu_memory_utilization`` is the share that the engine is told, see ``SHARE_OF``.
    ``graphs`` is how many sizes of CUDA graphs are captured within it: none in vLLM
    before 0.21, which captures them on top and samples with more memory.

    Of a ``layout`` it is that of each GPU of a rank: attention and KV of its TP degree,
    and its share of the experts of all ranks. Without one all is split by TP.
    """
    if layout is not None:
        layout.check(llm)
        if layout.tp != tp:
            raise InputError(f"TP is {tp}; expected that of the layout {layout}")
    if not 0 < gpu_memory_utilization <= 1:
        raise InputError(
            f"gpu_memory_utilization is {gpu_memory_utilization}; "
            "expected more than 0 and at most 1"
        )
    llm.check_tp(tp)
    dtype, layout = weight_dtype or llm.weight_dtype, layout or Layout(tp)
    runtime_bytes = _RUNTIME_BYTES + (graphs > 0) * _GRAPHS_BYTES
    runtime_bytes += round(graphs * llm.layers * _GRAPH_BYTES)
    comm_bytes = _COMM_BYTES if layout.gpus > 1 else 0
    sampled = min(max_num_seqs, max_num_batched_tokens)
    logit_bytes = _LOGIT_BYTES if graphs else _OLD_LOGIT_BYTES
    sampling_bytes = logit_bytes * sampled * llm.vocab
    activation_bytes = _peak_bytes(
        llm, layout, max_num_batched_tokens, sampling_bytes, dtype
    )
    if engine == "trtllm":  # as aiconfigurator-core 0.12 (Apache-2.0) has it
        width = max(llm.hidden, llm.attention_width)
        token_bytes = 2 * width * max(5.0, 2 + 9 / tp) * (2 if llm.experts else 1)
        activation_bytes = round(max_num_batched_tokens * token_bytes)
        share = 1.0 if memory_bytes >= _SMALL_BYTES else memory_bytes / (80 * _GIB)
        runtime_bytes = round(3.5 * _GIB * share)
        comm_bytes = {1: 0, 2: 342 * _MIB}.get(layout.gpus, 392 * _MIB)
    return MemoryBudget(
        memory_bytes=memory_bytes,
        utilization=gpu_memory_utilization,
        weight_bytes=_loaded_bytes(llm, layout, dtype),
        activation_bytes=activation_bytes,
        runtime_bytes=runtime_bytes,
        comm_bytes=comm_bytes,
        context_bytes=_TP_CONTEXT_BYTES if layout.gpus > 1 else _CONTEXT_BYTES,
        engine=engine,
    )


def _expert_width(llm: Architecture, layout: Layout) -> int:
    """Return the inner width of an expert on one GPU."""
    return llm.expert_ffn // (1 if layout.ep > 1 else layout.gpus)


def _loaded_bytes(llm: Architecture, layout: Layout, dtype: str) -> int:
    """Return the weights on a GPU as vLLM holds them once they are loaded. [bytes]

    Beside the checkpoint's: the table of rotary positions up to the longest context,
    the up-projections of latent attention in 16 bits once more, and experts in MXFP4 as
    wide as their kernels take them (fused_moe/oracle/mxfp4.py).
    """
    gpus = layout.expert_gpus(llm.experts)
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
    llm: Architecture, layout: Layout, tokens: int, sampling_bytes: int, dtype: str
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
    if llm.experts and dtype != "mxfp4":
        width, hidden = _expert_width(llm, layout), llm.routed_hidden
        wide = max(width, hidden) + max(2 * width, hidden)
        held += rows_bytes * llm.experts_per_token * wide
    return round(max(sampling_bytes, forward) + held)
