"""The fewest replicas for prompts and for decoding that meet the SLO, by simulation."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from capplan.deployment.pools import Counts, one_fewer
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.run import Run
from capplan.planning.settings.groups import MOST_REPLICAS
from capplan.planning.size.fewest_replicas import BAND_ABOVE

Price = tuple[float, int]
"""$/h, infinite without a price, and GPUs."""

_FACTORS = (1.0, *(1.25 * 1.5**k for k in range(8)))
"""Times the least counts that are simulated until they meet the SLO."""
_HALF, _NOTICED = 0.5, 1e-3
"""Attainment of fleets that are not overloaded, and what more replicas add at least."""
_TRIED = 5
"""Counts in a row that save nothing, after which no more of their side are tried."""


@dataclass(frozen=True, eq=False)
class FewestPools:
    """The cheapest two counts that meet the SLO, and those simulated."""

    # the cheapest decided to meet the SLO, as somewhat larger ones do; where none is
    # decided and any would be of use, the cheapest at the target; None where none is
    run: Run | None
    runs: tuple[Run, ...] = ()  # by ascending price
    decided: bool = False
    # cheaper counts that the samples do not tell from the target
    too_close: tuple[Counts, ...] = ()
    interrupted: bool = False  # then the run is the cheapest decided until then


def fewest_pools(
    run_with: Callable[[Counts], Run],
    at_least: Counts,
    price_of: Callable[[Counts], Price],
    competes: Callable[[Counts], bool] | None = None,
) -> FewestPools:
    """Find the cheapest replicas for prompts and for decoding that meet the SLO.

    Both grow together from ``at_least`` until they meet it; then those for prompts are
    bisected, then those for decoding. From there on, one replica more or fewer for
    prompts each time, the most for decoding that still cost less are tried, and
    bisected where they meet the SLO, until five in a row do not. With ``competes``,
    which counts must do to be of use, the first are the most that do.
    """
    search = _Search(run_with, at_least, price_of, competes)
    try:
        search.search()
    except Interrupted:
        return search.interrupted()
    return search.found()


class _Search:
    """Counts simulated so far."""

    def __init__(
        self,
        run_with: Callable[[Counts], Run],
        at_least: Counts,
        price_of: Callable[[Counts], Price],
        competes: Callable[[Counts], bool] | None,
    ) -> None:
        self._runs: dict[Counts, Run] = {}
        self._run_with = run_with
        self._at_least = at_least
        self._price_of = price_of
        self._competes = competes
        self._best: Counts | None = None

    def search(self) -> None:
        """Find the cheapest counts, and simulate those that prove it."""
        start = self._start()
        if start is not None:
            if self.meets(start):
                self._best = self._fewer(start)
            prompts = start[0] if self._best is None else self._best[0]
            for step in (-1, 1):
                self._along(prompts, step)
            self._settle()
        chosen = self._chosen()
        if chosen is not None:
            for fewer in one_fewer(chosen):
                self.meets(fewer)

    def meets(self, counts: Counts) -> bool:
        """Return whether it is decided that counts meet the SLO, or have no miss."""
        if counts not in self._runs:
            self._runs[counts] = self._run_with(counts)
        return self._runs[counts].judgement.holds

    def found(self) -> FewestPools:
        """Return the cheapest counts, or where none is decided those at the target."""
        runs = self._ordered()
        best, decided = self._chosen(), False
        if self._best is not None:
            met = self._runs[self._best].judgement.meets is True
            decided = met and self._holds(self._best)
        close = tuple(
            counts
            for counts in runs
            if self._is_at_target(counts)
            and (best is None or self._price_of(counts) < self._price_of(best))
        )
        run = None if best is None else self._runs[best]
        return FewestPools(run, tuple(self._runs[c] for c in runs), decided, close)

    def _chosen(self) -> Counts | None:
        """Return the best counts, or where none is decided the cheapest at the target.

        Of those that must compete only decided ones are of use.
        """
        if self._best is not None or self._competes is not None:
            return self._best
        return next(
            (each for each in self._ordered() if self._is_at_target(each)), None
        )

    def interrupted(self) -> FewestPools:
        """Return the cheapest counts decided to meet the SLO until now."""
        runs = self._ordered()
        passing = [c for c in runs if self._runs[c].judgement.meets]
        run = self._runs[passing[0]] if passing else None
        return FewestPools(run, tuple(self._runs[c] for c in runs), interrupted=True)

    def _ordered(self) -> list[Counts]:
        return sorted(self._runs, key=lambda counts: (self._price_of(counts), counts))

    def _is_at_target(self, counts: Counts) -> bool:
        judgement = self._runs[counts].judgement
        settled = judgement.steadiness.settled is not False
        return judgement.meets is None and not judgement.missing and settled

    def _scaled(self, factor: float) -> Counts:
        first, second = (math.ceil(factor * count) for count in self._at_least)
        return min(first, MOST_REPLICAS), min(second, MOST_REPLICAS)

    def _start(self) -> Counts | None:
        """Return counts in the proportion of the least that meet the SLO, or None.

        Of those that are to compete the largest that do, whether they meet it or not.
        """
        if self._competes is not None:
            return self._largest_competing()
        grown = dict.fromkeys(self._scaled(factor) for factor in _FACTORS)
        for before, counts in pairwise((None, *grown)):
            assert counts is not None
            if self.meets(counts):
                return counts
            if self._is_hopeless(before, counts):
                break
        return None

    def _is_hopeless(self, before: Counts | None, counts: Counts) -> bool:
        """Return whether more than counts, which miss the SLO, are of no use."""
        if before is not None and self._helps_no_more(before, counts):
            return True
        is_twice = counts[0] > 2 * self._at_least[0]
        return (is_twice and self._is_unsettled(counts)) or max(counts) == MOST_REPLICAS

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
            return self._price_of(counts) < self._price_of(self._best)
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
        prompts = self._fewest(
            self._at_least[0], prompts, lambda count: (count, decoding)
        )
        return prompts, self._fewest_decoding(prompts, decoding)

    def _fewest_decoding(self, prompts: int, most: int) -> int:
        return self._fewest(self._at_least[1], most, lambda count: (prompts, count))

    def _fewest(self, low: int, high: int, counts: Callable[[int], Counts]) -> int:
        """Return the fewest of a pool that meet the SLO; ``high`` do."""
        return bisect_left(
            range(high), True, low, key=lambda count: self._may_meet(counts(count))
        )

    def _may_meet(self, counts: Counts) -> bool:
        """Return whether counts meet the SLO, and none no smaller misses it."""
        is_beaten = any(
            run.judgement.meets is False
            for (prompts, decoding), run in self._runs.items()
            if prompts >= counts[0] and decoding >= counts[1]
        )
        return not is_beaten and self.meets(counts)

    def _along(self, prompts: int, step: int) -> None:
        """Try other counts for prompts, with the most for decoding that are better."""
        missed = 0
        while missed < _TRIED:
            prompts += step
            decoding = self._most_decoding(prompts) if prompts > 0 else 0
            if prompts < self._at_least[0] or decoding < self._at_least[1]:
                return
            counts = prompts, decoding
            if self._may_meet(counts):
                self._best = prompts, self._fewest_decoding(prompts, decoding)
                missed = 0
            else:
                missed += 1

    def _holds(self, counts: Counts) -> bool:
        """Return whether up to 5 % more replicas of either pool attain the target too.

        They may be too close to call while their attainment is at the target.
        """
        if self._runs[counts].judgement.no_miss:
            return True
        return all(
            self.meets(more) or self._is_at_target(more) for more in _above(counts)
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

    def _is_unsettled(self, counts: Counts) -> bool:
        judgement = self._runs[counts].judgement
        return judgement.meets is None and judgement.steadiness.settled is False

    def _helps_no_more(self, fewer: Counts, more: Counts) -> bool:
        """Return whether added replicas did not change a single iteration.

        Or what is attained, of fleets that are not overloaded.
        """
        few, many = self._runs[fewer], self._runs[more]
        pair = few.simulation, many.simulation
        if len({(each.iteration_count, each.busy_s) for each in pair}) == 1:
            return True
        shares = [attained(run) for run in (few, many)]
        return min(shares) > _HALF and abs(shares[1] - shares[0]) < _NOTICED


def attained(run: Run) -> float:
    """Return the share of requests that meet the SLO; 0 where none counts."""
    attainment = run.judgement.attainment
    return 0.0 if attainment is None else attainment.share


def _above(counts: Counts) -> list[Counts]:
    """Return counts with up to 5 % more replicas of either pool; some of many."""
    prompts, decoding = counts
    return [
        *((prompts + more, decoding) for more in _steps(prompts)),
        *((prompts, decoding + more) for more in _steps(decoding)),
    ]


def _steps(count: int) -> list[int]:
    reach = math.ceil(BAND_ABOVE * count)
    return sorted({1, (1 + reach) // 2, reach})
