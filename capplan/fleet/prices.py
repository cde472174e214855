"""Prices of GPUs: given ones, the user's offers, the catalog's offers."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property
from pathlib import Path

from capplan.currency import USD, Currency
from capplan.errors import InputError, PriceWarning
from capplan.fleet.catalog import gpu
from capplan.fleet.choice import Choice, middle_offers
from capplan.fleet.dated import first_day, in_force, is_newer, newer_than
from capplan.fleet.nodes import find_node
from capplan.fleet.offer import KINDS, OLD_KINDS, Offer
from capplan.fleet.offers_file import read_offers, refuse_odd
from capplan.fleet.price import GIVEN, Price
from capplan.today import current_day

_OFFERS = Path(__file__).parent / "data/offers.csv"


@dataclass(frozen=True)
class Market:
    """What a user buys: of which offers, how paid, of whom."""

    given: Mapping[str, float] | None = None  # dollars of a GPU-hour, by GPU [$/h]
    file: Path | None = None  # the user's offers; None: the catalog's alone
    # of KINDS, with its months as ``reserved:12``; empty: any
    kind: str = "on-demand"
    provider: str | None = None  # None: any
    region: str | None = None  # None: any
    nodes: tuple[str, ...] = ()  # the only ones to buy; none: any
    allow_odd: bool = False  # takes prices that are far from those known
    currency: Currency = USD  # of rows of the file that say so
    day: date | None = None  # on which it is bought; None: of the newest offers

    @property
    def own(self) -> tuple[Offer, ...]:
        """The offers of the user's file that hold on the day; none without one."""
        return in_force(self.own_rows, self.day)

    @property
    def shipped(self) -> tuple[Offer, ...]:
        """The offers of the catalog that hold on the day."""
        return in_force(catalog_offers(), self.day)

    @property
    def newer(self) -> tuple[Offer, ...]:
        """The offers of the user's file that are of a later day."""
        return newer_than(self.own_rows, self.day)

    @cached_property
    def own_rows(self) -> tuple[Offer, ...]:
        """The rows of the user's file; none without one."""
        if self.file is None:
            return ()
        known = catalog_offers()
        own = read_offers(
            self.file, lambda text: gpu(text).name, known, self.day, self.currency
        )
        if not self.allow_odd:
            refuse_odd(self.file, own, known)
        return tuple(own)

    def bought(self) -> str:
        """Return what is bought: ``spot of AWS in us-east-1``."""
        words = [self.kind, ", ".join(self.nodes)]
        words += [f"of {self.provider}"] if self.provider else []
        words += [f"in {self.region}"] if self.region else []
        return " ".join(filter(None, words))

    def wants(self, offer: Offer) -> bool:
        """Return whether an offer is one of those to buy."""
        kind, _, months = self.kind.partition(":")
        return (
            (not kind or offer.kind == kind)
            and (not months or offer.term_months == int(months))
            and _is_named(self.provider, offer.provider)
            and _is_named(self.region, offer.region)
            and (not self.nodes or offer.node.lower() in map(str.lower, self.nodes))
        )


def parse_kind(text: str) -> str:
    """Return a way to pay such as ``spot``, ``reserved:12``, ``reserved-1y``.

    Examples
    --------
    >>> parse_kind("reserved-3y")
    'reserved:36'
    """
    lowered = text.strip().lower()
    name, _, months = lowered.partition(":")
    name, months = OLD_KINDS.get(lowered, (name, months))
    if name not in KINDS or (months and not months.isdigit()):
        raise InputError(
            f"{text!r}: expected one of {', '.join(KINDS)}, of reserved with its "
            "months as in reserved:12"
        )
    return f"{name}:{int(months)}" if months else name


def _is_named(wanted: str | None, name: str) -> bool:
    return wanted is None or name.lower() == wanted.lower()


@cache
def catalog_offers() -> tuple[Offer, ...]:
    """Return the offers of the catalog."""
    return tuple(read_offers(_OFFERS, lambda text: gpu(text).name))


def offers(name: str, market: Market) -> tuple[Offer, ...]:
    """Return the offers of a GPU to buy: of the user's file, else of the catalog."""
    full = gpu(name).name
    for known in (market.own, market.shipped):
        wanted = [offer for offer in known if offer.gpu == full and market.wants(offer)]
        if wanted:
            return tuple(wanted)
    return ()


def since(market: Market, name: str | None = None) -> date | None:
    """Return the day of the first offer that a market would know; None before none.

    That is where the market's day is before all of them, of one GPU or of any;
    undated rows of the catalog are of no known day, those of the user of any.
    """
    full = None if name is None else gpu(name).name
    shipped = (offer for offer in catalog_offers() if offer.as_of)
    rows = [
        offer
        for offer in (*market.own_rows, *shipped)
        if full in (None, offer.gpu) and market.wants(offer)
    ]
    is_before_all = all(is_newer(row, market.day) for row in rows)
    return first_day(rows) if is_before_all else None


