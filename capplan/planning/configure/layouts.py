"""Configurations of ranks that step together, and of experts spread over GPUs."""

from collections.abc import Iterator
from dataclasses import replace

from capplan.conflicts import conflict_of, refuse_conflicts
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.replica import Replica
from capplan.engines.catalog import ENGINES, VLLM
from capplan.engines.vllm import graph_sizes
from capplan.errors import InputError
from capplan.fleet.price import Price
from capplan.latency.catalog import rank_profiles
from capplan.latency.rank_bounds import alone
from capplan.latency.rank_kernels import ALL_REDUCE
from capplan.latency.rank_profile import RankProfile
from capplan.latency.rank_tables import RankTables
from capplan.llm.architecture import Architecture
from capplan.llm.layout import Layout
from capplan.planning.configure.context_parallel import shared_kv_tables
from capplan.planning.configure.features import features_of, refuse_beside
from capplan.planning.configure.iteration_time import (
    own_profile,
    quantile_of,
    served,
    timed,
)
from capplan.planning.configure.scheduling import runs
from capplan.planning.settings.asked import Asked
from capplan.planning.settings.groups import folders
from capplan.planning.settings.layouts import DEEPEP, DEFAULT_BACKEND
from capplan.simulator.engine.group_state import check_ranks

LOW_LATENCY_TOKENS = 1024
"""Most tokens of a rank in an iteration that DeepEP's low-latency kernels are for: it
keeps room for as many from every rank on each expert's GPU. Its tables end at 512."""
_BACKENDS = {
    DEFAULT_BACKEND: (*(row.exchange for row in ENGINES.values()), ALL_REDUCE),
    DEEPEP: ("deepep",),
}
"""All-to-all of profiles that stand for vLLM's."""


def check_layouts(settings: Asked, llm: Architecture) -> None:
    """Refuse ranks and experts that an LLM, an engine or a fleet cannot have."""
    for dp in settings.data_parallel_size:
        for tp in settings.tp or (1,):
            Layout(tp, dp).check(llm)
            if settings.enable_expert_parallel and llm.experts:
                laid_out(settings, Layout(tp, dp, tp * dp)).check(llm)
    if settings.enable_expert_parallel and not llm.experts:
        raise InputError(
            f"{llm.name} has no experts; expected no --enable-expert-parallel"
        )
    _check_backend(settings)
    if settings.may_have_ranks:
        refuse_conflicts(_of_groups(settings))


def _check_backend(settings: Asked) -> None:
    """Refuse an all-to-all that is not what the tables are of."""
    name = settings.all2all_backend
    if name in (None, DEFAULT_BACKEND):
        return
    if name != DEEPEP:
        raise InputError(
            f"--all2all-backend {name}: its kernels were measured for prompts alone; "
            f"expected {DEFAULT_BACKEND} or {DEEPEP}"
        )
    if settings.enable_expert_parallel is False:
        raise InputError(
            f"--all2all-backend {name} sends tokens to experts on other GPUs; expected "
            "--enable-expert-parallel"
        )


def _of_groups(settings: Asked) -> dict[str, str]:
    """Return the features of settings whose replicas are groups of ranks."""
    return {"ranks": "--data-parallel-size", **features_of(settings)}


def leaves_out_tp_alone(settings: Asked) -> bool:
    """Return whether TP alone is left out."""
    sizes = settings.data_parallel_size
    return bool(sizes and 1 not in sizes) or bool(settings.enable_expert_parallel)


def profiled_layouts(
    settings: Asked, llm: Architecture, gpu: str
) -> Iterator[RankProfile]:
    """Yield the profiles of the layouts that the settings look at, one of each."""
    if not llm.experts:
        return
    if settings.latency_ms is not None or own_profile(settings) is not None:
        return
    if not settings.looks_at_layouts:
        return
    wanted = _BACKENDS[settings.all2all_backend or DEFAULT_BACKEND]
    seen: set[Layout] = set()
    for profile in rank_profiles(folders(settings), gpu=gpu, llm=llm.name):
        layout = profile.layout
        if (
            layout in seen
            or profile.nextn
            or profile.all_to_all not in wanted
            or layout.ep not in (1, layout.gpus)
            or (settings.tp and layout.tp not in settings.tp)
            or not _is_wanted(settings, layout)
        ):
            continue
        seen.add(layout)
        yield profile


def _is_wanted(settings: Asked, layout: Layout) -> bool:
    sizes, experts = settings.sizes, settings.experts
    if sizes and layout.dp not in sizes:
        return False
    if layout.dp > 1 and not sizes and conflict_of(_of_groups(settings)):
        return False  # nobody asked for ranks
    return experts is None or experts is (layout.ep > 1)


