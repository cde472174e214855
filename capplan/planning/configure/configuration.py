"""Configurations to compare: GPU type, TP degree, engine settings, iteration time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings, with_defaults
from capplan.deployment.replica import DoesNotFitError
from capplan.errors import ExtrapolationWarning, InputError, warn
from capplan.fleet.catalog import own_prices, parse_prices
from capplan.fleet.gpu import Gpu
from capplan.fleet.price import GIVEN, Price
from capplan.fleet.prices import Market
from capplan.latency.catalog import list_profiles
from capplan.latency.estimate import estimated_profile
from capplan.latency.profile import Profile
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm
from capplan.llm.catalog import twins
from capplan.llm.layout import Layout
from capplan.planning.configure.adapters import with_adapters
from capplan.planning.configure.backtested import backtested
from capplan.planning.configure.context_parallel import shared_kv_tables, sharing_kv
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.features import refuse_beside
from capplan.planning.configure.images import with_images
from capplan.planning.configure.iteration_time import (
    own_profile,
    profile_of,
    quantile_of,
    tables_of,
    timed,
)
from capplan.planning.configure.layouts import (
    check_backend_carries,
    check_layouts,
    configured,
    laid_out,
    leaves_out_tp_alone,
    no_profile,
    profiled_layouts,
    timed_ranks,
)
from capplan.planning.configure.pipeline import (
    fewest_stages,
    in_stages,
    only_stages,
    with_own_time,
)
from capplan.planning.configure.scheduling import engine_of, scheduled
from capplan.planning.configure.since import check_since
from capplan.planning.configure.sized_replica import is_of, sized_replica
from capplan.planning.configure.speculation import speculating
from capplan.planning.configure.tier import with_memory_paid, with_tier
from capplan.planning.money.gpu_choices import (
    listed_gpu,
    market_of,
    price_of,
    refuse_of_an_llm,
    slow_link,
    unfit,
)
from capplan.planning.settings.asked import Asked, asked
from capplan.planning.settings.engine import ParallelSettings
from capplan.planning.settings.groups import ConfigurationSettings, folders
from capplan.units import parse_usd_per_h

_ENGINE_SETTINGS = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "block_size",
    "async_scheduling",
    "prefix_caching",
    "link_gb_per_s",
    "host_kv_gib",
    "api_server_count",
)


def configurations(
    settings: ConfigurationSettings,
) -> Iterator[Configuration | Excluded]:
    """Return a configuration for every GPU and layout of the settings, in order."""
    of = asked(settings)
    return with_memory_paid(backtested(_configurations(of), of), of)


def _configurations(settings: Asked) -> Iterator[Configuration | Excluded]:
    if settings.llm is None:
        raise InputError("no LLM; give --llm NAME")
    llm = find_llm(settings.llm)
    check_since(settings)
    check_layouts(settings, llm)
    pairs = _profiled(settings, llm)
    profiled = dict.fromkeys(name for name, _ in pairs)
    gpus = [listed_gpu(name, profiled) for name in settings.gpu or profiled]
    if not gpus:
        raise InputError(
            f"no profile of {llm.name} on any GPU; give --gpu with --latency-ms, "
            "or --profiles DIR with a profile measured by capplan profile"
        )
    names = {gpu if isinstance(gpu, str) else gpu.name for gpu in gpus}
    for name in settings.price:
        priced = listed_gpu(name, profiled)
        if (priced if isinstance(priced, str) else priced.name) not in names:
            known = ", ".join(sorted(names))
            raise InputError(f"--price {name}: no candidate; expected one of {known}")
    listed = {
        name: text
        for name, text in settings.price.items()
        if not isinstance(listed_gpu(name, profiled), str)
    }
    overrides = {name: usd for name, usd in own_prices().items() if name in names}
    overrides |= parse_prices(listed)
    market = market_of(settings, overrides) if "price" in settings.offered else None
    for gpu in gpus:
        name = gpu if isinstance(gpu, str) else gpu.name
        tps = settings.tp or tuple(sorted({tp for at, tp in pairs if at == name}))
        if isinstance(gpu, str):
            for tp in tps:
                yield _unlisted(settings, llm, gpu, tp)
            continue
        degrees = partial(_degrees, settings, llm, gpu, tps or (1, 2, 4, 8), market)
        tried: list[Configuration | Excluded] = []
        if not leaves_out_tp_alone(settings):
            tried += degrees(settings.pipeline_parallel_size or (1,))
        tried += _layouts(settings, llm, gpu, market)
        yield from tried
        able = any(isinstance(one, Configuration) for one in tried)
        if not able:
            yield from fewest_stages(settings, degrees)


def _degrees(
    settings: Asked,
    llm: Architecture,
    gpu: Gpu,
    tps: Sequence[int],
    market: Market | None,
    stage_counts: Sequence[int],
) -> Iterator[Configuration | Excluded]:
    """Yield the configurations of TP degrees and stages."""
    for tp in tps:
        if reason := slow_link(settings, gpu, tp) or unfit(market, gpu, tp):
            yield Excluded(gpu.name, tp, reason)
            continue
        cost = price_of(settings, market, gpu, tp)
        for stages in stage_counts:
            yield _configuration(settings, llm, gpu, tp, cost, stages)


def _layouts(
    settings: Asked, llm: Architecture, gpu: Gpu, market: Market | None
) -> Iterator[Configuration | Excluded]:
    """Yield the configurations of ranks that step together, and of EP."""
    if missing := no_profile(settings, llm, gpu.name):
        layout, reason = missing
        yield Excluded(gpu.name, layout.tp, reason, layout)
    for profile in profiled_layouts(settings, llm, gpu.name):
        layout = laid_out(settings, profile.layout)
        gpus = layout.gpus
        if reason := slow_link(settings, gpu, gpus) or unfit(market, gpu, gpus):
            yield Excluded(gpu.name, layout.tp, reason, layout)
            continue
        cost = price_of(settings, market, gpu, gpus)
        alone = timed_ranks(settings, profile, llm)
        try:
            engine, memory_share = _engine(settings, llm, gpu, layout.tp, None, 1)
            check_backend_carries(settings, engine, layout)
            fitted = sized_replica(
                settings, llm, gpu, layout, engine, alone, memory_share
            )
            yield configured(settings, layout, alone, fitted, price=cost)
        except InputError as error:
            yield Excluded(gpu.name, layout.tp, str(error), layout)


def given_configuration(given: ConfigurationSettings) -> Configuration | None:
    """Return the configuration of settings without LLM and GPU, or None.

    They give the coefficients of the iteration time and the KV blocks instead.
    """
    settings = asked(given)
    if settings.llm is not None or settings.latency_ms is None:
        return None
    if settings.kv_blocks is None:
        return None
    limits = {"prefix_caching": True, **_engine_settings(settings, None)}
    engine = EngineSettings(**limits, kv_blocks=settings.kv_blocks)
    tp = settings.tp[0] if settings.tp else 1
    engine = _with_features(engine, settings, None, None, tp, only_stages(settings))
    engine = sharing_kv(engine, settings, None, tp).with_sized_tier(tp)
    (built,) = backtested([_built(settings, engine, None, tp=tp)], settings)
    assert isinstance(built, Configuration)
    return built


def _profiled(settings: Asked, llm: Architecture) -> list[tuple[str, int]]:
    own = own_profile(settings)
    if own is not None:
        return [(own.gpu, own.tp)]
    names = (llm.name, *twins(llm))
    return [
        (listed.gpu, listed.tp)
        for listed in list_profiles(folders(settings))
        if listed.llm in names
    ]


def _unlisted(
    settings: Asked, llm: Architecture, gpu: str, tp: int
) -> Configuration | Excluded:
    """Return a configuration of a GPU that only its profile knows.

    Engine settings and KV blocks are those it was measured with.
    """
    for name in ParallelSettings.model_fields:
        if getattr(settings, name) not in (None, 1, (), (1,)):
            return Excluded(gpu, tp, f"{gpu} is in no catalog, which {name} needs")
    profile = profile_of(settings, llm, gpu, tp)
    if profile is None:
        reason = f"{gpu} is in no catalog, and there is no profile of it at TP {tp}"
        return Excluded(gpu, tp, reason)
    profile = timed(settings, profile, llm)
    asked = settings.kv_cache_dtype
    kv_dtype = profile.kv_element if asked == "auto" else asked
    if kv_dtype != profile.kv_element and settings.kv_blocks is None:
        reason = (
            f"{gpu} is in no catalog, and its KV blocks are of {profile.kv_element}"
        )
        return Excluded(gpu, tp, f"{reason}; give --kv-blocks")
    engine = EngineSettings(**_engine_settings(settings, profile))
    engine = _with_features(engine, settings, llm, None, tp, 1)
    blocks = settings.kv_blocks or int(profile.meta.get("kv_blocks", 0))
    blocks = blocks or (profile.kv_tokens or 0) // engine.block_size
    if not blocks:
        reason = f"{gpu} is in no catalog, and its profile has no KV blocks"
        return Excluded(gpu, tp, f"{reason}; give --kv-blocks")
    block_bytes = engine.block_size * llm.kv_bytes_per_token_per_gpu(tp, kv_dtype)
    engine = replace(engine, kv_blocks=blocks, kv_block_bytes=block_bytes)
    engine = engine.with_sized_tier(1 if llm.is_mla else tp)
    cost = None
    if gpu in settings.price:
        cost = Price(parse_usd_per_h(settings.price[gpu]), GIVEN)
    return _built(settings, engine, profile, gpu=gpu, tp=tp, price=cost)


def _engine_settings(settings: Asked, profile: Profile | None) -> dict[str, Any]:
    """Return the engine settings of the user, else those of the measured profile.

    The KV blocks that a measured engine reported hold for the settings it then had.
    """
    measured = profile.meta if profile and profile.how == "measured" else {}
    if profile is not None and not is_of(profile, engine_of(settings)):
        measured = {}
    names = (*_ENGINE_SETTINGS, "max_model_len")
    known = {name: measured[name] for name in names if name in measured}
    given = {name: getattr(settings, name) for name in _ENGINE_SETTINGS}
    return known | {name: value for name, value in given.items() if value is not None}


def _engine(
    settings: Asked,
    llm: Architecture,
    gpu: Gpu,
    tp: int,
    profile: Profile | None,
    stages: int,
) -> tuple[EngineSettings, float]:
    """Return the engine of a replica without its blocks, and its share of memory."""
    chunk_tokens = settings.max_num_batched_tokens
    defaults = engine_of(settings).defaults(gpu, llm, tp, chunk_tokens)
    engine = with_defaults(defaults.settings, _engine_settings(settings, profile))
    engine = _with_features(engine, settings, llm, gpu, tp, stages)
    try:
        engine = sharing_kv(engine, settings, llm, tp)
    except InputError as error:
        raise DoesNotFitError(str(error)) from None
    return engine, defaults.memory_share


def _with_features(
    engine: EngineSettings,
    settings: Asked,
    llm: Architecture | None,
    gpu: Gpu | None,
    tp: int,
    stages: int,
) -> EngineSettings:
    """Return an engine with the scheduler and the features of the settings."""
    engine = speculating(scheduled(engine, settings), settings, llm)
    engine = with_adapters(engine, settings, llm, gpu, tp, stages)
    engine = in_stages(engine, settings, llm, gpu, tp, stages)
    engine = with_images(engine, settings, llm, gpu, tp)
    engine = with_tier(engine, settings, gpu, tp * stages)
    refuse_beside(engine, settings)
    return engine


def _configuration(
    settings: Asked,
    llm: Architecture,
    gpu: Gpu,
    tp: int,
    cost: Price | None,
    stages: int,
) -> Configuration | Excluded:
    profile, missing = profile_of(settings, llm, gpu.name, tp), ""
    estimated = profile is None and settings.latency_ms is None
    if estimated:
        try:
            profile = estimated_profile(llm, gpu, tp, folders(settings))
        except InputError as error:
            missing = str(error)
    try:
        engine, memory_share = _engine(settings, llm, gpu, tp, profile, stages)
        layout = Layout(tp)
        fitted = sized_replica(
            settings, llm, gpu, layout, engine, profile, memory_share
        )
    except DoesNotFitError as error:
        return Excluded(gpu.name, tp, error.reason)
    if missing:
        return Excluded(
            gpu.name,
            tp,
            f"no profile of {llm.name} on {gpu.name} at TP {tp}, and no estimate "
            f"({missing}); measure one with capplan profile, or give --latency-ms",
        )
    if estimated and profile is not None:
        warn(
            f"{llm.name} on {gpu.name}, TP {tp}: no profile was measured; planned "
            f"with an estimate ({profile.source})",
            ExtrapolationWarning,
        )
    if profile is not None:
        profile = timed(settings, profile, llm)
    return _built(
        settings,
        fitted.engine,
        profile,
        gpu=gpu.name,
        tp=tp,
        price=cost,
        replica=fitted,
    )


def _built(
    settings: Asked, engine: EngineSettings, profile: Profile | None, **known: Any
) -> Configuration:
    """Return the configuration of an engine, with its iteration times."""
    fitted, asked = known.get("replica"), settings.kv_cache_dtype
    kv_dtype = fitted.kv_dtype if fitted else None if asked == "auto" else asked
    tables = tables_of(settings, profile, engine, kv_dtype)
    if fitted is not None:
        tables = shared_kv_tables(tables, settings, fitted)
    return Configuration(
        with_own_time(engine, profile),
        tables,
        profile=profile,
        quantile=None if profile is None else quantile_of(settings, profile),
        own_engine_times=settings.engine_overhead is not None,
        backtested=None if profile is None else profile.backtested,
        **known,
    )


def runnable(tried: list[Configuration | Excluded]) -> list[Configuration]:
    """Return the configurations that can run; refuse when there is none."""
    able = [row for row in tried if isinstance(row, Configuration)]
    if not able:
        reasons = (row.reason for row in tried if isinstance(row, Excluded))
        raise InputError("; ".join(dict.fromkeys(reasons)))
    return able


def with_budget(configuration: Configuration, budget_tokens: int) -> Configuration:
    """Return a configuration with another token budget, and no more seats than it."""
    engine = configuration.engine
    seqs = min(engine.max_num_seqs, budget_tokens)
    changed = replace(engine, max_num_batched_tokens=budget_tokens, max_num_seqs=seqs)
    return replace(configuration, engine=changed)


def only_configuration(settings: ConfigurationSettings) -> Configuration:
    """Return the only configuration of the settings."""
    given = given_configuration(settings)
    if given is not None:
        refuse_of_an_llm(settings)
        return given
    able = runnable(list(configurations(settings)))
    if len(able) > 1:
        names = ", ".join(str(configuration) for configuration in able)
        raise InputError(
            f"{len(able)} configurations ({names}); name one with --gpu and --tp"
        )
    return able[0]
