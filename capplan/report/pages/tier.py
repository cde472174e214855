"""What a run says of the tiers of its replicas."""

from typing import Any

from capplan.planning.evaluate.run import Run
from capplan.report.columns import format_count, format_share
from capplan.units import format_duration


def tier_fact(run: Run) -> str:
    """Return what the tiers did, in words; empty where there are none."""
    use = run.simulation.pools[0].tier
    if use is None:
        return ""
    size = format_count(use.tier.chunks * use.chunk_tokens)
    times = run.simulation.times
    share = ""
    if times is not None:
        prompts = max(int(times.prompt_tokens.sum()), 1)
        part = float(times.tier_tokens.sum()) / prompts
        share = f" · {format_share(part)} of prompt tokens loaded from it"
    busy = format_share(use.busy_share(run.simulation.totals.makespan_s))
    return (
        f"room for {size} tokens{share} · a load takes "
        f"{format_duration(use.load_wait_s)} until its request runs · links busy {busy}"
    )


def tier_values(run: Run) -> dict[str, Any]:
    """Return the keys and values of the JSON; none without a tier."""
    use = run.simulation.pools[0].tier
    if use is None:
        return {}
    tier, engine = use.tier, run.configuration.engine
    by_priority = engine.scheduler.name == "vllm-v1-priority"
    is_near = engine.speculation and engine.async_scheduling and by_priority
    return {
        "tier": {
            "preset": tier.name,
            "exact": tier.is_native and not (tier.is_assumed or is_near),
            "gib": use.gib(tier.chunks * tier.blocks_per_chunk),
            "chunk_tokens": use.chunk_tokens,
            "chunks": tier.chunks,
            "loads": use.loads,
            "stores": use.stores,
            "loaded_gib": use.gib(use.loaded_blocks),
            "stored_gib": use.gib(use.stored_blocks),
            "evicted_chunks": use.evicted_chunks,
            "refused_stores": use.refused_stores,
            "flushed_iterations": use.flushed_iterations,
            "load_wait_s": use.load_wait_s,
            "link_busy_share": use.busy_share(run.simulation.totals.makespan_s),
        }
    }
