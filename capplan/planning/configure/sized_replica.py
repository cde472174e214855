"""A replica as the settings of a plan and its profile size it."""

from dataclasses import replace

from capplan.deployment.engine import EngineSettings
from capplan.deployment.engine_defaults import sglang_seats
from capplan.deployment.replica import Replica, replica
from capplan.errors import ExtrapolationWarning, warn
from capplan.fleet.gpu import Gpu
from capplan.latency.engine_rows import parse_engine
from capplan.latency.profile import Profile
from capplan.llm.architecture import Architecture
from capplan.llm.dtypes import KV_BYTES
from capplan.llm.layout import Layout
from capplan.planning.configure.scheduling import engine_of
from capplan.planning.settings.groups import ConfigurationSettings


def sized_replica(
    settings: ConfigurationSettings,
    llm: Architecture,
    gpu: Gpu,
    tp: int,
    engine: EngineSettings,
    profile: Profile | None,
    default_share: float,
    layout: Layout | None = None,
) -> Replica:
    """Return a replica with the KV that settings, or what was measured, leave it.

    ``default_share`` is of the memory where ``gpu_memory_utilization`` is not given.
    """
    name = engine_of(settings)
    utilization = settings.gpu_memory_utilization
    measured = profile.kv_element if profile else "bf16"
    kv_dtype: str = settings.kv_cache_dtype
    if kv_dtype == "auto":
        ran = profile is not None and profile.how == "measured"  # it was started so
        kv_dtype = measured if ran else llm.kv_dtype
    if profile is not None and kv_dtype != measured:
        times = KV_BYTES[kv_dtype] / KV_BYTES[measured]
        warn(
            f"{profile.name}: its times are of {measured} KV; attention to {kv_dtype} "
            f"KV is taken to cost {times:g} times that, as its bytes",
            ExtrapolationWarning,
        )
    own = profile is not None and kv_dtype == measured and is_of(profile, name)
    own = own and engine.pipeline is None
    reported = profile.kv_tokens if profile and own else None
    fitted = replica(
        llm,
        gpu,
        tp,
        engine,
        gpu_memory_utilization=(default_share if utilization is None else utilization),
        kv_dtype=kv_dtype,
        reported_kv_blocks=settings.kv_blocks,
        reported_kv_tokens=reported,
        layout=layout,
        engine_name=name,
        room_for_graphs=not _is_before_graphs(settings),
    )
    if name != "sglang" or settings.max_num_seqs is not None:
        return fitted
    seats = sglang_seats(fitted.engine, llm.max_positions)
    return replace(fitted, engine=replace(fitted.engine, max_num_seqs=seats))


def _is_before_graphs(settings: ConfigurationSettings) -> bool:
    """Return whether vLLM is asked for in a release that captures graphs on top."""
    version = parse_engine(settings.engine or "vllm").version
    return bool(version) and tuple(map(int, version.split("."))) < (0, 21)


def is_of(profile: Profile, engine: str) -> bool:
    """Return whether what an engine said of itself when measured holds for another."""
    return engine == "vllm" or profile.engine == engine
