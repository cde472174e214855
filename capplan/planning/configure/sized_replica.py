"""A replica as the settings of a plan and its profile size it."""

from dataclasses import replace

from capplan.deployment.engine import EngineSettings
from capplan.deployment.memory import MemoryShare
from capplan.deployment.replica import Replica, replica
from capplan.engines.catalog import VLLM, parse_engine
from capplan.engines.engine import Engine
from capplan.engines.vllm import GRAPHS_SINCE
from capplan.errors import ExtrapolationWarning, warn
from capplan.fleet.gpu import Gpu
from capplan.latency.profile import Profile
from capplan.llm.architecture import Architecture
from capplan.llm.dtypes import KV_BYTES
from capplan.llm.layout import Layout
from capplan.planning.configure.scheduling import engine_of
from capplan.planning.settings.asked import Asked


def sized_replica(
    settings: Asked,
    llm: Architecture,
    gpu: Gpu,
    layout: Layout,
    engine: EngineSettings,
    profile: Profile | None,
    default_share: float,
) -> Replica:
    """Return a replica with the KV that settings, or what was measured, leave it.

    ``default_share`` is of the memory where ``gpu_memory_utilization`` is not given.
    """
    of = engine_of(settings)
    share = settings.gpu_memory_utilization
    measured = profile.kv_element if profile else "bf16"
    kv_dtype: str = settings.kv_cache_dtype
    if kv_dtype == "auto":
        ran = profile is not None and profile.how == "measured"  # it was started so
        kv_dtype = measured if ran else llm.kv_dtype
    if profile is not None and kv_dtype != measured:
        times = KV_BYTES[kv_dtype] / KV_BYTES[measured]
        warn(
            f"{profile.name}: measured with {measured} KV; attention to {kv_dtype} KV "
            f"is assumed to take {times:g} times as long, by its bytes",
            ExtrapolationWarning,
        )
    own = profile is not None and kv_dtype == measured and is_of(profile, of)
    own = own and engine.pipeline is None
    reported = profile.kv_tokens if profile and own else None
    fitted = replica(
        llm,
        gpu,
        layout,
        engine,
        memory=MemoryShare(
            default_share if share is None else share,
            of,
            has_graphs=not parse_engine(settings.engine or of.name).is_before(
                GRAPHS_SINCE
            ),
        ),
        kv_dtype=kv_dtype,
        reported_kv_blocks=settings.kv_blocks,
        reported_kv_tokens=reported,
    )
    if of.seats is None or settings.max_num_seqs is not None:
        return fitted
    found = fitted.engine
    seats = of.seats(
        found.kv_capacity_tokens, llm.max_positions, found.max_num_batched_tokens
    )
    return replace(fitted, engine=replace(found, max_num_seqs=seats))


def is_of(profile: Profile, engine: Engine) -> bool:
    """Return whether what an engine said of itself when measured holds for another."""
    return engine is VLLM or profile.engine == engine.name
