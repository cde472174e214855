"""The fewest replicas of one configuration that meet the SLO, by simulation."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from capplan.deployment.pools import Counts
from capplan.errors import HostFullError
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.run import Run

_KV_FULL = 0.97
_PREEMPTED_SHARE = 0.01
_GROWTH = 1.5
BAND_ABOVE = 0.05
"""Share of a count above which the larger counts must meet the SLO as well."""
_LOOKED_ABOVE = 8
"""Counts looked at above twice the first that meets the SLO."""
_BAND_BELOW = 0.1
"""Share of a count below it in which every count is tried."""
_COARSE = 0.1
"""Share of a count to which it is found where that is enough."""
_ENOUGH = 5
"""Counts in a row below that miss the SLO, and counts in the band above, that do."""


@dataclass(frozen=True, eq=False)
class Fewest:
    """The fewest replicas that meet the SLO, and the counts simulated."""

    # the fewest decided to meet the SLO, as somewhat larger counts do; where none is
    # decided, the fewest that meets it alone, whose attainment is at the target, or the
    # most that did not settle; None where no count helps
    run: Run | None
    runs: tuple[Run, ...] = ()  # by ascending count
    decided: bool = False  # by the samples, and by somewhat larger counts
    # smaller counts that the samples do not tell from the target; see ``close``
    too_close: tuple[int, ...] = ()
    coarse: bool = False  # found to 10 %, and decided in this sense
    interrupted: bool = False  # then the run is the fewest decided until then

    @property
    def close(self) -> tuple[Counts, ...]:
        """Those counts, of each pool."""
        return tuple((count,) for count in self.too_close)


def fewest_replicas(
    run_with: Callable[[int], Run],
    at_least: int,
    max_replicas: int,
    settled_by: int | None = None,
) -> Fewest:
    """Find the fewest replicas of which it is decided that they meet the SLO.

    Brackets from a lower bound upward in growing steps, then bisects. Attainment is not
    monotone in the count, so that then every count in a band below is tried, until
    five in a row miss, and those up to 5 % above must meet the SLO too; of more than
    five, some between. Gives up at ``max_replicas``, where more replicas change nothing
    (a router that fills replicas leaves the new ones idle), or where ``settled_by``
    replicas and more do not settle. A target of 1, which no sample decides, takes the
    fewest without a miss.
    """
    search = _Search(run_with, max_replicas, settled_by)
    try:
        return search.with_one_fewer(_fewest(search, at_least))
    except Interrupted:
        return search.interrupted()


def about_fewest(
    run_with: Callable[[int], Run],
    at_least: int,
    max_replicas: int,
    settled_by: int | None = None,
) -> Fewest:
    """Find a count that meets the SLO, above one that does not by 10 % at most."""
    search = _Search(run_with, max_replicas, settled_by)
    try:
        count = search.first(at_least, _COARSE)
    except Interrupted:
        return search.interrupted()
    if count is None:
        return search.undecided()
    run = search.runs[count]
    decided = run.judgement.meets is True
    return Fewest(run, search.ordered(), decided, coarse=True)


def _fewest(search: "_Search", at_least: int) -> Fewest:
    count = search.first(at_least)
    count = None if count is None else search.settled_above(count)
    if count is None:
        return search.undecided()
    lowest = max(1, math.floor(count * (1 - _BAND_BELOW)) - 1)
    missed = 0  # in a row
    for fewer in range(count - 1, lowest - 1, -1):
        if search.meets(fewer) and search.holds_above(fewer):
            count = fewer
        missed = missed + 1 if search.misses(fewer) else 0
        if missed == _ENOUGH:
            break
    while count > 1 and search.meets(count - 1) and search.holds_above(count - 1):
        count -= 1
    run = search.runs[count]
    decided = run.judgement.meets is True
    return Fewest(run, search.ordered(), decided, search.close_below(count))


class _Search:
    """Counts simulated so far."""

    def __init__(
        self, run_with: Callable[[int], Run], max_replicas: int, settled_by: int | None
    ) -> None:
        self.runs: dict[int, Run] = {}
        self._full: dict[int, HostFullError] = {}  # counts that swap out too much
        self._run_with = run_with
        self._max_replicas = max_replicas
        self._settled_by = settled_by or max_replicas

    def meets(self, count: int) -> bool:
        """Return whether it is decided that a count meets the SLO, or has no miss."""
        if count not in self.runs and count not in self._full:
            try:
                self.runs[count] = self._run_with(count)
            except HostFullError as error:
                self._full[count] = error
        if count not in self.runs:
            return False
        judgement = self.runs[count].judgement
        return judgement.meets is True or judgement.no_miss

    def misses(self, count: int) -> bool:
        """Return whether it is decided that a simulated count misses the SLO."""
        return count in self._full or self.runs[count].judgement.meets is False

    def first(self, at_least: int, precision: float = 0.0) -> int | None:
        """Return a count that meets the SLO, above one that does not; or None.

        ``precision`` is the share of the count by which the two may differ.
        """
        low, count = at_least - 1, at_least
        while not self.meets(count):
            if count >= self._max_replicas or self._changes_nothing(low, count):
                return None
            if count >= self._settled_by and self._is_unsettled(count):
                return None
            low = count
            # The first miss says how far off the bound is: go near it, then stride.
            growth = 1.25 if len(self.runs) + len(self._full) == 1 else _GROWTH
            count = min(
                self._max_replicas, max(count + 1, int(np.ceil(count * growth)))
            )
        high = count
        while high - low > max(1, precision * high):
            middle = (low + high) // 2
            if self.meets(middle):
                high = middle
            else:
                low = middle
        return high

    def holds_above(self, count: int) -> bool:
        """Return whether the counts up to 5 % above attain the target too.

        One of them may be too close to call while its attainment is at the target. Of
        many, those simulated already are asked, and others at equal distances.
        """
        if self.runs[count].judgement.no_miss:
            return True
        reach = min(self._max_replicas, count + math.ceil(BAND_ABOVE * count))
        stride = math.ceil((reach - count) / _ENOUGH)
        return all(
            self.meets(more)
            or (
                more not in self._full
                and self.runs[more].judgement.meets is None
                and not self.runs[more].judgement.missing
            )
            for more in range(count + 1, reach + 1)
            if more % stride == 0 or more in self.runs
        )

    def settled_above(self, first: int) -> int | None:
        """Return the next count that meets the SLO with those above it, or None.

        None also where more replicas change nothing, or twice as many are not enough.
        """
        for count in range(
            first, min(self._max_replicas, 2 * first + _LOOKED_ABOVE) + 1
        ):
            if self.meets(count) and self.holds_above(count):
                return count
            if self._changes_nothing(count - 1, count):
                break
        return None

    def ordered(self) -> tuple[Run, ...]:
        """Return all runs by ascending count."""
        return tuple(self.runs[count] for count in sorted(self.runs))

    def close_below(self, count: int) -> tuple[int, ...]:
        """Return the counts below that are too close to call, ascending."""
        return tuple(
            fewer
            for fewer in sorted(self.runs)
            if fewer < count and self.runs[fewer].judgement.meets is None
        )

    def interrupted(self) -> Fewest:
        """Return the fewest replicas decided to meet the SLO until now."""
        passing = [run for run in self.ordered() if run.judgement.meets]
        first = passing[0] if passing else None
        return Fewest(first, self.ordered(), interrupted=True)

    def undecided(self) -> Fewest:
        """Return the fewest replicas at the target, where none is decided.

        Those that meet the SLO alone, while larger counts miss it, come first.
        """
        if self._full and not self.runs:
            raise next(iter(self._full.values()))
        close = self.close_below(self._max_replicas + 1)
        for run in self.ordered():
            if run.judgement.meets:
                return Fewest(run, self.ordered(), False, close)
        for count in close:
            if not self.runs[count].judgement.missing and not self._is_unsettled(count):
                below = tuple(fewer for fewer in close if fewer < count)
                return Fewest(self.runs[count], self.ordered(), False, below)
        unsettled = [run for run in self.ordered() if _is_unsettled(run)]
        last = unsettled[-1] if unsettled else None
        return Fewest(last, self.ordered(), False, close if last is None else ())

    def with_one_fewer(self, fewest: Fewest) -> Fewest:
        """Return the answer with the run of one replica fewer, which proves it."""
        if fewest.run is None or fewest.run.replica_count == 1:
            return fewest
        self.meets(fewest.run.replica_count - 1)
        return replace(fewest, runs=self.ordered())

    def _is_unsettled(self, count: int) -> bool:
        return count in self.runs and _is_unsettled(self.runs[count])

    def _changes_nothing(self, fewer: int, more: int) -> bool:
        """Return whether added replicas did not change a single iteration."""
        if fewer not in self.runs or more not in self.runs:
            return False
        # The first sample is the same for all counts; the others depend on it.
        few, many = self.runs[fewer].simulation, self.runs[more].simulation
        return (few.iteration_count, few.busy_s) == (many.iteration_count, many.busy_s)


def _is_unsettled(run: Run) -> bool:
    """Return whether only its settling keeps a run from being judged."""
    judgement = run.judgement
    return judgement.meets is None and judgement.steadiness.settled is False


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
