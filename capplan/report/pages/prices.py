"""The page of offers: who asks what for a GPU-hour, and which one a plan takes."""

from capplan.fleet.offer import Offer
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.prices import Offers
from capplan.report.columns import plural
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table
from capplan.report.render.json_text import plain

SCHEMA = "capplan.prices/1"


def prices_page(found: Offers) -> Page:
    """Return the offers, the cheapest of each GPU first."""

    def taken(offer: Offer) -> bool:
        return any(offer is other for other in found.planned)

    columns = fields(
        "price",
        usd_per_month=_usd_per_month,
        taken=lambda offer: "yes" if taken(offer) else "",
    )
    table = Table(
        columns, found.offers, style=lambda offer: "best" if taken(offer) else ""
    )
    notes = [
        "Plans pay for whole nodes: the cheapest marked ones of each provider (sizes "
        "may mix), then the provider whose bill is at the lower quartile. --provider "
        "or --nodes chooses instead."
    ]
    gpus = {offer.gpu for offer in found.offers}
    return Page(
        "prices",
        f"{plural(len(found.offers), 'offer')} of {plural(len(gpus), 'GPU type')}",
        f"{found.asked}, GPU-hours and nodes without storage, network or staff",
        [Section(tables=[table], notes=notes)],
        values=lambda: {
            "schema": SCHEMA,
            "offers": [
                {
                    **plain(offer),
                    "usd_per_node_h": offer.usd_per_node_h,
                    "taken": taken(offer),
                }
                for offer in found.offers
            ],
        },
        csv={"prices.csv": table},
        warnings=found.warnings,
        is_alone=True,
    )


def _usd_per_month(offer: Offer) -> float:
    """Return the bill of a node, or of a GPU where it is priced alone. [$]"""
    return HOURS_PER_MONTH * (offer.usd_per_node_h or offer.usd_per_gpu_h)
