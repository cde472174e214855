"""The page of offers: who asks what for a GPU-hour, and which one a plan takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from capplan.fleet.offer import Offer
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.prices import Offers
from capplan.report.columns import plural
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table
from capplan.report.render.json_text import plain

SCHEMA = "capplan.prices/1"


@dataclass(frozen=True)
class Row:
    """An offer beside what a plan makes of it."""

    offer: Offer
    taken: str  # "yes" where plans buy it by default, or empty
    usd_per_month: float | None  # of a node, or of a GPU where it is priced alone [$]


_COLUMNS = fields("price")


def prices_page(found: Offers) -> Page:
    """Return the offers, the cheapest of each GPU first."""
    rows = [_row(offer, found.planned) for offer in found.offers]
    gpus = dict.fromkeys(row.offer.gpu for row in rows)
    table = Table(_COLUMNS, rows, style=lambda row: "best" if row.taken else "")
    notes = [
        "Plans pay for whole nodes: the cheapest marked ones of each provider (sizes "
        "may mix), then the provider whose bill is at the lower quartile. --provider "
        "or --nodes chooses instead."
    ]
    return Page(
        "prices",
        f"{plural(len(rows), 'offer')} of {plural(len(gpus), 'GPU type')}",
        f"{found.asked}, GPU-hours and nodes without storage, network or staff",
        [Section(tables=[table], notes=notes)],
        values=partial(_values, rows),
        csv={"prices.csv": table},
        warnings=found.warnings,
        is_alone=True,
    )


def _row(offer: Offer, planned: Sequence[Offer]) -> Row:
    hour = offer.usd_per_node_h or offer.usd_per_gpu_h
    taken = "yes" if any(offer is other for other in planned) else ""
    return Row(offer, taken, HOURS_PER_MONTH * hour)


def _values(rows: Sequence[Row]) -> dict[str, Any]:
    offers = [
        {
            **plain(row.offer),
            "usd_per_node_h": row.offer.usd_per_node_h,
            "taken": bool(row.taken),
        }
        for row in rows
    ]
    return {"schema": SCHEMA, "offers": offers}
