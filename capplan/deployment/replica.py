"""A replica: an LLM on the GPUs of its ranks, with the KV capacity of each."""

from dataclasses import dataclass, replace

from capplan.deployment.engine import EngineSettings, default_engine_settings
from capplan.deployment.memory import MemoryBudget, MemoryShare, memory_budget
from capplan.deployment.speculation import WITHOUT_KV
from capplan.errors import InputError
from capplan.fleet.gpu import Gpu
from capplan.llm.acceptance import drafted_llm
from capplan.llm.architecture import Architecture
from capplan.llm.context_parallel import check_dcp
from capplan.llm.dtypes import check_kv_dtype, weight_dtype_named
from capplan.llm.kv_groups import KvGroups, kv_groups
from capplan.llm.layout import Layout
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
            for stage, part in enumerate(_stages_of(self.llm, self.engine))
        )


def _check_split(llm: Architecture, gpu: Gpu, layout: Layout, dcp: int) -> None:
    """Refuse GPUs among which an LLM, its experts or its KV cannot be split."""
    if layout.tp > gpu.max_gpus_per_node:
        raise DoesNotFitError(
            f"TP {layout.tp} takes more GPUs than a node of {gpu.name} has "
            f"({gpu.max_gpus_per_node})"
        )
    try:
        layout.check(llm)
        check_dcp(llm, layout.tp, dcp)
    except InputError as error:
        raise DoesNotFitError(str(error)) from None


def _stages_of(llm: Architecture, engine: EngineSettings) -> tuple[Architecture, ...]:
    """Return the LLM of each stage; the last has the layer of a draft with weights."""
    stages, drafts = engine.pipeline_parallel_size, engine.speculation
    *others, last = stage_llms(llm, stages) if stages > 1 else (llm,)
    if drafts is not None and drafts.method not in WITHOUT_KV:
        last = drafted_llm(last, drafts.method)
    return *others, last


def _fullest_stage(
    llm: Architecture,
    gpu: Gpu,
    layout: Layout,
    limits: EngineSettings,
    kv_dtype: str,
    memory: MemoryShare,
) -> tuple[MemoryBudget, KvGroups]:
    """Return the memory of each GPU of the stage with fewest KV blocks, and those.

    Every stage has so many (vLLM 0.32, v1/core/kv_cache_utils.py,
    ``get_kv_cache_configs``).
    """
    stages, found = limits.pipeline_parallel_size, []
    for stage, part in enumerate(_stages_of(llm, limits)):
        budget = memory_budget(part, gpu, layout, limits, memory)
        absent = absent_bytes(llm, layout.tp, stage, stages)
        budget = replace(budget, weight_bytes=budget.weight_bytes - absent)
        groups = kv_groups(
            part,
            layout.tp,
            kv_dtype,
            limits.gpu_block_size,
            min(limits.max_model_len, llm.max_positions),
            prefix_caching=limits.prefix_caching,
        )
        blocks = groups.blocks(budget.kv_bytes, limits.max_num_batched_tokens)
        found.append((blocks, budget, groups))
    _, budget, groups = min(found, key=lambda each: each[0])
    return budget, groups


def replica(
    llm: Architecture,
    gpu: Gpu,
    layout: Layout = Layout(),
    engine: EngineSettings | None = None,
    *,
    memory: MemoryShare = MemoryShare(),
    kv_dtype: str = "bf16",
    reported_kv_blocks: int | None = None,
    reported_kv_tokens: int | None = None,
) -> Replica:
    """Return a replica with its KV capacity.

    Of the engine settings (default: those of the GPU) KV blocks, their bytes and the
    bounded groups are replaced, with recurrent states ``block_size`` is raised, as vLLM
    does, and prefix caching is off where its hits are not modelled. A capacity that an
    engine reports is used instead of the estimate; tokens without DCP.
    """
    engine = engine or default_engine_settings(gpu)
    _check_split(llm, gpu, layout, engine.decode_context_parallel_size)
    dtype = weight_dtype_named(llm.weight_dtype)
    kv_dtype = check_kv_dtype(kv_dtype)
    caches = engine.prefix_caching and (engine.is_plain_v1 or not llm.state_layers)
    engine = replace(engine, prefix_caching=caches)
    drafts = engine.speculation
    budget, groups = _fullest_stage(llm, gpu, layout, engine, kv_dtype, memory)
    engine = replace(
        engine,
        block_size=groups.block_size * engine.decode_context_parallel_size,
        bounded_groups=groups.bounded_groups,
        # Each drafted token has a state of its own until it is accepted.
        bounded_blocks=groups.bounded_blocks
        + (drafts.drafts if drafts is not None and llm.state_layers else 0),
        state_groups=groups.bounded_groups if llm.state_layers else 0,
        kv_block_bytes=groups.block_bytes,
    ).with_sized_tier(1 if llm.is_mla else layout.tp)
    blocks = groups.blocks(budget.kv_bytes, engine.max_num_batched_tokens)
    source = "estimated"
    if reported_kv_blocks is not None:
        blocks, source = reported_kv_blocks, "reported by the engine"
    elif reported_kv_tokens is not None:
        blocks = reported_kv_tokens // engine.gpu_block_size
        source = "reported by the engine"
    if blocks < 2 + groups.bounded_groups:
        whole = replace(layout, pp=engine.pipeline_parallel_size)
        raise DoesNotFitError(_too_small(llm, gpu, whole.text, budget), budget)
    engine = replace(engine, kv_blocks=blocks)
    longest = min(
        engine.max_model_len, llm.max_positions, engine.longest_request_tokens
    )
    engine = replace(engine, max_model_len=longest)
    return Replica(llm, gpu, layout.tp, dtype, kv_dtype, engine, budget, source)


def _too_small(llm: Architecture, gpu: Gpu, degrees: str, budget: MemoryBudget) -> str:
    share = f"{100 * budget.engine_bytes / budget.memory_bytes:.0f} %"
    return (
        f"{llm.name} ({llm.weight_dtype}) does not fit on {gpu.name} at {degrees}: "
        f"each GPU has {format_bytes(budget.engine_bytes)} for the engine "
        f"({share} of {format_bytes(budget.memory_bytes)}), weights "
        f"take {format_bytes(budget.weight_bytes)} and activations and runtime "
        f"{format_bytes(budget.beside_bytes)}, which leaves no room for KV"
    )
