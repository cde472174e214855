"""Offers to choose from: those of the user's file and of the catalog."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from capplan.errors import InputError, collected_warnings
from capplan.fleet.catalog import gpu
from capplan.fleet.choice import middle_offers
from capplan.fleet.offer import Offer
from capplan.fleet.prices import Market, catalog_offers, offers
from capplan.planning.gpu_choices import check_nodes
from capplan.planning.settings import OffersSettings


@dataclass(frozen=True)
class Offers:
    """Offers, the cheapest of each GPU first."""

    offers: tuple[Offer, ...]
    planned: tuple[Offer, ...]  # those that plans take, of each GPU
    asked: str  # which were asked for
    warnings: tuple[str, ...]


def list_offers(settings: OffersSettings) -> Offers:
    """Return the offers of the user's file and of the catalog that are asked for."""
    market = Market(
        file=Path(settings.prices) if settings.prices else None,
        kind=settings.kind or "on-demand",
        provider=settings.provider,
        region=settings.region,
        nodes=settings.nodes,
        allow_odd=settings.allow_odd_price,
    )
    names = {gpu(name).name for name in settings.gpu}
    with collected_warnings() as caught:
        own = market.own
        check_nodes(settings.nodes, own)
    found = [
        offer
        for offer in (*own, *catalog_offers())
        if (not names or offer.gpu in names)
        and (settings.tp is None or offer.holds(min(settings.tp, _most(offer))))
        and (market if settings.kind else replace(market, kind=offer.kind)).wants(offer)
    ]
    if not found:
        asked = replace(market, kind=settings.kind or "").bought()
        raise InputError(
            f"no offer of {' '.join([*sorted(names), asked])} is known; capplan prices "
            "lists those that are"
        )
    found.sort(key=lambda offer: (offer.gpu, offer.usd_per_gpu_h, offer.provider))
    gpus = dict.fromkeys(offer.gpu for offer in found)
    return Offers(
        tuple(found),
        tuple(_planned(list(gpus), market, settings.tp)),
        market.bought() if settings.kind else "all ways to pay",
        tuple(dict.fromkeys(caught)),
    )


def _most(offer: Offer) -> int:
    return gpu(offer.gpu).max_gpus_per_node


def _planned(gpus: Sequence[str], market: Market, tp: int | None) -> list[Offer]:
    """Return the offers that plans take of each GPU, for a replica."""
    taken: list[Offer] = []
    for name in gpus:
        most = gpu(name).max_gpus_per_node
        choice = middle_offers(offers(name, market), min(tp or most, most), most)
        taken += choice.offers if choice is not None else ()
    return taken
