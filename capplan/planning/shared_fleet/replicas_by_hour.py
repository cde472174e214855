"""Replicas that a planned LLM needs at each hour of its trace, estimated."""

import math

import numpy as np

from capplan.planning.load.demand_curve import HOURS_PER_DAY, DemandCurve, most_of_each

WINDOW_S = 600.0
"""The rate of an hour is that of its busiest window so long. [s]"""


def folded(curve: DemandCurve) -> np.ndarray:
    """Return the rate of each hour over the busiest, of whole days, shape (hours,).

    Hours of a day that is not whole are laid over the first day, the larger of two.

    Examples
    --------
    >>> curve = DemandCurve(np.arange(25.0) + 1, np.ones(25), 600.0, "a trace")
    >>> folded(curve)[:2] * 25, len(folded(curve))
    (array([25.,  2.]), 24)
    """
    rates = curve.peak_per_s / curve.busiest_per_s
    return most_of_each(rates, len(rates) // HOURS_PER_DAY * HOURS_PER_DAY)


def replicas_by_hour(replica_count: int, shares: np.ndarray) -> np.ndarray:
    """Return the replicas of hours with these shares of the busiest rate, int64.

    They lie on a line from one replica without requests to those of the plan at the
    busiest rate, rounded up. Two replicas or more never become one, which would leave
    no second failure domain.

    Examples
    --------
    >>> replicas_by_hour(9, np.array([1.0, 0.5, 0.3, 0.0])).tolist()
    [9, 5, 4, 2]

    Notes
    -----
    Fewer requests need replicas by a line (Aladdin, section 5.2), whose height without
    requests plans at several rates show. Here it is one replica: of 16 plans simulated
    at 10 to 75 % of a rate, 8 needed one fewer, 7 as many and 1 one more
    (docs/guides/fleet.md). ``capplan demand`` simulates.
    """
    needed = 1 + (replica_count - 1) * shares
    # A hair below: 1 + 10 x 0.3 replicas are 4 and not 5.
    whole = np.ceil(needed - 1e-9).astype(np.int64)
    return np.clip(whole, min(replica_count, 2), replica_count)


def repeated(shares: np.ndarray, hours: int) -> np.ndarray:
    """Return shares of hours, again and again until there are so many."""
    return np.tile(shares, math.ceil(hours / len(shares)))[:hours]
