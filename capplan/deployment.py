"""Engine settings, a replica with its KV capacity, and a deployment of replicas."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.fleet.gpu import Gpu
from capplan.llm.architecture import Architecture
from capplan.llm.dtypes import check_kv_dtype, check_weight_dtype
from capplan.llm.kv_groups import KvGroups, kv_groups
from capplan.llm.memory import DEFAULT_UTILIZATION, MemoryBudget, memory_budget
from capplan.units import format_bytes

_GIB = 2**30


@dataclass(frozen=True)
class EngineSettings:
    """Settings of an engine, with vLLM's names."""

    max_num_batched_tokens: int = 8192  # token budget of an iteration [tokens]
    max_num_seqs: int = 1024  # most requests running at once
    block_size: int = 16  # tokens in a KV block [tokens]
    kv_blocks: int = 27_000  # with the null block, as vLLM's ``num_gpu_blocks``
    async_scheduling: bool = True  # iteration k + 1 is scheduled while k runs
    prefix_caching: bool = False  # full blocks are kept and shared
    max_model_len: int = 2**31 - 1  # longest prompt plus output [tokens]
    bounded_groups: int = 0  # groups of layers whose KV a window or a state bounds
    bounded_blocks: int = 0  # most KV blocks that a request holds in each of them
    kv_block_bytes: int = 0  # of a KV block on each GPU; 0 where unknown [bytes]
    link_gb_per_s: float = 24.0  # GPU to host, each way, as PCIe 4.0 x16 carries [GB/s]
    host_kv_gib: float = 4.0  # host memory for KV, for each GPU (swap_space) [GiB]
    api_server_count: int = 1  # processes in front of each replica
    scheduler: str = "vllm-v1"  # policy and its settings, as ``orca:max_len=4096``

    def __post_init__(self) -> None:
        """Refuse settings with which no request can run."""
        for name in (
            "max_num_batched_tokens",
            "max_num_seqs",
            "block_size",
            "api_server_count",
        ):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected >= 1")
        if self.kv_blocks < 2:
            raise InputError(
                f"kv_blocks is {self.kv_blocks}; expected >= 2 (one is the null block)"
            )
        for name in (
            "bounded_groups",
            "bounded_blocks",
            "kv_block_bytes",
            "host_kv_gib",
        ):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} is {getattr(self, name)}; expected >= 0")
        if not self.link_gb_per_s > 0:
            raise InputError(f"link_gb_per_s is {self.link_gb_per_s}; expected > 0")

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens whose KV fits on the replica, bounded groups left out. [tokens]"""
        return (self.kv_blocks - 1) * self.block_size

    def capacity_at(self, context_tokens: float) -> int:
        """Return the tokens that fit in requests of this context. [tokens]"""
        bounded = min(context_tokens, self.bounded_blocks * self.block_size)
        share = context_tokens / (context_tokens + self.bounded_groups * bounded)
        return int(self.kv_capacity_tokens * share)

    @property
    def longest_request_tokens(self) -> int:
        """Tokens of the longest request that fits on the replica alone. [tokens]"""
        all_blocks = self.kv_blocks - 1
        within = min(all_blocks // (1 + self.bounded_groups), self.bounded_blocks)
        beyond = all_blocks - self.bounded_groups * self.bounded_blocks
        return max(within, beyond) * self.block_size

    def request_blocks(self, tokens: np.ndarray) -> np.ndarray:
        """Return the KV blocks of requests with so many tokens, shape (n,). [blocks]"""
        blocks = -(-tokens // self.block_size)
        return blocks + self.bounded_groups * np.minimum(blocks, self.bounded_blocks)

    @property
    def block_link_s(self) -> float:
        """Time to move a KV block between GPUs and host, each GPU its part. [s]"""
        return self._known_block_bytes() / (self.link_gb_per_s * 1e9)

    @property
    def host_kv_blocks(self) -> int:
        """KV blocks of the replica that fit in its host memory. [blocks]"""
        return int(self.host_kv_gib * _GIB) // self._known_block_bytes()

    def _known_block_bytes(self) -> int:
        if not self.kv_block_bytes:
            raise InputError(
                "the bytes of a KV block are not known, which swapping needs; "
                "name the LLM and the GPU"
            )
        return self.kv_block_bytes


def default_engine_settings(gpu: Gpu, **settings: Any) -> EngineSettings:
    """Return the default settings of ``vllm serve`` on a GPU.

    From 160 GiB 16,384 tokens and 1,024 requests; from 70 GiB, except A100, 8,192
    and 1,024; below 2,048 and 256; no more requests than tokens; prefix caching (vLLM
    0.32, engine arguments).
    ``settings`` override them where not None; :func:`replica` sets ``kv_blocks``.

    Examples
    --------
    >>> from capplan.fleet.catalog import gpu
    >>> default_engine_settings(gpu("A100"), block_size=32).max_num_batched_tokens
    2048
    """
    if gpu.memory_bytes >= 160 * _GIB:
        tokens, seqs = 16_384, 1024
    elif gpu.memory_bytes >= 70 * _GIB and "a100" not in gpu.name.lower():
        tokens, seqs = 8192, 1024
    else:
        tokens, seqs = 2048, 256
    given = {name: value for name, value in settings.items() if value is not None}
    seqs = min(seqs, given.get("max_num_batched_tokens", tokens))
    engine = EngineSettings(
        max_num_batched_tokens=tokens, max_num_seqs=seqs, prefix_caching=True
    )
    return replace(engine, **given)


def kv_blocks(
    llm: Architecture,
    gpu: Gpu,
    tp: int = 1,
    engine: EngineSettings | None = None,
    *,
    gpu_memory_utilization: float = DEFAULT_UTILIZATION,
    weight_dtype: str | None = None,
    kv_dtype: str = "bf16",
) -> int:
    """Return the estimated KV blocks of a replica, 0 when none fits. [blocks]

    The memory that weights, activations and runtime leave on one GPU, over the bytes
    of a block there; every GPU of a replica holds its part of each block.
    """
    engine = engine or default_engine_settings(gpu)
    budget = _budget(llm, gpu, tp, engine, gpu_memory_utilization, weight_dtype)
    groups = _groups(llm, tp, engine, kv_dtype)
    return max(0, groups.blocks(budget.kv_bytes, engine.max_num_batched_tokens))


def _budget(
    llm: Architecture,
    gpu: Gpu,
    tp: int,
    engine: EngineSettings,
    share: float,
    weight_dtype: str | None,
) -> MemoryBudget:
    return memory_budget(
        llm,
        gpu.memory_bytes,
        tp,
        engine.max_num_batched_tokens,
        gpu_memory_utilization=share,
        weight_dtype=weight_dtype,
    )


def _groups(
    llm: Architecture, tp: int, engine: EngineSettings, kv_dtype: str
) -> KvGroups:
    longest = min(engine.max_model_len, llm.max_positions)
    return kv_groups(
        llm,
        tp,
        kv_dtype,
        engine.block_size,
        longest,
        prefix_caching=engine.prefix_caching,
    )


class DoesNotFitError(InputError):
    """An LLM cannot run on a GPU type at a TP degree; a plan tries the others.

    ``budget`` is None when the reason is not memory.
    """

    def __init__(self, reason: str, budget: MemoryBudget | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.budget = budget


@dataclass(frozen=True)
class Replica:
    """One engine: an LLM on the GPUs of a tensor-parallel group."""

    llm: Architecture
    gpu: Gpu
    tp: int  # GPUs of the group
    weight_dtype: str
    kv_dtype: str
    engine: EngineSettings  # with the ``kv_blocks`` of the replica
    budget: MemoryBudget  # of each GPU
    kv_source: str = "estimated"  # or "reported by the engine"


def replica(
    llm: Architecture,
    gpu: Gpu,
    tp: int = 1,
    engine: EngineSettings | None = None,
    *,
    gpu_memory_utilization: float = DEFAULT_UTILIZATION,
    weight_dtype: str | None = None,
    kv_dtype: str = "bf16",
    reported_kv_blocks: int | None = None,
    reported_kv_tokens: int | None = None,
) -> Replica:
    """Return a replica with its KV capacity.

    Parameters
    ----------
    llm, gpu, tp
        LLM, GPU type and number of GPUs.
    engine
        Engine settings (default: those of the GPU); KV blocks, their bytes and the
        bounded groups are replaced, with recurrent states ``block_size`` is raised, as
        vLLM does, and prefix caching is off, since its hits are not modelled.
    gpu_memory_utilization
        Share of memory that the engine may use, in (0, 1].
    weight_dtype, kv_dtype
        Dtypes of weights (default: the checkpoint's) and KV.
    reported_kv_blocks, reported_kv_tokens
        Capacity reported by an engine, used instead of the estimate. [blocks],
        [tokens]

    Raises
    ------
    DoesNotFitError
        When TP cannot split the LLM or exceeds the node, or memory is short.
    """
    if tp > gpu.max_gpus_per_node:
        raise DoesNotFitError(
            f"TP {tp} takes more GPUs than a node of {gpu.name} has "
            f"({gpu.max_gpus_per_node})"
        )
    if tp >= 1:
        try:
            llm.check_tp(tp)
        except InputError as error:
            raise DoesNotFitError(str(error)) from None
    engine = engine or default_engine_settings(gpu)
    dtype = check_weight_dtype(weight_dtype or llm.weight_dtype)
    kv_dtype = check_kv_dtype(kv_dtype)
    budget = _budget(llm, gpu, tp, engine, gpu_memory_utilization, dtype)
    groups = _groups(llm, tp, engine, kv_dtype)
    engine = replace(
        engine,
        block_size=groups.block_size,
        bounded_groups=groups.bounded_groups,
        bounded_blocks=groups.bounded_blocks,
        kv_block_bytes=groups.block_bytes,
        prefix_caching=engine.prefix_caching and not llm.state_layers,
    )
    blocks = groups.blocks(budget.kv_bytes, engine.max_num_batched_tokens)
    source = "estimated"
    if reported_kv_blocks is not None:
        blocks, source = reported_kv_blocks, "reported by the engine"
    elif reported_kv_tokens is not None:
        blocks = reported_kv_tokens // engine.block_size
        source = "reported by the engine"
    if blocks < 2 + groups.bounded_groups:
        raise DoesNotFitError(_too_small(llm, gpu, tp, dtype, budget), budget)
    engine = replace(engine, kv_blocks=blocks)
    longest = min(
        engine.max_model_len, llm.max_positions, engine.longest_request_tokens
    )
    engine = replace(engine, max_model_len=longest)
    return Replica(llm, gpu, tp, dtype, kv_dtype, engine, budget, source)


def _too_small(
    llm: Architecture, gpu: Gpu, tp: int, dtype: str, budget: MemoryBudget
) -> str:
    other = budget.activation_bytes + budget.runtime_bytes + budget.comm_bytes
    return (
        f"{llm.name} ({dtype}) does not fit on {gpu.name} at TP {tp}: each GPU has "
        f"{format_bytes(budget.engine_bytes)} for the engine "
        f"({budget.utilization:.0%} of {format_bytes(budget.memory_bytes)}), weights "
        f"take {format_bytes(budget.weight_bytes)} and activations and runtime "
        f"{format_bytes(other)}, which leaves no room for KV"
    )


@dataclass(frozen=True)
class Deployment:
    """Equal replicas on one GPU type.

    Examples
    --------
    >>> deployment = Deployment("H100", tp=8, replica_count=5)
    >>> deployment.gpu_count, str(deployment)
    (40, '40 GPUs = 5 replicas × 8 (TP 8)')
    """

    gpu: str  # may be empty where nobody named it
    tp: int  # GPUs of a replica
    replica_count: int

    def __post_init__(self) -> None:
        """Refuse a deployment without GPUs."""
        for name in ("tp", "replica_count"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected >= 1")

    @property
    def gpu_count(self) -> int:
        """GPUs of all replicas."""
        return self.replica_count * self.tp

    def __str__(self) -> str:
        """Return ``1,000 GPUs = 125 replicas × 8 (TP 8)``."""
        gpus = "GPU" if self.gpu_count == 1 else "GPUs"
        replicas = "replica" if self.replica_count == 1 else "replicas"
        return (
            f"{self.gpu_count:,} {gpus} = {self.replica_count:,} {replicas} × "
            f"{self.tp} (TP {self.tp})"
        )
