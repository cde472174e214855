"""The scheduler of a plan's engines, and what it makes of their settings."""

from dataclasses import replace

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.engines.catalog import ENGINES, VLLM, parse_engine
from capplan.engines.engine import Engine
from capplan.errors import InputError
from capplan.latency.contract import LatencyTables
from capplan.latency.rank_bounds import alone, as_one, least_beyond
from capplan.latency.rank_tables import RankTables
from capplan.planning.settings.asked import Asked
from capplan.planning.settings.fleet import COPYING
from capplan.simulator.checks import check_scheduler, without_unsupported
from capplan.simulator.schedulers import parse_scheduler

_OWN = ("async_scheduling", "prefix_caching")


def engine_of(settings: Asked) -> Engine:
    """Return the engine whose scheduler, defaults and command a plan takes.

    That of ``--engine``. Where another scheduler is named, or pools for prompts and
    decoding or drafts, which V1's alone has here, the plan takes its times alone.
    """
    named = ENGINES[parse_engine(settings.engine or VLLM.name).engine]
    other = (settings.scheduler or named.scheduler).partition(":")[0]
    if other != named.scheduler or settings.speculative_config:
        return VLLM
    return VLLM if settings.disaggregated or settings.is_disaggregated else named


def scheduled(engine: EngineSettings, settings: Asked) -> EngineSettings:
    """Return an engine with the scheduler of the settings.

    Async scheduling and prefix caching that it does not have are refused where the
    settings ask for them, and else turned off.
    """
    policy = engine.scheduler
    of_engine = engine_of(settings).scheduler
    is_other = settings.scheduler or of_engine != policy.name
    if is_other and "scheduler" in settings.offered:
        policy = parse_scheduler(settings.scheduler or of_engine)
    engine = replace(engine, scheduler=policy)
    asked = replace(
        engine,
        async_scheduling=settings.async_scheduling is True,
        prefix_caching=settings.prefix_caching is True,
    )
    check_scheduler(asked)
    copies = settings.given(COPYING)
    for field in ("link_gb_per_s", "host_kv_gib"):
        used = policy.does("swaps") or (copies and field == "link_gb_per_s")
        if getattr(settings, field) is not None and not used:
            raise InputError(
                f"{field} is given; scheduler {policy} swaps nothing"
                + (", and no KV goes to other replicas" * (field == "link_gb_per_s"))
                + ": leave it out"
            )
    return without_unsupported(engine)


def runs(engine: EngineSettings) -> Engine | None:
    """Return the engine that schedules so; None of schedulers that none has."""
    name = engine.scheduler.name
    return next((row for row in ENGINES.values() if name in row.schedulers), None)


def is_vllm(engine: EngineSettings) -> bool:
    """Return whether ``vllm serve`` schedules so: it can be started and tuned."""
    return runs(engine) is VLLM


def rules(engine: EngineSettings) -> str:
    """Return whose scheduling rules are simulated, such as ``vLLM 0.24 to 0.33``."""
    whose = runs(engine)
    return str(engine.scheduler) if whose is None else whose.version


def scheduling(engine: EngineSettings) -> str:
    """Return how an engine schedules, and what its scheduler does not have."""
    if is_vllm(engine):
        policy = VLLM.schedulers[engine.scheduler.name]
        by = f", --scheduling-policy {policy}" if policy else ""
        drafts = engine.speculation
        verifies = "" if drafts is None else f"; {drafts.described}"
        return f"schedules as the V1 scheduler of {VLLM.version}{by}{verifies}"
    rules = engine.scheduler.rules
    missing = [name.replace("_", " ") for name in _OWN if not getattr(rules, name)]
    if rules.reserves:
        missing.append("token budget")
    without = f", without {', '.join(missing)}" if missing else ""
    whose = runs(engine)
    by = str(engine.scheduler)
    by = f"{whose.version} ({by})" if whose else by
    return f"schedules as {by}{without}"


def widest_of_replica(
    configuration: Configuration,
) -> tuple[EngineSettings, LatencyTables]:
    """Return settings and tables that bound the iterations of a whole replica.

    Those of ranks that step together are one engine with the limits of all.
    """
    if configuration.rank_tables is None:
        return widest_iterations(configuration.engine, configuration.tables)
    engine, ranks = _widest_ranks(configuration.engine, configuration.rank_tables)
    seats, tokens = engine.max_num_seqs, engine.max_num_batched_tokens
    count = engine.data_parallel_size
    together = replace(
        engine,
        max_num_seqs=count * seats,
        max_num_batched_tokens=count * tokens,
        kv_blocks=count * (engine.kv_blocks - 1) + 1,
        data_parallel_size=1,
        prefill_schedule_interval=1,
    )
    return together, as_one(ranks, seats, tokens)


def widest_alone(configuration: Configuration) -> tuple[EngineSettings, LatencyTables]:
    """Return settings and tables that bound the iterations of a request's own engine.

    Of ranks that step together it is one of them, beside which the others idle.
    """
    if configuration.rank_tables is None:
        return widest_iterations(configuration.engine, configuration.tables)
    engine, ranks = _widest_ranks(configuration.engine, configuration.rank_tables)
    return engine, alone(ranks)


def _widest_ranks(
    engine: EngineSettings, ranks: RankTables
) -> tuple[EngineSettings, RankTables]:
    """Return settings and parts that bound the iterations of ranks."""
    widest, rank = widest_iterations(engine, ranks.rank)
    if engine.speculation is not None:
        ranks = engine.speculation.rank_tables(ranks)
    return widest, ranks._replace(rank=rank)


def widest_iterations(
    engine: EngineSettings, tables: LatencyTables
) -> tuple[EngineSettings, LatencyTables]:
    """Return settings and tables that bound the iterations of the engine's scheduler.

    Where it reserves KV, prompts are not cut and an iteration has no token budget: its
    prompts and contexts together are what the KV holds. Where the budget is of prompts,
    decodes come on top of it. The simulator continues the tables in the same way.
    Where drafts are verified, the decodes' share of ``fused_s`` is that of one token of
    each, no more than an iteration takes. Of a pipeline they are the steps of a stage.
    """
    tables = engine.tables(tables)
    if engine.speculation is not None:
        least_s = least_beyond(tables.fused_s)
        return engine, tables._replace(fused_s=np.ascontiguousarray(least_s))
    if engine.pipeline is not None:
        return engine, tables
    rules = engine.scheduler.rules
    tokens = engine.max_num_batched_tokens
    if rules.reserves:
        tokens = max(tokens, engine.kv_capacity_tokens)
    elif rules.prompt_budget:
        tokens += engine.max_num_seqs
    else:
        return engine, tables
    return replace(engine, max_num_batched_tokens=tokens), tables.reaching(tokens)
