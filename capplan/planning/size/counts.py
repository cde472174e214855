"""Counts of replicas, simulated once each, and what they show."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from capplan.deployment.pools import Counts, one_fewer
from capplan.errors import HostFullError
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.run import Run

GROWTH = 1.25, 1.5
"""Factors by which counts grow that miss the SLO: the first, which says how far off the
bound is, and the others."""
BAND_ABOVE = 0.05
"""Share of a count above which the larger counts must meet the SLO as well."""
ENOUGH = 5
"""Counts in a row that miss the SLO, or save nothing, after which no more are tried."""

Price = tuple[float, int]
"""$/h, infinite without a price, and GPUs."""
RunWith = Callable[..., Run]
"""Simulates and judges counts."""


@dataclass(frozen=True, eq=False)
class Fewest:
    """The cheapest counts that meet the SLO, and those simulated."""

    # the cheapest decided to meet the SLO, as somewhat larger ones do; where none is
    # decided, the cheapest that meets it alone, whose attainment is at the target, or
    # of one pool the most that did not settle; None where no count helps
    run: Run | None
    runs: tuple[Run, ...] = ()  # by ascending price
    decided: bool = False  # by the samples, and by somewhat larger counts
    # cheaper counts that the samples do not tell from the target
    close: tuple[Counts, ...] = ()
    coarse: bool = False  # found to 10 %, and decided in this sense
    interrupted: bool = False  # then the run is the cheapest decided until then


class Search:
    """Counts simulated so far."""

    def __init__(
        self, run_with: RunWith, price_of: Callable[[Counts], Any] | None = None
    ) -> None:
        self.runs: dict[Counts, Run] = {}
        self.full: dict[Counts, HostFullError] = {}  # counts that swap out too much
        self._run_with = run_with
        self._price_of = price_of or (lambda counts: counts)

    def answer(self, searched: Callable[[], Fewest]) -> Fewest:
        """Return what a search finds, or the cheapest decided until it was stopped."""
        try:
            return searched()
        except Interrupted:
            runs = self.ordered()
            passing = [run for run in runs if run.judgement.meets]
            return Fewest(passing[0] if passing else None, runs, interrupted=True)

    def prove(self, counts: Counts | None) -> None:
        """Simulate one replica fewer of each pool, which proves counts."""
        for fewer in [] if counts is None else one_fewer(counts):
            self.meets(fewer)

    def found(
        self, counts: Counts | None, decided: bool, close: tuple[Counts, ...]
    ) -> Fewest:
        """Return counts as an answer."""
        run = None if counts is None else self.runs[counts]
        return Fewest(run, self.ordered(), decided, close)

    def meets(self, counts: Counts) -> bool:
        """Return whether it is decided that counts meet the SLO, or have no miss."""
        if counts not in self.runs and counts not in self.full:
            try:
                self.runs[counts] = self._run_with(counts)
            except HostFullError as error:
                self.full[counts] = error
        return counts in self.runs and self.runs[counts].judgement.holds

    def misses(self, counts: Counts) -> bool:
        """Return whether it is decided that simulated counts miss the SLO."""
        return counts in self.full or self.runs[counts].judgement.meets is False

    def is_close(self, counts: Counts) -> bool:
        """Return whether samples of counts attain the target and decide nothing."""
        if counts not in self.runs:
            return False
        judgement = self.runs[counts].judgement
        return judgement.meets is None and not judgement.missing

    def is_at_target(self, counts: Counts) -> bool:
        """Return whether they are close and have settled."""
        return self.is_close(counts) and not self.is_unsettled(counts)

    def is_unsettled(self, counts: Counts) -> bool:
        """Return whether only its settling keeps a run from being judged."""
        if counts not in self.runs:
            return False
        judgement = self.runs[counts].judgement
        return judgement.meets is None and judgement.steadiness.settled is False

    def helps_no_more(self, fewer: Counts | None, more: Counts) -> bool:
        """Return whether added replicas did not change a single iteration."""
        if fewer not in self.runs or more not in self.runs:
            return False
        # The first sample is the same for all counts; the others depend on it.
        few, many = self.runs[fewer].simulation, self.runs[more].simulation
        return (few.iteration_count, few.busy_s) == (many.iteration_count, many.busy_s)

    def first_of(
        self, growing: Iterable[Counts]
    ) -> tuple[Counts | None, Counts] | None:
        """Return the first counts that meet the SLO, and those before; or None."""
        for before, counts in pairwise(chain((None,), growing)):
            assert counts is not None
            if self.meets(counts):
                return before, counts
            if self.is_hopeless(before, counts):
                break
        return None

    def is_hopeless(self, before: Counts | None, counts: Counts) -> bool:
        """Return whether more than counts, which miss the SLO, are of no use."""
        return self.helps_no_more(before, counts)

    def known(self) -> list[Counts]:
        """Return the counts simulated, the cheapest first."""
        return sorted(self.runs, key=lambda counts: (self._price_of(counts), counts))

    def ordered(self) -> tuple[Run, ...]:
        """Return their runs."""
        return tuple(self.runs[counts] for counts in self.known())


def attained(run: Run) -> float:
    """Return the share of requests that meet the SLO; 0 where none counts."""
    attainment = run.judgement.attainment
    return 0.0 if attainment is None else attainment.share
