"""What a node costs in each way to pay for it: by offers, as given, or assumed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError
from capplan.fleet.offer import Offer
from capplan.fleet.price import Price
from capplan.fleet.prices import Market
from capplan.planning.money.commitments import Term
from capplan.planning.money.gpu_choices import DISCOUNT_SOURCE, DISCOUNTS, offered
from capplan.planning.money.purchase_texts import Wish
from capplan.planning.settings.groups import PriceSettings
from capplan.today import current_day

BASE_KINDS = ("on-demand", "minimum")
"""Ways to pay for what is not committed."""


@dataclass(frozen=True)
class NodePrices:
    """What a node costs in each way to pay for it."""

    provider: str  # empty where not known
    node: str  # what the provider calls it; empty where not known
    source: str
    gpus_per_node: int  # 1 where the size is not known: then GPUs are paid one by one
    is_per_gpu: bool
    usd_per_gpu_h: float  # on demand [$/h]
    is_doubtful: bool  # that price is a guess, old or undated
    terms: tuple[Term, ...]
    billing_step_s: float = 1.0
    min_nodes: int = 0  # at every hour
    least_usd_per_month: float = 0.0  # [$]
    kind: str = "on-demand"  # how what is not committed is paid for
    min_months: int = 0  # that each node is rented for; 0: by the hour
    spot: Offer | None = None  # None where nobody offers it

    @property
    def usd_per_node_h(self) -> float:
        """Price of a node on demand. [$/h]"""
        return self.usd_per_gpu_h * self.gpus_per_node


def node_prices(
    settings: PriceSettings, configuration: Configuration, wishes: Sequence[Wish]
) -> NodePrices:
    """Return the prices of the nodes that a configuration runs on.

    Commitments and spot are of the same provider and the same nodes, of the user's
    file before the catalog.
    """
    price = configuration.price
    if settings.kind.partition(":")[0] not in BASE_KINDS:
        raise InputError(
            f"--kind {settings.kind}: a budget takes on-demand (or minimum) for what "
            "is not committed; --commit and --spot-share add the rest"
        )
    if price is None:
        raise InputError(
            f"{configuration.gpu or 'these GPUs'}: no price is known; give "
            "--price GPU=DOLLARS or --prices FILE"
        )
    market = replace(offered(settings, settings.kind), provider=None, nodes=())

    today = date.fromisoformat(settings.as_of) if settings.as_of else current_day()

    def quoted(kind: str) -> Offer | None:
        return _quoted(configuration, price, replace(market, kind=kind), today)

    base = quoted(settings.kind)
    prices = NodePrices(
        price.provider,
        price.node,
        price.told,
        price.gpus_per_node or 1,
        price.gpus_per_node is None,
        price.usd_per_gpu_h,
        price.is_guess or price.is_stale,
        (),
        spot=quoted("spot"),
    )
    if base is not None and base.usd_per_gpu_h == price.usd_per_gpu_h:
        prices = replace(
            prices,
            billing_step_s=float(base.billing_step_s),
            min_nodes=base.min_nodes,
            least_usd_per_month=base.min_usd_per_month,
            kind=base.kind,
            min_months=base.min_months,
        )
    found = []
    for wish in wishes:
        offer = None
        if wish.discount is None and wish.usd_per_gpu_h is None:
            offer = quoted(f"reserved:{wish.months}")
        found.append(term_of(wish, prices, offer))
    return replace(prices, terms=tuple(found))


def term_of(wish: Wish, prices: NodePrices, offer: Offer | None) -> Term:
    """Return a term at the price that is given, else offered, else assumed."""
    name, gpus = f"reserved, {wish.months} months", prices.gpus_per_node
    on_demand = prices.usd_per_node_h
    if wish.usd_per_gpu_h is not None:
        return Term(name, wish.months, wish.usd_per_gpu_h * gpus, source="given")
    if wish.discount is not None:
        price = on_demand * (1 - wish.discount)
        source = f"given: {wish.discount:.4g} less than on demand"
        return Term(name, wish.months, price, source=source)
    if offer is not None:
        parts = (offer.name, offer.region, offer.whose, offer.as_of, offer.note)
        return Term(
            name,
            wish.months,
            offer.usd_per_gpu_h * gpus,
            offer.upfront_share,
            offer.min_nodes,
            is_assumed=not offer.listed,
            source="; ".join(filter(None, parts)),
        )
    if wish.months not in DISCOUNTS:
        raise InputError(
            f"commit reserved:{wish.months}: no offer of {wish.months} months is "
            f"known; give its discount, as in reserved:{wish.months}=30%"
        )
    return Term(
        name,
        wish.months,
        on_demand * (1 - DISCOUNTS[wish.months]),
        is_assumed=True,
        source=DISCOUNT_SOURCE,
    )


def _quoted(
    configuration: Configuration, price: Price, wanted: Market, today: date
) -> Offer | None:
    """Return the cheapest offer wanted for the nodes of a price, or None.

    A price that is asked goes before a guess. In the user's file, one that names no
    provider is for any.
    """
    for known in (own := wanted.own, wanted.shipped):
        able = [
            offer
            for offer in known
            if offer.gpu == configuration.gpu and wanted.wants(offer)
            if known is own or not offer.is_outdated(today)
            if _is_of(offer, price) or (known is own and not offer.provider)
        ]
        if able:
            return min(able, key=lambda offer: (not offer.listed, offer.usd_per_gpu_h))
    return None


def _is_of(offer: Offer, price: Price) -> bool:
    """Return whether an offer is for the nodes that a price is of."""
    if not price.provider or offer.provider.lower() != price.provider.lower():
        return False
    return offer.node == price.node or offer.gpus_per_node == price.gpus_per_node
