"""Two kinds of replicas, the sizes divided between them at one place.

Rates of single sizes do not add up where they disturb each other: a few long prompts
may cost a kind most of what it sustains of short ones. So for each place to divide the
sizes, in the order in which one kind is better than the other, the replicas that each
kind needs for its own sizes together are simulated.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

MOST_PAIRS = 4
"""Pairs of kinds that are looked at, the most promising first."""
MOST_PLACES = 12
"""Places at which the sizes of a pair are divided, at most."""


@dataclass(frozen=True)
class Proposal:
    """Kinds, where each size goes, and the replicas that should do."""

    kinds: tuple[int, ...]  # indices of kinds
    parts: tuple[tuple[int, ...], ...]  # of each band, how many go to each kind in turn
    counts: tuple[int, ...]  # replicas of each kind


class Served(NamedTuple):
    """What so many replicas of a kind do with the slices that are theirs."""

    replica_count: int
    missed: tuple[float, ...]  # share of each group's requests that miss, of all kinds


Serve = Callable[[int, tuple[int, ...]], Sequence[Served]]
"""What a kind does with so many slices of each band, by replicas, fewest first.

From so few that others could not make up for them, to those that meet the SLO
themselves; nothing where none do.
"""


def promising_pairs(
    rates_per_s: np.ndarray, sustained: np.ndarray, usd_per_h: np.ndarray
) -> list[tuple[int, int]]:
    """Return pairs of kinds, the one whose sizes could cost least alone first.

    ``rates_per_s`` has shape (bands,), ``sustained`` (bands, kinds), ``usd_per_h`` of a
    replica (kinds,).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        usd = np.where(
            sustained > 0, rates_per_s[:, None] * usd_per_h / sustained, np.inf
        )
    found = []
    for pair in combinations(range(sustained.shape[1]), 2):
        least = float(usd[:, pair].min(axis=1).sum())
        if np.isfinite(least):
            found.append((least, pair))
    return [pair for _, pair in sorted(found)[:MOST_PAIRS]]


@dataclass(frozen=True, eq=False)
class Division:
    """Two kinds that the sizes are divided between."""

    pair: tuple[int, int]
    sustained: np.ndarray  # of each band alone by each of the two, (bands, 2)
    usd_per_h: tuple[float, float]  # of a replica of each [$/h]
    serve: Serve
    may_miss: tuple[float, ...]  # share of each group's requests
    slices: int
    min_replicas: int

    def proposals(self) -> list[tuple[float, Proposal]]:
        """Return proposals with what they would cost, the cheapest first. [$/h]

        Whole bands first, then slices of the bands around the cheapest place; the order
        backwards too, since it is worth most to keep sizes apart that disturb each
        other.
        """
        order = _order(self.sustained[:, 0], self.sustained[:, 1])
        rows = [row for way in (order, order[::-1]) for row in self._along(way)]
        return sorted(rows, key=lambda row: (row[0], row[1].parts, row[1].counts))

    def _along(self, order: np.ndarray) -> list[tuple[float, Proposal]]:
        """Return proposals that divide the bands in an order."""
        most = self.slices * len(order)
        steps = min(len(order), MOST_PLACES) + 1
        places = self.slices * np.linspace(0, len(order), steps).round().astype(int)
        found = self._at(order, places[1:-1].tolist())
        best = min(found, key=lambda place: found[place][0], default=None)
        if best is not None:
            near = range(best - self.slices + 1, best + self.slices)
            found |= self._at(order, [place for place in near if 0 < place < most])
        return list(found.values())

    def _at(
        self, order: np.ndarray, places: Iterable[int]
    ) -> dict[int, tuple[float, Proposal]]:
        """Return proposals with so many slices, in order, on the first kind."""
        found = {}
        for place in places:
            first = np.zeros(len(order), int)
            first[order] = np.clip(
                place - self.slices * np.arange(len(order)), 0, self.slices
            )
            row = self._proposed(first)
            if row is not None:
                found[place] = row
        return found

    def _proposed(self, first: np.ndarray) -> tuple[float, Proposal] | None:
        """Return the cheapest counts that do, and their cost; None where none do.

        A pool that attains more than is asked may make up for one that attains less.
        """
        second = self.slices - first
        if not (first.any() and second.any()):
            return None
        curves = []
        for kind, side in zip(self.pair, (first, second), strict=True):
            curves.append(self.serve(kind, tuple(side.tolist())))
            if not curves[-1]:
                return None
        found = []
        for rows in product(*curves):
            counts = [max(self.min_replicas, row.replica_count) for row in rows]
            missed = np.sum([row.missed for row in rows], axis=0)
            if (missed <= np.array(self.may_miss) + 1e-12).all():
                found.append((float(np.dot(counts, self.usd_per_h)), tuple(counts)))
        if not found:
            return None
        usd, counts_of = min(found)
        parts = tuple(zip(first.tolist(), second.tolist(), strict=True))
        return usd, Proposal(self.pair, parts, counts_of)


def _order(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the bands, those in which the first kind is best to the second first."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(second > 0, first / second, np.inf)
    return np.argsort(-np.where(first > 0, ratio, -1.0), kind="stable")


def shifted(
    proposal: Proposal, sustained: np.ndarray, slices: int
) -> Iterator[Proposal]:
    """Yield proposals with a slice of a band moved, and one replica less somewhere.

    Of two kinds: of the bands between which the sizes are divided, by what replicas
    sustain of each, ``sustained`` with shape (bands, 2).
    """
    order = _order(sustained[:, 0], sustained[:, 1]).tolist()
    on_first = [band for band in order if proposal.parts[band][0]]
    on_second = [band for band in order if proposal.parts[band][1]]
    for band in dict.fromkeys((*on_first[-1:], *on_second[:1])):
        row = proposal.parts[band]
        first = row[0] * slices // sum(row)
        for moved in (first - 1, first + 1):
            if not 0 <= moved <= slices or not sustained[band].all():
                continue
            parts = list(proposal.parts)
            parts[band] = (moved, slices - moved)
            for less in (0, 1):
                counts = list(proposal.counts)
                counts[less] -= 1
                yield Proposal(proposal.kinds, tuple(parts), tuple(counts))
