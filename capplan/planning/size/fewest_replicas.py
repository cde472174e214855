"""The fewest replicas of one configuration that meet the SLO, by simulation."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from capplan.deployment.pools import Counts
from capplan.planning.count_ladder import fewest_between
from capplan.planning.evaluate.run import Run
from capplan.planning.size.counts import (
    BAND_ABOVE,
    ENOUGH,
    GROWTH,
    Fewest,
    RunWith,
    Search,
)

_KV_FULL = 0.97
_PREEMPTED_SHARE = 0.01
_LOOKED_ABOVE = 8
"""Counts looked at above twice the first that meets the SLO."""
_BAND_BELOW = 0.1
"""Share of a count below it in which every count is tried."""
_COARSE = 0.1
"""Share of a count to which it is found where that is enough."""


def fewest_replicas(
    run_with: RunWith,
    at_least: int,
    max_replicas: int,
    settled_by: int | None = None,
    *,
    coarse: bool = False,
) -> Fewest:
    """Find the fewest replicas of which it is decided that they meet the SLO.

    Brackets from a lower bound upward in growing steps, then bisects. Attainment is not
    monotone in the count, so that then every count in a band below is tried, until
    five in a row miss, and those up to 5 % above must meet the SLO too; of more than
    five, some between. Gives up at ``max_replicas``, where more replicas change nothing
    (a router that fills replicas leaves the new ones idle), or where ``settled_by``
    replicas and more do not settle. A target of 1, which no sample decides, takes the
    fewest without a miss. ``coarse`` takes any count that is above one which does not
    meet the SLO by 10 % at most.
    """
    search = _OnePool(run_with, max_replicas, settled_by)
    find = search.about if coarse else search.fewest
    return search.answer(lambda: find(at_least))


class _OnePool(Search):
    """Counts of one pool simulated so far."""

    def __init__(
        self, run_with: RunWith, max_replicas: int, settled_by: int | None
    ) -> None:
        super().__init__(run_with)
        self._max_replicas = max_replicas
        self._settled_by = settled_by or max_replicas

    def fewest(self, at_least: int) -> Fewest:
        """Return the fewest, with one replica fewer."""
        found = self._fewest(at_least)
        self.prove(found[0])
        return self.found(*found)

    def _fewest(self, at_least: int) -> tuple[Counts | None, bool, tuple[Counts, ...]]:
        count = self._first(at_least)
        count = None if count is None else self._settled_above(count)
        if count is None:
            return self._undecided()
        lowest = max(1, math.floor(count * (1 - _BAND_BELOW)) - 1)
        missed = 0  # in a row
        for fewer in range(count - 1, lowest - 1, -1):
            if self._stands(fewer):
                count = fewer
            missed = missed + 1 if self.misses((fewer,)) else 0
            if missed == ENOUGH:
                break
        while count > 1 and self._stands(count - 1):
            count -= 1
        decided = self.runs[count,].judgement.meets is True
        close = tuple(each for each in self._close() if each < (count,))
        return (count,), decided, close

    def about(self, at_least: int) -> Fewest:
        """Return a count to 10 %."""
        count = self._first(at_least, _COARSE)
        if count is None:
            return self.found(*self._undecided())
        decided = self.runs[count,].judgement.meets is True
        return replace(self.found((count,), decided, ()), coarse=True)

    def is_hopeless(self, before: Counts | None, counts: Counts) -> bool:
        """Return whether more than a count, which misses the SLO, are of no use."""
        if counts[0] >= self._max_replicas or self.helps_no_more(before, counts):
            return True
        return counts[0] >= self._settled_by and self.is_unsettled(counts)

    def _first(self, at_least: int, precision: float = 0.0) -> int | None:
        """Return a count that meets the SLO, above one that does not; or None.

        ``precision`` is the share of the count by which the two may differ.
        """
        found = self.first_of(self._growing(at_least))
        if found is None:
            return None
        before, (high,) = found
        (low,) = before or (at_least - 1,)
        return fewest_between(low, high, lambda n: self.meets((n,)), precision)

    def _growing(self, count: int) -> Iterator[Counts]:
        growth, others = GROWTH
        while True:
            yield (count,)
            more = max(count + 1, math.ceil(count * growth))
            count, growth = min(self._max_replicas, more), others

    def _stands(self, count: int) -> bool:
        """Return whether a count meets the SLO, and those up to 5 % above attain it.

        One of them may be too close to call while its attainment is at the target. Of
        many, those simulated already are asked, and others at equal distances.
        """
        if not self.meets((count,)):
            return False
        if self.runs[count,].judgement.no_miss:
            return True
        reach = min(self._max_replicas, count + math.ceil(BAND_ABOVE * count))
        stride = math.ceil((reach - count) / ENOUGH)
        return all(
            self.meets((more,)) or self.is_close((more,))
            for more in range(count + 1, reach + 1)
            if more % stride == 0 or (more,) in self.runs
        )

    def _settled_above(self, first: int) -> int | None:
        """Return the next count that meets the SLO with those above it, or None.

        None also where more replicas change nothing, or twice as many are not enough.
        """
        most = min(self._max_replicas, 2 * first + _LOOKED_ABOVE)
        for count in range(first, most + 1):
            if self._stands(count):
                return count
            if self.helps_no_more((count - 1,), (count,)):
                break
        return None

    def _close(self) -> list[Counts]:
        """Return the counts that are too close to call, ascending."""
        return [
            each for each in self.known() if self.runs[each].judgement.meets is None
        ]

    def _undecided(self) -> tuple[Counts | None, bool, tuple[Counts, ...]]:
        """Return the fewest replicas at the target, where none is decided.

        Those that meet the SLO alone, while larger counts miss it, come first.
        """
        if self.full and not self.runs:
            raise next(iter(self.full.values()))
        close = tuple(self._close())
        for counts in self.known():
            if self.runs[counts].judgement.meets:
                return counts, False, close
        for counts in filter(self.is_at_target, close):
            return counts, False, tuple(each for each in close if each < counts)
        unsettled = [*filter(self.is_unsettled, close)]
        return (unsettled[-1], False, ()) if unsettled else (None, False, close)


def binding_limit(failing: Run | None) -> str:
    """Return what keeps the deployment from being smaller.

    Read off the count below, which fails: KV when requests were preempted or the
    cache was full, else the limit that most requests miss. Nothing binds a single
    replica.
    """
    if failing is None:
        return "none"
    simulation = failing.simulation
    preempted = float((simulation.table.preemptions > 0).mean())
    full = float(np.quantile(simulation.series.kv_share, 0.9)) > _KV_FULL
    if preempted > _PREEMPTED_SHARE or full:
        return "KV"
    assert failing.judgement.attainment is not None
    shares = failing.judgement.attainment.by_limit
    return min(shares, key=lambda name: shares[name]).upper()
