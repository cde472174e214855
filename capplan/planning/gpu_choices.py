"""GPUs that a plan may rent: those named, their links, their prices."""

import warnings
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from capplan.errors import InputError, PriceWarning
from capplan.fleet.catalog import gpu as find_gpu
from capplan.fleet.catalog import price
from capplan.fleet.gpu import Gpu
from capplan.fleet.price import Price
from capplan.latency.catalog import own_profiles
from capplan.planning.iteration_time import folders
from capplan.planning.setting_groups import ConfigurationSettings, PriceSettings


def listed_gpu(name: str, profiled: Iterable[str]) -> Gpu | str:
    """Return a GPU of the catalog, or the name of one that only a profile knows."""
    try:
        return find_gpu(name)
    except InputError:
        if name in profiled:
            return name
        raise


def slow_link(settings: ConfigurationSettings, gpu: Gpu, tp: int) -> str:
    """Return why a degree that nobody asked for is not looked at; empty if it is."""
    if settings.tp or tp <= 2 or gpu.nvlink_bytes_per_s_per_direction:
        return ""
    own = own_profiles(folders(settings))
    if any((listed.gpu, listed.tp) == (gpu.name, tp) for listed in own):
        return ""
    return (
        f"no NVLink: all-reduces of {tp} GPUs reach "
        f"{gpu.pcie_bytes_per_s(tp) / 1e9:g} GB/s over PCIe; --tp {tp} looks at it"
    )


def price_of(
    settings: PriceSettings, gpu: Gpu, tp: int, overrides: dict[str, float]
) -> Price | None:
    """Return the price of a GPU hour, of a node that holds a replica, or None."""
    prices_file = Path(settings.prices) if settings.prices else None
    today = date.fromisoformat(settings.as_of) if settings.as_of else None
    found = price(gpu.name, overrides, prices_file, tp=tp, today=today)
    if found is None:
        warnings.warn(
            f"no price is known for {gpu.name}: it is compared by GPUs alone and is "
            f"never the cheapest; set one with --price {gpu.name}=DOLLARS",
            PriceWarning,
            stacklevel=2,
        )
    return found
