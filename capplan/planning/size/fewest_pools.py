"""The fewest replicas for prompts and for decoding that meet the SLO, by simulation."""

import math
from bisect import bisect_left
from collections.abc import Callable

from capplan.deployment.pools import Counts, with_count
from capplan.planning.settings.groups import MOST_REPLICAS
from capplan.planning.size.counts import (
    BAND_ABOVE,
    ENOUGH,
    GROWTH,
    Fewest,
    Price,
    RunWith,
    Search,
    attained,
)

_FACTORS = (1.0, *(GROWTH[0] * GROWTH[1] ** k for k in range(8)))
"""Times the least counts that are simulated until they meet the SLO."""
_HALF, _NOTICED = 0.5, 1e-3
"""Attainment of fleets that are not overloaded, and what more replicas add at least."""


def fewest_pools(
    run_with: RunWith,
    at_least: Counts,
    price_of: Callable[[Counts], Price],
    competes: Callable[[Counts], bool] | None = None,
) -> Fewest:
    """Find the cheapest replicas for prompts and for decoding that meet the SLO.

    Both grow together from ``at_least`` until they meet it; then those for prompts are
    bisected, then those for decoding. From there on, one replica more or fewer for
    prompts each time, the most for decoding that still cost less are tried, and
    bisected where they meet the SLO, until five in a row do not. With ``competes``,
    which counts must do to be of use, the first are the most that do.
    """
    search = _TwoPools(run_with, at_least, price_of, competes)
    return search.answer(search.cheapest)


class _TwoPools(Search):
    """Counts of two pools simulated so far."""

    def __init__(
        self,
        run_with: RunWith,
        at_least: Counts,
        price_of: Callable[[Counts], Price],
        competes: Callable[[Counts], bool] | None,
    ) -> None:
        super().__init__(run_with, price_of)
        self._at_least = at_least
        self._competes = competes
        self._best: Counts | None = None

    def cheapest(self) -> Fewest:
        """Return the cheapest counts, or where none is decided those at the target."""
        start = self._start()
        if start is not None:
            if self.meets(start):
                self._best = self._fewer(start)
            prompts = start[0] if self._best is None else self._best[0]
            for step in (-1, 1):
                self._along(prompts, step)
            self._settle()
        self.prove(self._chosen())
        chosen, decided = self._chosen(), False
        if self._best is not None:
            met = self.runs[self._best].judgement.meets is True
            decided = met and self._holds(self._best)
        close = (each for each in self.known() if self.is_at_target(each))
        if chosen is not None:
            price = self._price_of(chosen)
            close = (each for each in close if self._price_of(each) < price)
        return self.found(chosen, decided, tuple(close))

    def _chosen(self) -> Counts | None:
        """Return the best counts, or where none is decided the cheapest at the target.

        Of those that must compete only decided ones are of use.
        """
        if self._best is not None or self._competes is not None:
            return self._best
        return next(filter(self.is_at_target, self.known()), None)

    def is_hopeless(self, before: Counts | None, counts: Counts) -> bool:
        """Return whether more than counts, which miss the SLO, are of no use."""
        if self.helps_no_more(before, counts) or max(counts) == MOST_REPLICAS:
            return True
        return counts[0] > 2 * self._at_least[0] and self.is_unsettled(counts)

    def helps_no_more(self, fewer: Counts | None, more: Counts) -> bool:
        """Return whether added replicas did not change a single iteration.

        Or what is attained, of fleets that are not overloaded.
        """
        if fewer is None:
            return False
        if super().helps_no_more(fewer, more):
            return True
        shares = [attained(self.runs[counts]) for counts in (fewer, more)]
        return min(shares) > _HALF and abs(shares[1] - shares[0]) < _NOTICED

    def _scaled(self, factor: float) -> Counts:
        return tuple(
            min(math.ceil(factor * count), MOST_REPLICAS) for count in self._at_least
        )

    def _start(self) -> Counts | None:
        """Return counts in the proportion of the least that meet the SLO, or None.

        Of those that are to compete the largest that do, whether they meet it or not.
        """
        if self._competes is not None:
            return self._largest_competing()
        found = self.first_of(dict.fromkeys(map(self._scaled, _FACTORS)))
        return None if found is None else found[1]

    def _largest_competing(self) -> Counts | None:
        assert self._competes is not None
        if not self._competes(self._at_least):
            return None
        counts = self._at_least
        for more in range(1, MOST_REPLICAS):
            larger = self._scaled(1 + more / max(self._at_least))
            if not self._competes(larger):
                break
            counts = larger
        return counts[0], self._most_decoding(counts[0])

    def _better(self, counts: Counts) -> bool:
        """Return whether counts cost less than the best, or else compete."""
        if self._best is not None:
            return bool(self._price_of(counts) < self._price_of(self._best))
        return self._competes is None or self._competes(counts)

    def _most_decoding(self, prompts: int) -> int:
        """Return the most replicas for decoding that are better; 0 for none."""
        return bisect_left(
            range(1, MOST_REPLICAS + 1),
            True,
            key=lambda count: not self._better((prompts, count)),
        )

    def _fewer(self, counts: Counts) -> Counts:
        """Return the fewest for prompts, then for decoding, of counts that do."""
        prompts, decoding = counts
        prompts = self._fewest(0, (prompts, decoding))
        return prompts, self._fewest(1, (prompts, decoding))

    def _fewest(self, pool: int, counts: Counts) -> int:
        """Return the fewest replicas of a pool that meet the SLO; ``counts`` do."""
        return bisect_left(
            range(counts[pool]),
            True,
            self._at_least[pool],
            key=lambda count: self._may_meet(with_count(counts, pool, count)),
        )

    def _may_meet(self, counts: Counts) -> bool:
        """Return whether counts meet the SLO, and none no smaller misses it."""
        is_beaten = any(
            self.misses(known) and all(map(int.__ge__, known, counts))
            for known in self.runs
        )
        return not is_beaten and self.meets(counts)

    def _along(self, prompts: int, step: int) -> None:
        """Try other counts for prompts, with the most for decoding that are better."""
        missed = 0
        while missed < ENOUGH:
            prompts += step
            decoding = self._most_decoding(prompts) if prompts > 0 else 0
            if prompts < self._at_least[0] or decoding < self._at_least[1]:
                return
            if self._may_meet((prompts, decoding)):
                self._best = prompts, self._fewest(1, (prompts, decoding))
                missed = 0
            else:
                missed += 1

    def _holds(self, counts: Counts) -> bool:
        """Return whether up to 5 % more replicas of either pool attain the target too.

        They may be too close to call while their attainment is at the target.
        """
        if self.runs[counts].judgement.no_miss:
            return True
        return all(
            self.meets(more) or self.is_at_target(more) for more in _above(counts)
        )

    def _settle(self) -> None:
        """Take the cheapest counts above the best which hold with those above them."""
        best = self._best
        if best is None or self._holds(best):
            return
        for more in _above(best):
            if self.meets(more) and self._holds(more):
                self._best = more
                return


def _above(counts: Counts) -> list[Counts]:
    """Return counts with up to 5 % more replicas of either pool; some of many."""
    return [
        with_count(counts, pool, count + more)
        for pool, count in enumerate(counts)
        for more in _steps(count)
    ]


def _steps(count: int) -> list[int]:
    reach = math.ceil(BAND_ABOVE * count)
    return sorted({1, (1 + reach) // 2, reach})
