"""A replica: an LLM on the GPUs of its ranks, with the KV capacity of each."""

from dataclasses import dataclass, replace
from typing import Any

from capplan.deployment.engine import EngineSettings, default_engine_settings
from capplan.deployment.engine_defaults import graph_sizes
from capplan.deployment.speculation import WITHOUT_KV
from capplan.errors import InputError
from capplan.fleet.gpu import Gpu
from capplan.llm.acceptance import drafted_llm
from capplan.llm.architecture import Architecture
from capplan.llm.context_parallel import check_dcp
from capplan.llm.dtypes import check_kv_dtype, weight_dtype_named
from capplan.llm.kv_groups import KvGroups, kv_groups
from capplan.llm.layout import Layout
from capplan.llm.memory import DEFAULT_UTILIZATION, MemoryBudget, memory_budget
from capplan.llm.pipeline import absent_bytes, stage_llms
from capplan.units import format_bytes


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
    """One engine: an LLM on the GPUs of a tensor-parallel group, or of several."""

    llm: Architecture
    gpu: Gpu
    tp: int  # GPUs of a rank
    weight_dtype: str
    kv_dtype: str
    engine: EngineSettings  # with the ``kv_blocks`` of a rank
    budget: MemoryBudget  # of each GPU; of a pipeline those of the fullest stage
    kv_source: str = "estimated"  # or "reported by the engine"

    @property
    def weight_bytes_of_stages(self) -> int:
        """Weights of one GPU of each stage together. [bytes]"""
        stages = self.engine.pipeline_parallel_size
        if stages == 1:  # those of its draft among them
            return self.budget.weight_bytes
        return sum(
            part.weight_bytes_per_gpu(self.tp, self.weight_dtype)
            - absent_bytes(self.llm, self.tp, stage, stages)
            for stage, part in enumerate(stage_llms(self.llm, stages))
        )


def _check_split(
    llm: Architecture, gpu: Gpu, tp: int, layout: Layout | None, dcp: int
) -> None:
    """Refuse GPUs among which an LLM, its experts or its KV cannot be split."""
    if tp > gpu.max_gpus_per_node:
        raise DoesNotFitError(
            f"TP {tp} takes more GPUs than a node of {gpu.name} has "
            f"({gpu.max_gpus_per_node})"
        )
    if tp >= 1:
        try:
            llm.check_tp(tp)
            if layout is not None:
                layout.check(llm)
            check_dcp(llm, tp, dcp)
        except InputError as error:
            raise DoesNotFitError(str(error)) from None


