"""Configurations before they are simulated: their order, and which cannot win."""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from capplan.bounds.lower_bound import Bound
from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Pool
from capplan.planning.evaluate.candidate import Candidate, Degrees, degrees
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.money.cost import usd_per_h

CENTS = 6
"""Digits of $/h by which prices differ: sums over one and two pools round apart."""
MOST_REPLICAS = 4096
"""Replica count at which the search gives up."""
_LAST = 10**9
"""More $/h and more GPUs than any fleet has."""


NOT_BOUNDED = Bound(1, 0.0, 0.0, 0.0, 0, "none", "not computed: it cannot win")
"""Bound of a configuration before one is computed."""


@dataclass(frozen=True, eq=False)
class Prospect:
    """A configuration with its lower bound, before it is simulated."""

    configuration: Configuration
    bound: Bound
    sample: int = 0  # whose bound it is
    held: int = 0  # replicas below which more arrives than is completed; 0: unknown
    max_replicas: int = MOST_REPLICAS  # replicas above which it is of no use

    def __str__(self) -> str:
        return str(self.configuration)

    @property
    def at_least(self) -> int:
        """Fewest replicas by the lower bound, and with a utilisation below 1."""
        return max(1, self.bound.replica_count, self.held)

    @property
    def pool(self) -> Pool:
        """These replicas."""
        return Pool(self.configuration, self.at_least)

    def candidate(self, status: str) -> Candidate:
        """Return its candidate, with the bound and without a run."""
        candidate = Candidate.of(self.configuration, status)
        candidate = replace(candidate, held=self.held)
        return replace(candidate, bound=self.bound, bound_sample=self.sample)


def cheapest_first(prospect: Prospect) -> tuple[float, int, str, Degrees]:
    """Order by the least possible cost, then by the fewest possible GPUs."""
    configuration = prospect.configuration
    return (
        *price_of_pools(prospect.pool),
        configuration.gpu,
        degrees(configuration.layout),
    )


def most_to_win(prospect: Prospect, done: list[Candidate]) -> int:
    """Return the most replicas with which a configuration is the best of all."""
    configuration = prospect.configuration
    rivals = _rivals(prospect, done)
    if configuration.is_estimated and any(not row.is_in_doubt for row in rivals):
        return 0
    if not rivals:
        return MOST_REPLICAS
    best = min((*price_of(row), row.place) for row in rivals)
    return _most_below(
        configuration,
        lambda pool: (*price_of_pools(pool), degrees(configuration.layout)),
        best,
    )


def most_to_compete(prospect: Prospect, done: list[Candidate]) -> int:
    """Return the most replicas with which none of its rivals is as good.

    That cost less than the cheapest, or are fewer GPUs than the smallest.
    """
    rivals = _rivals(prospect, done)
    return most_against(prospect.configuration, rivals) if rivals else MOST_REPLICAS


def most_against(configuration: Configuration, rivals: list[Candidate]) -> int:
    """Return the most replicas that cost less, or are fewer GPUs, than all rivals."""
    cheapest, fewest = map(min, zip(*map(price_of, rivals), strict=True))
    by_usd = _most_below(configuration, lambda pool: price_of_pools(pool)[0], cheapest)
    return max(by_usd, min(MOST_REPLICAS, (fewest - 1) // configuration.gpus))


def most_for_less(inputs: PlanInputs, prospect: Prospect) -> int:
    """Return the most replicas that cost less than what a plan is to beat."""
    if inputs.to_beat[0] == math.inf:
        return MOST_REPLICAS
    return _most_below(prospect.configuration, price_of_pools, inputs.to_beat)


def _most_below(
    configuration: Configuration, place: Callable[[Pool], Any], limit: Any
) -> int:
    """Return the most replicas that come before a limit; more never come earlier."""
    counts = range(1, MOST_REPLICAS + 1)
    return bisect_left(
        counts, limit, key=lambda count: place(Pool(configuration, count))
    )


def feasible_of(done: list[Candidate]) -> list[Candidate]:
    """Return the candidates that meet the SLO."""
    return [row for row in done if row.status == "feasible"]


def without_doubts(feasible: list[Candidate]) -> list[Candidate]:
    """Return the candidates of which the best is: those without doubts, if any."""
    return [row for row in feasible if not row.is_in_doubt] or feasible


def _rivals(prospect: Prospect, done: list[Candidate]) -> list[Candidate]:
    """Return the feasible candidates; one in doubt is none to one that is not."""
    guessed = prospect.configuration.is_estimated
    return [row for row in feasible_of(done) if guessed or not row.is_in_doubt]


def price_of(candidate: Candidate) -> tuple[float, int]:
    """Return $/h, infinite without a price, and GPUs of a feasible candidate.

    Where its latency is in doubt, of the fleet that suffices for nine of ten engines;
    where none does, it comes after all others.
    """
    if candidate.cautious is not None:
        return price_of_pools(*candidate.cautious.pools)
    usd = math.inf if candidate.cost is None else candidate.cost.usd_per_h
    last = _LAST if candidate.cautious_fails else 0
    return round(last + usd, CENTS), last + (candidate.gpu_count or 0)


def price_of_pools(*pools: Pool) -> tuple[float, int]:
    """Return $/h, infinite without a price, and GPUs of pools."""
    usd, gpu_count = usd_per_h(pools), sum(pool.gpu_count for pool in pools)
    return math.inf if usd is None else round(usd, CENTS), gpu_count


def cannot_win(prospect: Prospect, done: list[Candidate]) -> str | None:
    """Return why a configuration can be neither cheapest nor smallest, or None."""
    rivals = _rivals(prospect, done)
    usd, gpu_count = price_of_pools(prospect.pool)
    smaller = any(price_of(row)[1] <= gpu_count for row in rivals)
    cheaper = [row for row in rivals if price_of(row)[0] <= usd]
    if not smaller or not cheaper:
        if prospect.max_replicas < prospect.at_least:
            return f"needs at least {gpu_count:,} GPUs; the best costs less"
        return None
    other = cheaper[0]
    price = "" if math.isinf(usd) else f", ${usd:,.2f} an hour"
    return (
        f"needs at least {gpu_count:,} GPUs{price}; {other} needs {other.gpu_count:,}"
    )