def price(
    name: str,
    market: Market | None = None,
    today: date | None = None,
    tp: int = 1,
) -> Price | None:
    """Return the price of a GPU hour; None when nobody offers it.

    It is that of a node that holds a replica, over the GPUs of the node. Prices given,
    for nodes of any size, go before the user's file (without a node size its offers
    are for any), and that before the catalog. Of several offers :func:`middle_offers`
    chooses. A node of the GPU's largest size is enough for any ``tp``: a larger
    replica takes several. A :class:`PriceWarning` tells when, ``today``, the price is
    older than 90 days, undated, a guess or of too small a node.
    """
    market = market or Market()
    full, most = gpu(name).name, gpu(name).max_gpus_per_node
    today = today or current_day()
    tp = min(tp, most)
    given = {gpu(key).name: value for key, value in (market.given or {}).items()}
    if full in given:
        return _given(float(given[full]), full, market)
    wanted = offers(name, market)
    own = bool(wanted) and wanted[0] in market.own_rows
    if market.nodes:
        wanted = tuple(offer for offer in wanted if offer.holds(tp))
    chosen = middle_offers(wanted, tp, most)
    if chosen is None:
        return None
    return _price_of(full, chosen, tp, today, own=own, alone=len(wanted) == 1)


def _given(usd_per_gpu_h: float, full: str, market: Market) -> Price:
    """Return a given price, of the node that is bought where one is named."""
    named = [find_node(name, market.provider or "") for name in market.nodes]
    own = [node for node in named if node is not None and node.gpu == full]
    if len(own) != 1:
        return Price(usd_per_gpu_h, GIVEN)
    node = own[0]
    return Price(
        usd_per_gpu_h,
        GIVEN,
        provider=node.provider,
        node=node.name,
        gpus_per_node=node.gpus,
        nvlink_domain_gpus=node.nvlink_domain_gpus,
    )


def _price_of(
    full: str, choice: Choice, tp: int, today: date, *, own: bool, alone: bool
) -> Price:
    """Return the price of a choice, and warn of what is doubtful about it."""
    found, rule = _mean(choice.offers), choice.rule
    if own and alone:
        rule = "given in the user's prices file"
    staleness = next((s for o in choice.offers if (s := o.staleness(today))), "")
    weakness = "it is a guess" if found.is_guess else staleness
    gap = "" if own and found.gpus_per_node is None else found.node_gap(tp)
    doubts = [gap] if own and not found.as_of else [weakness, gap]
    if any(doubts):
        warnings.warn(
            f"the price of {full}, ${found.usd_per_gpu_h:.2f}/h ({found.name}): "
            f"{'; '.join(filter(None, doubts))}; "
            f"give your own with --price {full}=DOLLARS",
            PriceWarning,
            stacklevel=3,
        )
    months = max(offer.min_months for offer in choice.offers)
    least = f"rented for {months} months at least" if months else ""
    source = f"{found.name}: {found.source}" if found.name else found.source
    return Price(
        usd_per_gpu_h=found.usd_per_gpu_h,
        source=source if own else found.whose,
        as_of=found.as_of,
        note="; ".join(filter(None, (rule, least, found.note, weakness, gap))),
        is_guess=found.is_guess,
        is_stale=bool(staleness),
        kind=found.kind_and_term,
        provider=found.provider,
        node=found.node,
        gpus_per_node=found.gpus_per_node,
        nvlink_domain_gpus=found.nvlink_domain_gpus,
        asked=tuple((o.usd_per_gpu_h, o.gpus_per_node) for o in choice.asked),
    )


def _mean(offers: Sequence[Offer]) -> Offer:
    """Return the mean of offers; of nodes that differ in size the size is not known."""
    first, last = offers[0], offers[-1]
    if first is last:
        return first
    size = first.gpus_per_node
    alike = size is not None and size == last.gpus_per_node
    return replace(
        first,
        usd_per_gpu_h=(first.usd_per_gpu_h + last.usd_per_gpu_h) / 2,
        provider=" and ".join((first.provider, last.provider)),
        node=" or ".join(offer.node for offer in offers) if alike else "",
        gpus_per_node=size if alike else None,
        nvlink_domain_gpus=first.nvlink_domain_gpus if alike else None,
        region="",
        as_of=min(first.as_of, last.as_of),
        source="; ".join(dict.fromkeys(offer.source for offer in offers)),
        note="; ".join(filter(None, dict.fromkeys(offer.note for offer in offers))),
        basis=last.basis if last.is_guess else first.basis,
    )