def no_profile(
    settings: Asked, llm: Architecture, gpu: str
) -> tuple[Layout, str] | None:
    """Return a layout that was asked for without a profile, and why it is not planned.

    None where there is one, or nobody asked.
    """
    if not leaves_out_tp_alone(settings):
        return None
    if any(True for _ in profiled_layouts(settings, llm, gpu)):
        return None
    dp = max(settings.data_parallel_size, default=1)
    tp = settings.tp[0] if settings.tp else 1
    layout = Layout(tp, dp, tp * dp if settings.enable_expert_parallel else 1)
    all_of = rank_profiles(folders(settings), gpu=gpu, llm=llm.name)
    known = sorted({each.layout.text for each in all_of})
    there = f"known are those of {'; '.join(known)}" if known else "none is known"
    sent = f" with {settings.all2all_backend}" if settings.all2all_backend else ""
    return layout, (
        f"no profile of {llm.name} on {gpu} at {layout.text}{sent}; {there}"
    )


def with_ranks(
    engine: EngineSettings, settings: Asked, layout: Layout
) -> EngineSettings:
    """Return the engine of a layout.

    Without prefix caching where that keeps states and ranks take prompts together,
    which is not modelled.
    """
    if layout.dp == 1:
        return engine
    interval = settings.prefill_schedule_interval or 1
    caches = engine.prefix_caching and not (engine.keeps_states and interval > 1)
    return replace(
        engine,
        prefix_caching=caches,
        data_parallel_size=layout.dp,
        prefill_schedule_interval=interval,
        dp_balance=(runs(engine) or VLLM).balance,
    )


def laid_out(settings: Asked, layout: Layout) -> Layout:
    """Return a layout with the copies of experts that EPLB holds."""
    if layout.ep == 1:
        return layout
    return replace(layout, redundant_experts=settings.redundant_experts)


def timed_ranks(
    settings: Asked, profile: RankProfile, llm: Architecture
) -> RankProfile:
    """Return a profile with the engine's time; EPLB loads the experts evenly."""
    if settings.enable_eplb:
        even = {"imbalance": 1.0, "imbalance_source": "EPLB"}
        profile = profile.model_copy(update=even)
    return timed(settings, profile, llm)


def rank_tables_of(
    settings: Asked, profile: RankProfile, engine: EngineSettings, kv_dtype: str
) -> RankTables:
    """Return the parts of the iteration times of an engine's ranks."""
    made = profile.rank_tables(
        engine.max_num_seqs,
        engine.max_num_batched_tokens,
        quantile=quantile_of(settings, profile),
    )
    return made._replace(rank=served(made.rank, settings, kv_dtype, profile))


def check_backend_carries(
    settings: Asked, engine: EngineSettings, layout: Layout
) -> None:
    """Refuse an all-to-all that cannot carry an iteration of an engine."""
    tokens = engine.max_num_batched_tokens
    if settings.all2all_backend != DEEPEP or layout.dp == 1:
        return
    if tokens > LOW_LATENCY_TOKENS:
        raise InputError(
            f"--all2all-backend {DEEPEP} is for iterations of at most "
            f"{LOW_LATENCY_TOKENS:,} tokens of a rank, and prompts have up to "
            f"{tokens:,}; expected --max-num-batched-tokens {LOW_LATENCY_TOKENS}"
        )


def configured(
    settings: Asked,
    layout: Layout,
    profile: RankProfile,
    fitted: Replica,
    price: Price | None,
) -> Configuration:
    """Return the configuration of a layout; that of one rank is a TP group's."""
    engine = with_ranks(fitted.engine, settings, layout)
    tables = rank_tables_of(settings, profile, engine, fitted.kv_dtype)
    has_ranks = layout.dp > 1
    refuse_beside(engine, settings)
    if has_ranks:
        check_ranks(engine, tables)
    together = alone(tables) if has_ranks else tables.folded()
    return Configuration(
        engine,
        shared_kv_tables(together, settings, fitted),
        gpu=fitted.gpu.name,
        tp=layout.tp,
        price=price,
        profile=profile,
        replica=replace(fitted, engine=engine),
        quantile=quantile_of(settings, profile),
        rank_tables=tables if has_ranks else None,
        graph_sizes=graph_sizes(
            fitted.gpu, engine.max_num_seqs, engine.max_num_batched_tokens
        )
        if has_ranks
        else (),
        ep=layout.ep,
        redundant_experts=layout.redundant_experts,
        all_to_all=settings.all2all_backend or "",
        own_engine_times=settings.engine_overhead is not None,
    )
