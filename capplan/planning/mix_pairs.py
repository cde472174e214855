"""Two kinds of replicas, the sizes divided between them at one place.

What sizes carry alone does not add up where they disturb each other: a few long prompts
may cost a kind most of what it carries of short ones. So what each of two kinds carries
of its own sizes together is measured too, for each place to divide them, in the order
in which one kind is better than the other.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

MOST_PAIRS = 6
"""Pairs of kinds that are looked at, the most promising first."""
MOST_PLACES = 16
"""Places at which the sizes of a pair are divided, at most."""


@dataclass(frozen=True)
class Proposal:
    """Kinds, where each size goes, and the replicas that should do."""

    kinds: tuple[int, ...]  # indices of kinds
    parts: tuple[tuple[int, ...], ...]  # of each band, how many go to each kind in turn
    counts: tuple[int, ...]  # replicas of each kind


Together = Callable[[int, tuple[int, ...]], float]
"""What a replica of a kind carries of some bands together, 0 if none. [requests/s]"""


def promising_pairs(
    rates_per_s: np.ndarray,
    carried: np.ndarray,
    usd_per_h: np.ndarray,
    most_usd_per_h: float,
) -> list[tuple[int, int]]:
    """Return pairs of kinds, the one whose sizes could cost least alone first.

    ``rates_per_s`` has shape (bands,), ``carried`` (bands, kinds), ``usd_per_h`` of a
    replica (kinds,).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        usd = np.where(carried > 0, rates_per_s[:, None] * usd_per_h / carried, np.inf)
    found = []
    for pair in combinations(range(carried.shape[1]), 2):
        least = float(usd[:, pair].min(axis=1).sum())
        if least < most_usd_per_h:
            found.append((least, pair))
    return [pair for _, pair in sorted(found)[:MOST_PAIRS]]


def divided(
    pair: tuple[int, int],
    rates_per_s: np.ndarray,
    carried: np.ndarray,
    usd_per_h: np.ndarray,
    together: Together,
    slices: int,
    min_replicas: int,
) -> Iterator[tuple[float, Proposal]]:
    """Yield a proposal for each place to divide the sizes, with its cost. [$/h]"""
    first, second = pair
    order = _order(carried[:, first] / usd_per_h[first], carried[:, second])
    bands = len(order)
    places = np.unique(np.linspace(1, bands - 1, min(bands - 1, MOST_PLACES)).round())
    for place in places.astype(int).tolist():
        counts = []
        for kind, part in ((first, order[:place]), (second, order[place:])):
            rate_per_s = float(rates_per_s[part].sum())
            capacity_per_s = together(kind, tuple(sorted(part.tolist())))
            if capacity_per_s <= 0:
                break
            counts.append(max(min_replicas, math.ceil(rate_per_s / capacity_per_s)))
        if len(counts) < 2:
            continue
        parts = [(0, slices)] * bands
        for band in order[:place].tolist():
            parts[band] = (slices, 0)
        usd = counts[0] * usd_per_h[first] + counts[1] * usd_per_h[second]
        yield float(usd), Proposal(pair, tuple(parts), tuple(counts))


def _order(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the bands, those in which the first kind is best to the second first."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(second > 0, first / second, np.inf)
    return np.argsort(-np.where(first > 0, ratio, -1.0), kind="stable")


def shifted(proposal: Proposal, carried: np.ndarray, slices: int) -> Iterator[Proposal]:
    """Yield proposals with a slice of a band moved, and one replica less somewhere.

    Of two kinds: of the bands between which the sizes are divided, by what replicas
    carry of each, ``carried`` with shape (bands, 2).
    """
    order = _order(carried[:, 0], carried[:, 1]).tolist()
    on_first = [band for band in order if proposal.parts[band][0]]
    on_second = [band for band in order if proposal.parts[band][1]]
    for band in dict.fromkeys((*on_first[-1:], *on_second[:1])):
        row = proposal.parts[band]
        first = row[0] * slices // sum(row)
        for moved in (first - 1, first + 1):
            if not 0 <= moved <= slices or not carried[band].all():
                continue
            parts = list(proposal.parts)
            parts[band] = (moved, slices - moved)
            for less in (0, 1):
                counts = list(proposal.counts)
                counts[less] -= 1
                yield Proposal(proposal.kinds, tuple(parts), tuple(counts))