def _fullest_stage(
    llm: Architecture,
    gpu: Gpu,
    tp: int,
    limits: EngineSettings,
    kv_dtype: str,
    graphs: int,
    **given: Any,
) -> tuple[MemoryBudget, KvGroups]:
    """Return the memory of each GPU of the stage with fewest KV blocks, and those.

    Every stage has so many (vLLM 0.32, v1/core/kv_cache_utils.py,
    ``get_kv_cache_configs``). ``given`` is what ``memory_budget`` takes.
    """
    tokens, stages = limits.max_num_batched_tokens, limits.pipeline_parallel_size
    found = []
    for stage, part in enumerate(stage_llms(llm, stages) if stages > 1 else (llm,)):
        budget = memory_budget(
            part,
            gpu.memory_bytes,
            tp,
            tokens,
            max_num_seqs=limits.max_num_seqs,
            graphs=graphs,
            **given,
        )
        absent = absent_bytes(llm, tp, stage, stages)
        budget = replace(budget, weight_bytes=budget.weight_bytes - absent)
        if limits.adapters is not None:
            budget = replace(budget, adapter_bytes=limits.adapters.gpu_bytes)
        if limits.images is not None:
            held_bytes = limits.images.gpu_bytes(tokens)
            budget = replace(budget, encoder_bytes=held_bytes)
        groups = kv_groups(
            part,
            tp,
            kv_dtype,
            limits.gpu_block_size,
            min(limits.max_model_len, llm.max_positions),
            prefix_caching=limits.prefix_caching,
        )
        found.append((groups.blocks(budget.kv_bytes, tokens), budget, groups))
    _, budget, groups = min(found, key=lambda each: each[0])
    return budget, groups


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
    layout: Layout | None = None,
    engine_name: str = "vllm",
    room_for_graphs: bool = True,
) -> Replica:
    """Return a replica with its KV capacity.

    Parameters
    ----------
    llm, gpu, tp
        LLM, GPU type and number of GPUs.
    engine
        Engine settings (default: those of the GPU); KV blocks, their bytes and the
        bounded groups are replaced, with recurrent states ``block_size`` is raised, as
        vLLM does, and prefix caching is off where its hits are not modelled.
    gpu_memory_utilization
        Share of memory that the engine may use, in (0, 1].
    weight_dtype, kv_dtype
        Dtypes of weights (default: the checkpoint's) and KV.
    reported_kv_blocks, reported_kv_tokens
        Capacity reported by an engine, used instead of the estimate; tokens without
        DCP. [blocks], [tokens]
    layout
        How the ranks and the experts share the GPUs (default: TP alone).
    engine_name
        Whose share of memory ``gpu_memory_utilization`` is.
    room_for_graphs
        Whether CUDA graphs are within the share, as in vLLM since 0.21.

    Raises
    ------
    DoesNotFitError
        When TP cannot split the LLM or exceeds the node, or memory is short.
    """
    engine = engine or default_engine_settings(gpu)
    _check_split(llm, gpu, tp, layout, engine.decode_context_parallel_size)
    dtype = weight_dtype_named(weight_dtype or llm.weight_dtype)
    kv_dtype = check_kv_dtype(kv_dtype)
    caches = engine.prefix_caching and (engine.is_plain_v1 or not llm.state_layers)
    engine = replace(engine, prefix_caching=caches)
    drafts = engine.speculation
    # With the layer of its draft, where that has weights and KV.
    held = llm
    if drafts is not None and drafts.method not in WITHOUT_KV:
        held = drafted_llm(llm, drafts.method)
    budget, groups = _fullest_stage(
        held,
        gpu,
        tp,
        engine,
        kv_dtype,
        len(graph_sizes(gpu, engine)) if room_for_graphs else 0,
        gpu_memory_utilization=gpu_memory_utilization,
        weight_dtype=dtype,
        layout=layout,
        engine=engine_name,
    )
    engine = replace(
        engine,
        block_size=groups.block_size * engine.decode_context_parallel_size,
        bounded_groups=groups.bounded_groups,
        # Each drafted token has a state of its own until it is accepted.
        bounded_blocks=groups.bounded_blocks
        + (drafts.drafts if drafts is not None and llm.state_layers else 0),
        state_groups=groups.bounded_groups if llm.state_layers else 0,
        kv_block_bytes=groups.block_bytes,
    )
    blocks = groups.blocks(budget.kv_bytes, engine.max_num_batched_tokens)
    source = "estimated"
    if reported_kv_blocks is not None:
        blocks, source = reported_kv_blocks, "reported by the engine"
    elif reported_kv_tokens is not None:
        blocks = reported_kv_tokens // engine.gpu_block_size
        source = "reported by the engine"
    if blocks < 2 + groups.bounded_groups:
        degrees = (layout or Layout(tp, pp=engine.pipeline_parallel_size)).text
        raise DoesNotFitError(_too_small(llm, gpu, degrees, dtype, budget), budget)
    engine = replace(engine, kv_blocks=blocks)
    longest = min(
        engine.max_model_len, llm.max_positions, engine.longest_request_tokens
    )
    engine = replace(engine, max_model_len=longest)
    return Replica(llm, gpu, tp, dtype, kv_dtype, engine, budget, source)


def _too_small(
    llm: Architecture, gpu: Gpu, degrees: str, dtype: str, budget: MemoryBudget
) -> str:
    other = budget.activation_bytes + budget.runtime_bytes + budget.comm_bytes
    other += budget.adapter_bytes + budget.encoder_bytes
    share = f"{budget.engine_bytes / budget.memory_bytes:.0%}"
    return (
        f"{llm.name} ({dtype}) does not fit on {gpu.name} at {degrees}: each GPU has "
        f"{format_bytes(budget.engine_bytes)} for the engine "
        f"({share} of {format_bytes(budget.memory_bytes)}), weights "
        f"take {format_bytes(budget.weight_bytes)} and activations and runtime "
        f"{format_bytes(other)}, which leaves no room for KV"
    )
