"""Prices of GPUs: given ones, the user's offers, the catalog's offers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, cached_property
from pathlib import Path

from capplan.currency import USD, Currency
from capplan.errors import InputError
from capplan.fleet.bills import Replicas, bills, signed
from capplan.fleet.catalog import gpu
from capplan.fleet.dated import in_force, is_newer, newer_than
from capplan.fleet.nodes import Node, find_node, nodes
from capplan.fleet.offer import INDEX, KINDS, OLD_KINDS, OUTDATED_DAYS, Offer
from capplan.fleet.offers_file import read_offers, refuse_odd
from capplan.fleet.price import GIVEN, Price
from capplan.today import current_day

_OFFERS = Path(__file__).parent / "data/offers.csv"


@dataclass(frozen=True)
class Market:
    """What a user buys: of which offers, how paid, of whom."""

    given: Mapping[str, float] | None = None  # dollars of a GPU-hour, by GPU [$/h]
    singly: frozenset[str] = frozenset()  # GPUs given that are sold one by one
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
    """Return a way to pay such as ``spot``, ``reserved:12``, ``reserved-1y``."""
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
    days = (day for row in rows if (day := row.day()))
    return min(days, default=None) if is_before_all else None


def price(
    name: str, market: Market | None = None, today: date | None = None, tp: int = 1
) -> Price | None:
    """Return what providers ask for nodes that hold a replica; None without any.

    The price itself is that of one replica, of the bill that counts. Prices given go
    before the user's file, and that before the catalog. Of a price given, nodes have
    the sizes that the catalog knows, unless GPUs are sold singly. Of offers,
    :func:`planned_offers` are bought. A node of the GPU's largest size is enough for
    any ``tp``: a larger replica takes several.
    """
    market = market or Market()
    full, most = gpu(name).name, gpu(name).max_gpus_per_node
    today = today or current_day()
    given = {gpu(key).name: value for key, value in (market.given or {}).items()}
    if full in given:
        asks = _given(float(given[full]), full, min(tp, most), market)
        left_out: tuple[str, ...] = ()
    else:
        wanted = offers(name, market)
        is_own = bool(wanted) and wanted[0] in market.own_rows
        taken, left_out = planned_offers(wanted, min(tp, most), today, is_own=is_own)
        asks = tuple(_ask(o, today, is_own=is_own, tp=tp) for o in taken)
    if not asks:
        return None
    menu = replace(asks[0], asked=asks)
    one = signed(bills([Replicas(tp, 1, menu)])).rows[0].price
    return replace(one, asked=asks, left_out=left_out)


def planned_offers(
    wanted: tuple[Offer, ...], tp: int, today: date, *, is_own: bool = False
) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    """Return the offers that plans buy for a replica, and who is left out and why.

    Never bought of the catalog are indices and offers older than 270 days; those of
    the user's file (``is_own``) only without others. Of the rest, undated offers count
    only without dated ones, guesses and best-effort offers only without any others, and
    offers whose node is not known only without those of nodes.
    """
    steps: tuple[tuple[str, Callable[[Offer], object], bool], ...] = (
        (
            f"older than {OUTDATED_DAYS} days, or an index",
            lambda offer: not (offer.provider == INDEX or offer.is_outdated(today)),
            not is_own,
        ),
        ("no list price", lambda offer: offer.listed, False),
        ("undated", lambda offer: offer.as_of, False),
        ("node size not known", lambda offer: offer.gpus_per_node, False),
        (
            f"no node of {tp} joined GPUs",
            lambda offer: offer.gpus_per_node is None or offer.holds(tp),
            True,
        ),
    )
    found, why = wanted, dict[str, str]()
    for reason, test, is_needed in steps:
        before, better = found, tuple(filter(test, found))
        found = better if is_needed else better or found
        kept = {offer.provider for offer in found}
        for offer in before:
            if offer.provider not in kept:
                why.setdefault(offer.provider or "a price of no provider", reason)
    return found, tuple(f"{name} ({reason})" for name, reason in why.items())


def _given(
    usd_per_gpu_h: float, full: str, tp: int, market: Market
) -> tuple[Price, ...]:
    """Return a given price, for the nodes that may be bought and hold a replica."""
    named = [find_node(name, market.provider or "") for name in market.nodes]
    own = [node for node in named if node is not None and node.gpu == full]
    sizes: dict[int, Node] = {}
    for node in own or nodes():
        if node.gpu == full and _is_named(market.provider, node.provider):
            known = sizes.setdefault(node.gpus, node)
            if (node.nvlink_domain_gpus or 0) > (known.nvlink_domain_gpus or 0):
                sizes[node.gpus] = node
    if full in market.singly or not sizes:
        return (Price(usd_per_gpu_h, GIVEN),)
    return tuple(
        Price(
            usd_per_gpu_h,
            GIVEN,
            provider=node.provider if own else market.provider or "",
            node=node.name if own else "",
            gpus_per_node=node.gpus,
            nvlink_domain_gpus=node.nvlink_domain_gpus,
        )
        for node in sizes.values()
        if node.holds(tp)
    )


def _ask(found: Offer, today: date, *, is_own: bool, tp: int) -> Price:
    """Return the price of an offer, with what is doubtful about it."""
    staleness = "" if is_own and not found.as_of else found.staleness(today)
    gap = "" if is_own else found.node_gap(tp) * (found.gpus_per_node is None)
    weakness = "it is a guess" if found.is_guess else staleness
    months = found.min_months
    least = f"rented for {months} months at least" if months else ""
    source = f"{found.name}: {found.source}" if found.name else found.source
    return Price(
        usd_per_gpu_h=found.usd_per_gpu_h,
        source=source if is_own else found.whose,
        as_of=found.as_of,
        note="; ".join(filter(None, (least, found.note, weakness, gap))),
        is_guess=found.is_guess,
        is_stale=bool(staleness),
        kind=found.kind_and_term,
        provider=found.provider,
        node=found.node,
        gpus_per_node=found.gpus_per_node,
        nvlink_domain_gpus=found.nvlink_domain_gpus,
    )
