"""Replicas that arrival rates need: as simulated, by the demand law in between."""

from dataclasses import dataclass

import numpy as np

from capplan.errors import InputError
from capplan.placement.demand_law import DemandLaw, fit_demand_law

SIMULATED, LAW, ABOVE, EXTRAPOLATED = "simulated", "law", "at most", "extrapolated"
"""How a count is known: at a simulated rate, by the law or a line between two, as that
of the next higher rate simulated, or by the law beyond all of them."""
_TINY = 1e-9


@dataclass(frozen=True, eq=False)
class ReplicasByRate:
    """Replicas of a configuration at rates that were simulated, and between them."""

    rates_per_s: np.ndarray  # simulated, ascending, shape (points,) [requests/s]
    counts: np.ndarray  # never falling, shape (points,), int64
    law: DemandLaw | None
    no_law: str  # why there is none; empty where there is one

    @classmethod
    def of(cls, rates_per_s: np.ndarray, counts: np.ndarray) -> "ReplicasByRate":
        """Return the counts of simulated rates, with the law through them."""
        rates = np.asarray(rates_per_s, np.float64)
        rising = np.maximum.accumulate(np.asarray(counts, np.int64))
        try:
            law, no_law = fit_demand_law(rates, rising.astype(np.float64)), ""
        except InputError as error:
            law, no_law = None, str(error)
        return cls(rates, rising, law, no_law)

    def replicas(self, rate_per_s: np.ndarray) -> np.ndarray:
        """Return the replicas at rates, shape (n,), int64; at least 1.

        Between two simulated rates, the law's within their two counts; where it does
        not hold, those of a straight line between them. Below all, the count of the
        lowest, which is enough. Above all, by the law; in proportion where its slope
        may be none.
        """
        rate = np.asarray(rate_per_s, np.float64)
        points, counts = self.rates_per_s, self.counts
        line = np.interp(rate, points, counts)
        law = self.law
        if law is not None:
            by_law = law.workers_per_rate * rate + law.workers_fixed
            line = np.where(rate >= law.linear_from_per_s, by_law, line)
        above = np.searchsorted(points, rate * (1 - _TINY))
        low = counts[np.maximum(above - 1, 0)]
        high = counts[np.minimum(above, len(points) - 1)]
        found = np.clip(np.ceil(line - _TINY), low, high)
        beyond = rate > points[-1] * (1 + _TINY)
        if law is None or law.workers_per_rate_interval[0] <= 0:
            line = counts[-1] * rate / points[-1]  # a flat law tells nothing of more
        found = np.where(beyond, np.maximum(np.ceil(line - _TINY), counts[-1]), found)
        # Simulated rates are rounded, so that a peak may be a hair above its own.
        nearest = np.abs(rate[..., np.newaxis] - points).argmin(axis=-1)
        found = np.where(np.isclose(rate, points[nearest]), counts[nearest], found)
        return np.maximum(found, 1).astype(np.int64)

    def known_by(self, rate_per_s: float) -> str:
        """Return how the count at a rate is known."""
        points = self.rates_per_s
        if np.isclose(points, rate_per_s).any():
            return SIMULATED
        if rate_per_s > points[-1]:
            return EXTRAPOLATED
        return ABOVE if rate_per_s < points[0] else LAW
