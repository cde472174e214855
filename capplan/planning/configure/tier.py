"""The tier of the settings, as it is asked for: :func:`.replica` sizes it."""

from dataclasses import replace

from capplan.deployment.engine import EngineSettings
from capplan.deployment.tier import LINK_GB_PER_S, Tier, parse_tier
from capplan.engines.catalog import VLLM, parse_engine
from capplan.errors import warn
from capplan.planning.settings.asked import Asked

_BY_REQUEST_SINCE = "0.33"


def with_tier(engine: EngineSettings, settings: Asked) -> EngineSettings:
    """Return an engine with the tier of the settings."""
    asked_gib = settings.kv_offloading_size
    if settings.tier is not None:
        tier = parse_tier(settings.tier)
    elif asked_gib:
        release = parse_engine(settings.engine or VLLM.name)
        before = release.is_before(_BY_REQUEST_SINCE)
        tier = Tier(
            version="0.32" if before else _BY_REQUEST_SINCE,
            gib=asked_gib,
            read_gb_per_s=LINK_GB_PER_S,
            write_gb_per_s=LINK_GB_PER_S,
            is_assumed=True,
        )
    else:
        return engine
    if tier.is_assumed:
        warn(
            f"how fast KV moves to host memory and back is assumed: {LINK_GB_PER_S:g} "
            "GB/s each way for each GPU; give read and write of --tier, as measured"
        )
    return replace(engine, tier=tier)
