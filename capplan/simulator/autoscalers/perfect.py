"""What is needed and no more: the arrivals to come over what a replica serves.

⌈λ/rate⌉ replicas for the arrivals of each period, ordered a cold start and a period
ahead, so that they are ready when those arrive, and kept where they are needed again
within that time. It knows what no autoscaler knows: the arrivals to come. Mean and peak
of its count say what there is to save.
"""

import math
from collections.abc import Mapping

import numpy as np

from capplan.deployment.policy import Rules
from capplan.simulator.autoscalers.settings import (
    TINY,
    common,
    rate,
    rate_per_replica_per_s,
    within,
)
from capplan.simulator.autoscalers.view import Decide, Known, View

RULES = Rules({**common(60.0), **rate()})


def needed(
    arrival_s: np.ndarray, period_s: float, per_replica_per_s: float
) -> np.ndarray:
    """Return the replicas that the arrivals of each period need, from time 0 on."""
    periods = np.floor(np.asarray(arrival_s, np.float64) / period_s).astype(np.int64)
    per_s = np.bincount(periods) / period_s
    return np.ceil(per_s / per_replica_per_s - TINY).astype(np.int64)


def highest_ahead(counts: np.ndarray, periods: int) -> np.ndarray:
    """Return the highest count of each period and those after it, so many in all."""
    padded = np.concatenate([counts, np.zeros(periods - 1, counts.dtype)])
    return np.lib.stride_tricks.sliding_window_view(padded, periods).max(axis=1)


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider that knows the arrivals."""
    per_replica_per_s = rate_per_replica_per_s("perfect", settings, known)
    period_s = settings["period"]
    periods = 1 + math.ceil(known.cold_start_s / period_s - TINY)
    counts: list[int] = []
    if len(known.arrival_s):
        need = needed(known.arrival_s, period_s, per_replica_per_s)
        counts = highest_ahead(need, periods).tolist()

    def decide(view: View) -> int:
        tick = round(view.now_s / period_s)
        return within(counts[tick] if tick < len(counts) else 0, settings)

    return decide
