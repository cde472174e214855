"""GPUs that a plan may rent: those named, their links, their prices."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from capplan.errors import InputError, PriceWarning, warn
from capplan.fleet.catalog import gpu as find_gpu
from capplan.fleet.gpu import Gpu
from capplan.fleet.nodes import nodes
from capplan.fleet.offer import Offer
from capplan.fleet.price import Price
from capplan.fleet.prices import Market, offers, planned_offers, price, since
from capplan.latency.catalog import own_profiles
from capplan.planning.settings.asked import Asked
from capplan.planning.settings.groups import (
    ConfigurationSettings,
    MarketSettings,
    PriceSettings,
    folders,
)
from capplan.today import current_day

DISCOUNTS = {12: 0.35, 36: 0.55}
"""Discounts of terms that nobody quotes, by their months; assumed."""
DISCOUNT_SOURCE = (
    "assumed, no quote: AWS asks 35 to 37 % less for reserved g5, g6, g6e and p4d "
    "(term not stated), GCP 37 % for one year and 65 % for three of A100-40GB"
)
NOT_BOUGHT = ": not bought: "
"""Begins what a warning says of offers that a plan does not look at."""


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
        f"{gpu.pcie_bytes_per_s(tp) / 1e9:g} GB/s over PCIe; give --tp {tp} to plan it"
    )


def check_nodes(names: Iterable[str], own: Iterable[Offer]) -> None:
    """Refuse names of nodes that neither the catalog nor the user's offers have."""
    known = {offer.node.lower() for offer in own} | {n.name.lower() for n in nodes()}
    for name in names:
        if name.lower() not in known:
            raise InputError(
                f"--nodes {name}: in no catalog and in no file of prices; "
                "capplan prices lists those known"
            )


def offered(settings: MarketSettings, kind: str) -> Market:
    """Return the market that settings choose, for one way to pay."""
    return Market(
        file=Path(settings.prices) if settings.prices else None,
        kind=kind,
        provider=settings.provider,
        region=settings.region,
        nodes=settings.nodes,
        allow_odd=settings.allow_odd_price,
        currency=settings.money,
        day=date.fromisoformat(settings.price_date) if settings.price_date else None,
    )


def tell_newer(market: Market) -> None:
    """Warn of offers of the user's file that are of a later day than the market's."""
    newer = dict.fromkeys(
        f"{offer.name or offer.gpu} ({offer.kind_and_term}, {offer.as_of})"
        for offer in market.newer
    )
    if newer:
        warn(
            f"{market.file}: newer than {market.day}, not used: {', '.join(newer)}",
            PriceWarning,
        )


def before_all(market: Market, first: date) -> InputError:
    """Return why a day that is before all prices known is refused."""
    return InputError(
        f"price_date is {market.day}, before the first price known of "
        f"{market.bought() or 'any kind'}, of {first}; expected a day from then on"
    )


def market_of(settings: PriceSettings, given: Mapping[str, float]) -> Market:
    """Return what is bought: at the prices ``given`` [$/h], and of which offers.

    A warning tells which offers of the user's file are not.
    """
    singly = (name for name, text in settings.price.items() if text.endswith("/gpu"))
    known = frozenset(find_gpu(name).name for name in singly if name in given or given)
    market = replace(offered(settings, settings.kind), given=given, singly=known)
    check_nodes(settings.nodes, market.own_rows)
    first = None if given else since(market)
    if first is not None:
        raise before_all(market, first)
    tell_newer(market)
    unused = dict.fromkeys(
        f"{offer.name or offer.gpu} ({offer.kind_and_term})"
        for offer in market.own
        if not market.wants(offer)
    )
    if unused:
        warn(
            f"{settings.prices}{NOT_BOUGHT}{', '.join(unused)}; this plan buys "
            f"{market.bought()}",
            PriceWarning,
        )
    return market


def price_of(settings: Asked, market: Market | None, gpu: Gpu, tp: int) -> Price | None:
    """Return the price of a GPU hour, of a node that holds a replica; or None."""
    if market is None:
        return None
    today = date.fromisoformat(settings.as_of) if settings.as_of else None
    found = price(gpu.name, market, today=today, tp=tp)
    if found is None:
        found = _assumed(market, gpu, tp, today)
    if found is None:
        day = today or current_day()
        wanted = offers(gpu.name, market)
        _, left_out = planned_offers(wanted, min(tp, gpu.max_gpus_per_node), day)
        if left_out:
            warn(
                f"no price of {gpu.name} at TP {tp} can be used "
                f"({'; '.join(left_out)}): it is compared by GPUs alone and is never "
                f"the cheapest; give --price {gpu.name}=DOLLARS",
                PriceWarning,
            )
            return None
        asked = "" if market.bought() == "on-demand" else f" {market.bought()}"
        first = since(market, gpu.name)
        then = f" by {market.day} (the first is of {first})" if first else ""
        warn(
            f"no price is known for {gpu.name}{asked}{then}: it is compared by GPUs "
            f"alone and is never the cheapest; give --price {gpu.name}=DOLLARS",
            PriceWarning,
        )
    return found


def _assumed(market: Market, gpu: Gpu, tp: int, today: date | None) -> Price | None:
    """Return what a term costs that nobody quotes: less than on demand, as assumed."""
    kind, _, months = market.kind.partition(":")
    if kind != "reserved" or not months or int(months) not in DISCOUNTS:
        return None
    found = price(gpu.name, replace(market, kind="on-demand"), today=today, tp=tp)
    if found is None:
        return None
    less = DISCOUNTS[int(months)]

    def term(ask: Price) -> Price:
        return replace(
            ask,
            usd_per_gpu_h=ask.usd_per_gpu_h * (1 - less),
            kind=f"reserved, {months} months",
            is_guess=True,
            note=f"{100 * less:.0f} % less than on demand, {DISCOUNT_SOURCE}",
        )

    return replace(term(found), asked=tuple(map(term, found.asked)))


def unfit(market: Market | None, gpu: Gpu, tp: int) -> str:
    """Return why a replica fits none of the nodes to buy; empty if it does."""
    if market is None or not market.nodes or gpu.name in (market.given or {}):
        return ""
    sold = offers(gpu.name, market)
    tp = min(tp, gpu.max_gpus_per_node)
    if not sold:
        return f"none of the nodes {', '.join(market.nodes)} is offered with it"
    if any(offer.holds(tp) for offer in sold):
        return ""
    return "; ".join(f"{o.name}: {o.node_gap(tp)}" for o in sold)


_OF_AN_LLM = (
    *("gpu", "gpu_memory_utilization", "profiles"),
    *("data_parallel_size", "enable_expert_parallel"),
    *("price", "prices", "nodes", "provider", "region", "allow_odd_price"),
)


def refuse_of_an_llm(settings: ConfigurationSettings) -> None:
    """Refuse what only an LLM on a GPU reads, of settings that name none."""
    for name in settings.given(_OF_AN_LLM):
        flag = f"--{name.replace('_', '-')}"
        raise InputError(f"{flag} is of an LLM on a GPU; give --llm, or leave it out")
