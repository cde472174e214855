"""Replicas that a planned LLM needs at each hour of its trace, estimated."""

import math

import numpy as np

from capplan.planning.demand_curve import DemandCurve

WINDOW_S = 600.0
"""The rate of an hour is that of its busiest window so long. [s]"""
_DAY = 24


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
    hours = len(rates) // _DAY * _DAY
    whole, rest = rates[:hours].copy(), rates[hours:]
    whole[: len(rest)] = np.maximum(whole[: len(rest)], rest)
    return whole


def replicas_by_hour(
    replica_count: int, utilisation: float | None, shares: np.ndarray
) -> np.ndarray:
    """Return the replicas of hours with these shares of the busiest rate, int64.

    The part of the replicas that the work keeps busy falls with the rate, the part that
    is there for chance with its square root. Two replicas or more never become one,
    which would leave no second failure domain. ``utilisation`` is that of the busiest
    hour; where it is not known (None), all falls with the root, which is more.

    Examples
    --------
    >>> replicas_by_hour(10, 0.6, np.array([1.0, 0.25, 0.0])).tolist()
    [10, 4, 2]

    References
    ----------
    Halfin and Whitt, "Heavy-traffic limits for queues with many exponential servers",
    Operations Research 29 (1981): a delay stays as likely with R + b √R servers for a
    load of R.
    """
    busy = 0.0 if utilisation is None else min(max(utilisation, 0.0), 1.0)
    needed = replica_count * (busy * shares + (1 - busy) * np.sqrt(shares))
    # A hair below: 10 x 0.3 replicas are 3 and not 4.
    whole = np.ceil(needed - 1e-9).astype(np.int64)
    return np.clip(whole, min(replica_count, 2), replica_count)


def busy_at_peak(utilisation: float | None, curve: DemandCurve | None) -> float | None:
    """Return the utilisation of a plan's replicas in the busiest window of its trace.

    That of a plan is at the mean rate. None where it is not known.

    Examples
    --------
    >>> curve = DemandCurve(np.array([4.0, 2.0]), np.array([1.5, 0.5]), 600.0, "")
    >>> busy_at_peak(0.1, curve), busy_at_peak(0.6, None)
    (0.4, 0.6)
    """
    if utilisation is None or curve is None:
        return utilisation
    mean_per_s = float(curve.mean_per_s.mean())
    return min(1.0, utilisation * curve.busiest_per_s / mean_per_s)


def repeated(shares: np.ndarray, hours: int) -> np.ndarray:
    """Return shares of hours, again and again until there are so many."""
    return np.tile(shares, math.ceil(hours / len(shares)))[:hours]
