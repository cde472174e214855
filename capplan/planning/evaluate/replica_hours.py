"""Replica-hours of a fleet whose replicas come and go: paid, ready and busy."""

from dataclasses import dataclass

import numpy as np

from capplan.simulator.results.times import Simulation
from capplan.workload.days import DAY_S

_HOUR_S = 3600.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Hours:
    """Replica-hours, from the first arrival to the last token."""

    paid_h: float  # from a replica's order until it is gone [h]
    ready_h: float  # from its first request on until it is gone [h]
    busy_h: float  # in which an iteration ran [h]
    mean_replicas: float  # paid
    peak_replicas: int  # paid at once, at most
    actions_per_day: float  # replicas ordered and closed, after the first arrival


@dataclass(frozen=True, eq=False, kw_only=True)
class ReplicaHours(Hours):
    """What replicas were there, where they come and go."""

    # (replicas, share of the time that as many are paid), ascending
    paid_shares: tuple[tuple[int, float], ...]
    ordered: int  # replicas after the first arrival
    closed: int  # orders that were taken back too, and replicas that died
    start_s: np.ndarray  # from when on there were as many, shape (moments,) [s]
    paid: np.ndarray  # replicas from then on, shape (moments,)
    ready: np.ndarray  # replicas that take requests, shape (moments,)


def replica_hours(simulation: Simulation, always_paid: int = 0) -> ReplicaHours:
    """Return the replica-hours of a simulation with lives of replicas.

    At least ``always_paid`` are paid, whether they are there or not.
    """
    lives = simulation.lives
    assert lives is not None
    first_s = float(simulation.table.arrival_s[0])
    end_s = first_s + simulation.totals.makespan_s
    at_s, paid = _counts(lives["ordered_s"], lives["gone_s"], first_s, end_s)
    ready_at_s, ready = _counts(lives["ready_s"], lives["closed_s"], first_s, end_s)
    start_s = np.unique(np.concatenate([at_s, ready_at_s]))
    lasts_s = max(end_s - first_s, 1e-9)
    paid = np.maximum(paid, always_paid)
    lasting_s = np.diff(np.append(at_s, end_s))
    paid_s = float((paid * lasting_s).sum())
    ordered = lives["ordered_s"] > first_s
    new = int((ordered & (lives["ordered_s"] < end_s)).sum())
    gone = int((np.minimum(lives["closed_s"], lives["gone_s"]) < end_s).sum())
    days = max(simulation.totals.makespan_s, 1e-9) / DAY_S
    return ReplicaHours(
        paid_h=paid_s / _HOUR_S,
        ready_h=_lasting_s(lives["ready_s"], lives["gone_s"], first_s, end_s) / _HOUR_S,
        busy_h=simulation.busy_s / _HOUR_S,
        mean_replicas=paid_s / lasts_s,
        peak_replicas=int(paid.max()),
        actions_per_day=(new + gone) / days,
        paid_shares=tuple(
            (int(count), float(lasting_s[paid == count].sum() / lasts_s))
            for count in np.unique(paid)
        ),
        ordered=new,
        closed=gone,
        start_s=start_s,
        paid=paid[np.searchsorted(at_s, start_s, side="right") - 1],
        ready=ready[np.searchsorted(ready_at_s, start_s, side="right") - 1],
    )


def _lasting_s(
    from_s: np.ndarray, until_s: np.ndarray, first_s: float, end_s: float
) -> float:
    """Return the sum of the times within a period. [s]"""
    lasting_s = np.clip(until_s, first_s, end_s) - np.clip(from_s, first_s, end_s)
    return float(np.maximum(lasting_s, 0.0).sum())


def _counts(
    from_s: np.ndarray, until_s: np.ndarray, first_s: float, end_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return moments, from the first on, and how many there are from each on. [s]"""
    real = (from_s < until_s) & (from_s < end_s)
    begins_s = np.clip(from_s[real], first_s, end_s)
    ends_s = np.clip(until_s[real], first_s, end_s)
    at_s = np.unique(np.concatenate([[first_s], begins_s, ends_s]))
    begun = np.searchsorted(np.sort(begins_s), at_s, side="right")
    ended = np.searchsorted(np.sort(ends_s), at_s, side="right")
    is_last = at_s == end_s  # there nobody is gone yet
    ended[is_last] = np.searchsorted(np.sort(ends_s), end_s)
    return at_s, begun - ended
