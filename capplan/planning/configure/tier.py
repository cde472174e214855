"""The tier of the settings: how large, and what its memory costs."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.tier import AUTO, LINK_GB_PER_S, Tier, parse_tier
from capplan.engines.catalog import VLLM, parse_engine
from capplan.errors import InputError, warn
from capplan.fleet.gpu import Gpu
from capplan.fleet.nodes import least_memory_gib
from capplan.fleet.price import Price
from capplan.planning.configure.excluded import Excluded
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.settings.asked import Asked
from capplan.planning.settings.plan import PlanSettings

FREE = 0.75
"""Share of the host memory of rented nodes that nothing else needs (assumed)."""
_BY_REQUEST_SINCE = "0.33"


def is_tier_searched(settings: PlanSettings) -> bool:
    """Return whether a plan is to find the size of the tier."""
    return settings.kv_offloading_size == AUTO


def with_size(settings: PlanSettings, size: str) -> PlanSettings:
    """Return the settings with a tier of a size."""
    return settings.model_copy(update={"kv_offloading_size": size})


def with_tier(
    engine: EngineSettings, settings: Asked, gpu: Gpu | None, gpus: int
) -> EngineSettings:
    """Return an engine on so many GPUs with the tier of the settings."""
    size = settings.kv_offloading_size
    if settings.tier is not None:
        tier = parse_tier(settings.tier)
    elif size is not None and (gib := _gib(size, gpu, gpus)):
        release = parse_engine(settings.engine or VLLM.name)
        before = release.is_before(_BY_REQUEST_SINCE)
        tier = Tier(
            version="0.32" if before else _BY_REQUEST_SINCE,
            gib=gib,
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
    if not tier.is_native:
        warn(
            f"tier {tier.preset} is an estimate: vLLM's own offloading, in chunks of "
            f"{tier.blocks_per_chunk} blocks; that iterations wait for its loads is "
            "not simulated"
        )
    return replace(engine, tier=tier)


def free_gib(gpu: str, gpus: int) -> float | None:
    """Return the host memory that is free beside so many GPUs; None: unknown. [GiB]"""
    least = least_memory_gib(gpu)
    return None if least is None else FREE * least * gpus


def _gib(size: str, gpu: Gpu | None, gpus: int) -> float:
    if size == AUTO:
        raise InputError("kv_offloading_size auto: capplan plan finds it; give GIB")
    if not size.endswith("%"):
        return float(size)
    free = None if gpu is None else free_gib(gpu.name, gpus)
    if free is None:
        name = "these GPUs" if gpu is None else gpu.name
        raise InputError(
            f"the host memory of nodes with {name} is not known; give "
            "--kv-offloading-size GIB"
        )
    return float(math.floor(float(size[:-1]) / 100 * free))


def with_memory_paid(
    tried: Iterable[Configuration | Excluded], settings: Asked
) -> Iterator[Configuration | Excluded]:
    """Yield configurations; the memory of their tiers beyond what is free is paid."""
    usd_per_month = settings.tier_price
    for row in tried:
        gib = row.engine.tier_gib if isinstance(row, Configuration) else 0.0
        if not isinstance(row, Configuration) or not gib:
            yield row
            continue
        free = 0.0 if settings.kind == "owned" else free_gib(row.gpu, row.gpus)
        if free is None:
            warn(
                f"the host memory of nodes with {row.gpu} is not known: a tier of "
                f"{gib:,.0f} GiB a replica is taken as free"
            )
            free = math.inf
        beyond = max(0.0, gib - free)
        if not beyond or row.price is None:
            yield row
        elif usd_per_month is None:
            of = f"{100 * FREE:.0f} % of the host memory beside {row.gpus} {row.gpu}"
            of = "your own nodes" if settings.kind == "owned" else of
            reason = (
                f"a tier of {gib:,.0f} GiB is {beyond:,.0f} GiB more than is free of "
                f"{of}; give --tier-price, or a smaller one"
            )
            yield Excluded(row.gpu, row.tp, reason, row.layout)
        else:
            usd_per_gpu_h = beyond * usd_per_month / HOURS_PER_MONTH / row.gpus
            note = f"with {beyond / row.gpus:,.0f} GiB of host memory a GPU"
            yield replace(row, price=_dearer(row.price, usd_per_gpu_h, note))


def _dearer(price: Price, usd_per_gpu_h: float, note: str) -> Price:
    return replace(
        price,
        usd_per_gpu_h=price.usd_per_gpu_h + usd_per_gpu_h,
        note=", ".join(filter(None, (price.note, note))),
        asked=tuple(_dearer(ask, usd_per_gpu_h, note) for ask in price.asked),
    )
