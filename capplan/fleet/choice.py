"""The price of a GPU-hour that a plan takes where several providers ask one."""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from capplan.fleet.offer import Offer


class Choice(NamedTuple):
    """The offers in the middle of the providers, and how they were found."""

    offers: tuple[Offer, ...]  # one, or the two in the middle of an even number
    asked: tuple[Offer, ...]  # of each provider, the cheapest first
    rule: str  # for people


def middle_offers(
    offers: Sequence[Offer], tp: int = 1, rank_tp: int | None = None
) -> Choice | None:
    """Return the middle of the offers of one GPU and kind for a replica, or None.

    Providers are ranked by the price of a node that holds ``rank_tp`` GPUs (``tp``),
    so that all degrees of one GPU are bought of one provider; the price is that of its
    node for ``tp``. Only nodes that hold a replica count; without any, those whose
    size is not known, else the largest. Of these, undated offers count only without
    dated ones, guesses and best-effort offers only without any others. Each provider
    counts with its smallest node, and of that with its newest offer (the cheapest of
    one day). The middle of an even number are two, whose mean is the price.
    """
    most = max((offer.gpus_per_node or 0 for offer in offers), default=0)
    ranked = _by_provider(offers, max(tp, min(rank_tp or tp, most)))
    if not ranked:
        return None
    by_price = sorted(ranked.values(), key=lambda o: (o.usd_per_gpu_h, o.provider))
    middle = by_price[(len(by_price) - 1) // 2 : len(by_price) // 2 + 1]
    of_each = {
        name: _by_provider([o for o in offers if o.provider == name], tp)[name]
        for name in ranked
    }
    asked = sorted(of_each.values(), key=lambda o: (o.usd_per_gpu_h, o.provider))
    chosen = [of_each[offer.provider] for offer in middle]
    rule = "the only provider known"
    if len(asked) > 1:
        which = "the middle" if len(middle) == 1 else "the mean of the middle two"
        low, high = asked[0].usd_per_gpu_h, asked[-1].usd_per_gpu_h
        rule = f"{which} of {len(asked)} providers that ask ${low:.2f} to ${high:.2f}"
    if tp > 1 and all(offer.holds(tp) for offer in chosen):
        rule += f" for nodes of {tp} GPUs or more"
    return Choice(tuple(chosen), tuple(asked), rule)


def _by_provider(offers: Sequence[Offer], tp: int) -> dict[str, Offer]:
    """Return the offer of each provider that counts for a replica."""
    holding = [offer for offer in offers if offer.holds(tp)]
    unknown = [offer for offer in offers if offer.gpus_per_node is None]
    most = max((offer.gpus_per_node or 0 for offer in offers), default=0)
    able = holding or unknown or [o for o in offers if o.gpus_per_node == most]
    listed = [offer for offer in able if offer.listed]
    pool = [offer for offer in listed if offer.as_of] or listed or able
    found: dict[str, Offer] = {}
    for offer in sorted(pool, key=_preference):
        found[offer.provider] = offer
    return found


def _preference(offer: Offer) -> tuple[int, date, float]:
    """Sort key that puts a provider's offer to count with last."""
    return (-(offer.gpus_per_node or 1), offer.day() or date.min, -offer.usd_per_gpu_h)
