"""Offers as of a day: of each the newest row by then, and the rows that are newer."""

from collections.abc import Hashable, Iterable
from dataclasses import fields
from datetime import date
from operator import attrgetter

from capplan.fleet.offer import Offer

_LOWERED = ("provider", "node", "region")
_OF_A_ROW = {"usd_per_gpu_h", "as_of", "source", "note", "basis"}
_of_offer = attrgetter(
    "listed", *({field.name for field in fields(Offer)} - _OF_A_ROW - {*_LOWERED})
)
_lowered = attrgetter(*(f"{name}.lower" for name in _LOWERED))


def in_force(offers: Iterable[Offer], day: date | None = None) -> tuple[Offer, ...]:
    """Return of each offer the newest row by a day; None: the newest of all.

    Rows are of one offer where all but price, date and remarks agree; a list price is
    never replaced by a guess. An undated row counts without a dated one. Of several
    rows of one day the cheapest counts.
    """
    found: dict[Hashable, Offer] = {}
    for offer in offers:
        if is_newer(offer, day):
            continue
        key = _same(offer)
        if key not in found or _rank(offer) > _rank(found[key]):
            found[key] = offer
    return tuple(found.values())


def newer_than(offers: Iterable[Offer], day: date | None) -> tuple[Offer, ...]:
    """Return the rows that nobody knew on a day."""
    return tuple(offer for offer in offers if is_newer(offer, day))


def is_newer(offer: Offer, day: date | None) -> bool:
    """Return whether an offer is of a later day; an undated one is of any."""
    own = offer.day()
    return day is not None and own is not None and own > day


def _rank(offer: Offer) -> tuple[date, float]:
    return offer.day() or date.min, -offer.usd_per_gpu_h


def _same(offer: Offer) -> Hashable:
    """Return what rows of one offer have in common."""
    return _of_offer(offer), tuple(lower() for lower in _lowered(offer))
