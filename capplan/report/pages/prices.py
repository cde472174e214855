"""The page of offers: who asks what for a GPU-hour, and which one a plan takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from capplan.fleet.offer import Offer
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.prices import Offers
from capplan.report.columns import Column, column, format_fine_usd
from capplan.report.page import Page, Section, Table
from capplan.report.render.json_text import plain
from capplan.units import format_usd

SCHEMA = "capplan.prices/1"


@dataclass(frozen=True)
class Row:
    """An offer beside what a plan makes of it."""

    offer: Offer
    taken: str  # "yes" where plans buy it by default, or empty
    usd_per_month: float | None  # of a node, or of a GPU where it is priced alone [$]


def _of(name: str, heading: str = "", show: Any = str, **layout: Any) -> Column:
    return column(name, heading, show, path=f"offer.{name}", **layout)


_COLUMNS = (
    _of("gpu", "GPU", justify="left"),
    _of("provider", "provider", justify="left"),
    _of("node", "node", justify="left"),
    _of("gpus_per_node", "GPUs"),
    _of("nvlink_domain_gpus", "NVLink", leaves=1),
    _of("kind_and_term", "kind", justify="left"),
    _of("usd_per_node_h", "$ per node-h", format_fine_usd),
    _of("usd_per_gpu_h", "$ per GPU-h", format_fine_usd),
    column("usd_per_month", "$ per month", format_usd, leaves=1),
    _of("as_of", "as of", justify="left"),
    _of("basis", "basis", justify="left", leaves=1),
    column("taken", "plans buy", justify="left"),
    *map(_of, ("region", "term_months", "upfront_share", "min_nodes", "min_months")),
    *map(_of, ("min_usd_per_month", "billing_step_s", "notice_s")),
    *map(_of, ("interruption_per_month", "max_share", "source", "note")),
)


def prices_page(found: Offers) -> Page:
    """Return the offers, the cheapest of each GPU first."""
    rows = [_row(offer, found.planned) for offer in found.offers]
    gpus = dict.fromkeys(row.offer.gpu for row in rows)
    table = Table(_COLUMNS, rows, style=lambda row: "best" if row.taken else "")
    count = "1 offer" if len(rows) == 1 else f"{len(rows)} offers"
    notes = [
        "Replicas are paid for by whole nodes that hold them. Of each provider plans "
        "take the cheapest of those marked, of mixed sizes where that bills less, and "
        "of the providers the bill at the lower quartile, unless --provider or --nodes "
        "names one."
    ]
    return Page(
        "prices",
        f"{count} of {len(gpus)} GPU type{'' if len(gpus) == 1 else 's'}",
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
