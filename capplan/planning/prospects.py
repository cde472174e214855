"""Configurations before they are simulated: their order, and which cannot win."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from capplan.bounds.lower_bound import Bound
from capplan.deployment.configuration import Configuration
from capplan.planning.result import Candidate

MOST_REPLICAS = 4096
"""Replica count at which the search gives up."""


@dataclass(frozen=True, eq=False)
class Prospect:
    """A configuration with its lower bound, before it is simulated."""

    configuration: Configuration
    bound: Bound
    sample: int = 0  # whose bound it is
    held: int = 0  # replicas below which more arrives than is completed; 0: unknown
    most: int = MOST_REPLICAS  # replicas above which it is of no use

    def __str__(self) -> str:
        return str(self.configuration)

    @property
    def at_least(self) -> int:
        """Fewest replicas by the lower bound, and with a utilisation below 1."""
        return max(1, self.bound.replica_count, self.held)

    @property
    def gpu_count(self) -> int:
        """GPUs of these replicas."""
        return self.at_least * self.configuration.tp

    @property
    def usd_per_h(self) -> float | None:
        """Price of these GPUs; None without a price. [$/h]"""
        return self.configuration.usd_per_h(self.at_least)


def cheapest_first(prospect: Prospect) -> tuple[float, int, str, int]:
    """Order by the least possible cost, then by the fewest possible GPUs."""
    configuration = prospect.configuration
    return (
        or_inf(prospect.usd_per_h),
        prospect.gpu_count,
        configuration.gpu,
        configuration.tp,
    )


def most_to_win(prospect: Prospect, done: list[Candidate]) -> int:
    """Return the most replicas with which a configuration is the best of all."""
    configuration = prospect.configuration
    rivals = _rivals(prospect, done)
    if configuration.is_estimated and any(not row.estimated for row in rivals):
        return 0
    best = min(
        ((or_inf(row.usd_per_h), row.gpu_count or 0, row.tp) for row in rivals),
        default=None,
    )
    if best is None:
        return MOST_REPLICAS

    def place(count: int) -> tuple[float, int, int]:
        usd = configuration.usd_per_h(count)
        return or_inf(usd), count * configuration.tp, configuration.tp

    return bisect_left(range(MOST_REPLICAS + 1), best, key=place) - 1


def most_to_compete(prospect: Prospect, done: list[Candidate]) -> int:
    """Return the most replicas with which none of its rivals is as good.

    That cost less than the cheapest, or are fewer GPUs than the smallest.
    """
    rivals = _rivals(prospect, done)
    if not rivals:
        return MOST_REPLICAS
    configuration = prospect.configuration
    fewest = min(row.gpu_count or 0 for row in rivals)
    cheapest = min(or_inf(row.usd_per_h) for row in rivals)

    def usd(count: int) -> float:
        return or_inf(configuration.usd_per_h(count))

    by_usd = bisect_left(range(MOST_REPLICAS + 1), cheapest, key=usd) - 1
    return max(by_usd, (fewest - 1) // configuration.tp)


def feasible_of(done: list[Candidate]) -> list[Candidate]:
    """Return the candidates that meet the SLO."""
    return [row for row in done if row.status == "feasible"]


def without_doubts(feasible: list[Candidate]) -> list[Candidate]:
    """Return the candidates of which the best is: those without doubts, if any."""
    return [row for row in feasible if not row.estimated] or feasible


def _rivals(prospect: Prospect, done: list[Candidate]) -> list[Candidate]:
    """Return the feasible candidates; one in doubt is none to one that is not."""
    guessed = prospect.configuration.is_estimated
    return [row for row in feasible_of(done) if guessed or not row.estimated]


def or_inf(usd: float | None) -> float:
    """Return a price, infinite where there is none."""
    return np.inf if usd is None else usd


def cannot_win(prospect: Prospect, done: list[Candidate]) -> str | None:
    """Return why a configuration can be neither cheapest nor smallest, or None."""
    rivals = _rivals(prospect, done)
    smaller = any(
        candidate.gpu_count is not None and candidate.gpu_count <= prospect.gpu_count
        for candidate in rivals
    )
    usd = prospect.usd_per_h
    cheaper = [
        candidate
        for candidate in rivals
        if usd is None
        or (candidate.usd_per_h is not None and candidate.usd_per_h <= usd)
    ]
    if not smaller or not cheaper:
        if prospect.most < prospect.at_least:
            return f"needs at least {prospect.gpu_count} GPUs; the best costs less"
        return None
    other = cheaper[0]
    price = "" if usd is None else f" and ${usd:,.2f}/h"
    by = "its lower bound"
    if prospect.held > prospect.bound.replica_count:
        by = "its utilisation, which is then below 1"
    return (
        f"needs at least {prospect.gpu_count} GPUs{price} by {by}; "
        f"{other.gpu} × TP {other.tp} does with {other.gpu_count}"
    )
