"""Offers to choose from: those of the user's file and of the catalog."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from capplan.errors import InputError, collected_warnings
from capplan.fleet.catalog import gpu
from capplan.fleet.offer import Offer
from capplan.fleet.prices import Market, offers, planned_offers, since
from capplan.planning.money.gpu_choices import (
    before_all,
    check_nodes,
    offered,
    tell_newer,
)
from capplan.planning.settings.plan import OffersSettings
from capplan.today import current_day


@dataclass(frozen=True)
class Offers:
    """Offers, the cheapest of each GPU first."""

    offers: tuple[Offer, ...]
    planned: tuple[Offer, ...]  # those that plans may buy, of each GPU
    asked: str  # which were asked for
    warnings: tuple[str, ...]


def list_offers(settings: OffersSettings) -> Offers:
    """Return the offers of the user's file and of the catalog that are asked for."""
    market = offered(settings, settings.kind or "on-demand")
    asked = replace(market, kind=settings.kind or "")
    names = {gpu(name).name for name in settings.gpu}
    with collected_warnings() as caught:
        check_nodes(settings.nodes, (*market.own_rows, *asked.own_rows))
        tell_newer(market)
    found = [
        offer
        for offer in (*market.own, *market.shipped)
        if (not names or offer.gpu in names)
        and (
            settings.tp is None
            or offer.holds(min(settings.tp, gpu(offer.gpu).max_gpus_per_node))
        )
        and asked.wants(offer)
    ]
    if (first := since(asked)) is not None:
        raise before_all(asked, first)
    if not found:
        wanted = " ".join([*sorted(names), asked.bought()])
        raise InputError(
            f"no offer of {wanted} is known; capplan prices lists those that are"
        )
    found.sort(key=lambda offer: (offer.gpu, offer.usd_per_gpu_h, offer.provider))
    gpus = dict.fromkeys(offer.gpu for offer in found)
    return Offers(
        tuple(found),
        tuple(_planned(list(gpus), market, settings.tp)),
        market.bought() if settings.kind else "all ways to pay",
        tuple(dict.fromkeys(caught)),
    )


def _planned(gpus: Sequence[str], market: Market, tp: int | None) -> list[Offer]:
    """Return the offers that plans may buy of each GPU, for a replica."""
    taken: list[Offer] = []
    for name in gpus:
        wanted = offers(name, market)
        is_own = bool(wanted) and wanted[0] in market.own_rows
        most, day = gpu(name).max_gpus_per_node, market.day or current_day()
        least = min(tp or 1, most)
        taken += planned_offers(wanted, least, day, is_own=is_own)[0]
    return taken
