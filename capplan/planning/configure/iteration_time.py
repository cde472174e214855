"""Iteration times of a configuration: its profile, the engine's own time, tables."""

from pathlib import Path

from capplan.deployment.engine import EngineSettings
from capplan.engines.catalog import parse_engine
from capplan.errors import ProfileError, warn
from capplan.latency.catalog import known_profile, load_listed, own_rank_profiles
from capplan.latency.contract import LatencyTables, linear_tables
from capplan.latency.profile import Profile
from capplan.latency.profile_file import AnyProfile
from capplan.latency.with_engine import with_engine_time
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import twins
from capplan.llm.dtypes import KV_BYTES
from capplan.planning.settings.asked import Asked
from capplan.planning.settings.groups import folders

MEDIAN = 0.5
"""Quantile of the engines' times that a plan takes by default."""


def own_profile(settings: Asked) -> Profile | None:
    """Return the user's profile where a file of one was given."""
    if settings.profiles and Path(settings.profiles).is_file():
        return load_listed(Path(settings.profiles))
    return None


def profile_of(settings: Asked, llm: Architecture, gpu: str, tp: int) -> Profile | None:
    """Return the profile of the LLM on a GPU type at a TP degree, or None."""
    if settings.latency_ms is not None:
        return None
    own = own_profile(settings)
    if own is None:
        if not settings.looks_at_layouts:
            _warn_of_ranks(folders(settings), llm, gpu)
        return known_profile(llm, gpu, tp, folders(settings))
    names = (llm.name, *twins(llm))
    if own.llm not in names or (own.gpu, own.tp) != (gpu, tp):
        raise ProfileError(
            f"{settings.profiles}: is of {own.name}; "
            f"expected {llm.name} on {gpu}, TP {tp}"
        )
    return own


def _warn_of_ranks(own: list[Path], llm: Architecture, gpu: str) -> None:
    """Warn of profiles of the user's that are not taken."""
    layouts = {
        str(profile.layout) for profile in own_rank_profiles(own, gpu=gpu, llm=llm.name)
    }
    if layouts:
        warn(
            f"{own[0]}: the profiles of {', '.join(sorted(layouts))} of {llm.name} on "
            f"{gpu} are not taken: `plan` looks at them without --tp, or with "
            "--data-parallel-size or --enable-expert-parallel"
        )


def timed(settings: Asked, profile: AnyProfile, llm: Architecture) -> AnyProfile:
    """Return a profile with the time of the engine of the settings."""
    wanted = None if settings.engine is None else parse_engine(settings.engine)
    overhead = settings.engine_overhead
    return with_engine_time(profile, llm.experts > 0, overhead, wanted)


def quantile_of(settings: Asked, profile: Profile) -> float:
    """Return the quantile of the engines' times that the plan takes."""
    if settings.latency_quantile is not None:
        if not profile.has_spread:
            warn(
                f"{profile.name}: no error of its times is known; --latency-quantile "
                "changes nothing"
            )
        return settings.latency_quantile
    return MEDIAN


def tables_of(
    settings: Asked,
    profile: Profile | None,
    engine: EngineSettings,
    kv_dtype: str | None = None,
) -> LatencyTables:
    """Return the iteration times of an engine.

    ``kv_dtype`` is that of its KV cache (default: the profile's); attention reads KV of
    another in proportion to its bytes.
    """
    seqs, tokens = engine.max_num_seqs, engine.max_num_batched_tokens
    if settings.latency_ms is not None:
        c0, ca, cq, cd, ce = (value / 1e3 for value in settings.latency_ms)
        made = linear_tables(c0, ca, cq, cd, ce, max_batch=seqs, max_tokens=tokens)
        return served(made, settings)
    assert profile is not None
    made = profile.tables(seqs, tokens, quantile=quantile_of(settings, profile))
    return served(made, settings, kv_dtype or profile.kv_element, profile)


def served(
    tables: LatencyTables,
    settings: Asked,
    kv_dtype: str = "",
    profile: Profile | None = None,
) -> LatencyTables:
    """Return iteration times with the server's time and the KV dtype of an engine.

    ``profile`` is what the times are of; given ones are of any KV dtype.
    """
    if profile is not None:
        tables = tables.reading(KV_BYTES[kv_dtype] / KV_BYTES[profile.kv_element])
    if settings.api_overhead_ms is not None:
        tables = tables._replace(request_s=settings.api_overhead_ms / 1e3)
    return tables
