"""Memory of a GPU by use: weights, activations, runtime and KV cache."""

import math
from dataclasses import dataclass

from capplan.errors import InputError
from capplan.llm.architecture import Architecture
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

_GIB = 2**30
_SMALL_BYTES = 40 * _GIB
"""Smallest GPU with the whole runtime reserve. [bytes]"""


@dataclass(frozen=True)
class MemoryBudget:
    """Memory of one GPU of a replica by use.

    Activations, runtime and buffers are estimated as aiconfigurator-core 0.12
    (Apache-2.0) does for vLLM: activations 2·tokens·width·max(5, 2 + 9/TP) bytes, twice
    that with experts; runtime 3.5 GiB; all-reduce 342 MiB (TP 2) or 392 MiB. On GPUs of
    less than 40 GiB the runtime is 3.5/80 of the memory: on an RTX 4090 the three then
    sum to 1.29 GB; vLLM 0.19 used 1.24 GB (Llama-3.1-8B, 2,048 tokens; LLMServingSim's
    bench).
    """

    memory_bytes: int  # of the GPU
    utilization: float  # share of it that the engine takes
    weight_bytes: int
    activation_bytes: int  # peak of an iteration
    runtime_bytes: int  # CUDA context, graphs and workspaces
    comm_bytes: int  # buffers of the all-reduce
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
            held = math.floor(self.memory_bytes * self.utilization)
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
) -> MemoryBudget:
    """Return the memory of each GPU of a replica by use.

    ``gpu_memory_utilization`` is the share that the engine is told, see ``SHARE_OF``.

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
    gpus = layout.gpus if layout else tp
    width = max(llm.hidden, llm.attention_width)
    per_token_bytes = 2 * width * max(5.0, 2 + 9 / tp) * (2 if llm.experts else 1)
    share = 1.0 if memory_bytes >= _SMALL_BYTES else memory_bytes / (80 * _GIB)
    return MemoryBudget(
        memory_bytes=memory_bytes,
        utilization=gpu_memory_utilization,
        weight_bytes=llm.weight_bytes_per_gpu(
            tp,
            weight_dtype,
            expert_gpus=layout.expert_gpus(llm.experts) if layout else 0,
        ),
        activation_bytes=round(max_num_batched_tokens * per_token_bytes),
        runtime_bytes=round(3.5 * _GIB * share),
        comm_bytes={1: 0, 2: 342 * 2**20}.get(gpus, 392 * 2**20),
        engine=engine,
    )
