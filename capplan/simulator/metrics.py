"""Stability of a simulated fleet, and intervals of a simulated share."""

import numpy as np
from scipy import stats

from capplan.simulator.times import Simulation

_CONFIDENCE = 0.95
_BATCHES = 30
_POINTS = 400
_DRIFT_SHARE = 0.01
_CHANCE = 4.0


def is_stable(simulation: Simulation, counted_from_s: float) -> bool:
    """Return whether the backlog does not grow from the warm-up to the last arrival.

    Outstanding requests in the last quarter of that time are held against those
    in the second. The backlog grows when there are more by 1 % of the requests
    that arrived in between, as in a fleet with 1 % too little capacity, and by
    four times the square root of their number, which chance alone does not do.
    """
    moments_s, arrived, finished = _counts(simulation)
    keep = moments_s >= counted_from_s
    if int(keep.sum()) < 8:
        return True
    outstanding = (arrived - finished)[keep]
    quarters_s = np.array_split(moments_s[keep], 4)
    level = [part.mean() for part in np.array_split(outstanding, 4)]
    before_s, after_s = float(quarters_s[1].mean()), float(quarters_s[3].mean())
    between = _arrived_before(simulation, after_s) - _arrived_before(
        simulation, before_s
    )
    chance = _CHANCE * np.sqrt(max(level[1], 1.0))
    return bool(level[3] - level[1] <= _DRIFT_SHARE * between + chance)


def _counts(simulation: Simulation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return moments [s], and the requests arrived and finished by each."""
    if simulation.windows is not None:
        used = max(len(simulation.series.start_s), 1)
        columns = simulation.windows.columns
        arrived, finished = (
            np.concatenate([[0.0], np.cumsum(columns[name])])[:used]
            for name in ("arrived", "finished")
        )
        return simulation.windows.edges_s[:used], arrived, finished
    times = simulation.table
    moments_s = np.linspace(times.arrival_s[0], times.arrival_s[-1], _POINTS)
    arrived = np.searchsorted(times.arrival_s, moments_s, side="right")
    finished = np.searchsorted(np.sort(times.finish_s), moments_s, side="right")
    return moments_s, arrived.astype(np.float64), finished.astype(np.float64)


def _arrived_before(simulation: Simulation, moment_s: float) -> float:
    if simulation.windows is None:
        return float(np.searchsorted(simulation.table.arrival_s, moment_s))
    edges_s, arrived, _ = _counts(simulation)
    return float(np.interp(moment_s, edges_s, arrived))


def share_interval(hits: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of a share from hits in order of time.

    Neighbouring requests share their fate, so the variance comes from the means
    of batches (Law & Kelton, "Simulation Modeling and Analysis", section 9.5.3);
    it is never taken smaller than that of independent requests, for which the
    interval is Wilson's.
    """
    variance = 0.0
    if len(hits) >= 2 * _BATCHES:
        means = np.array([part.mean() for part in np.array_split(hits, _BATCHES)])
        variance = float(means.var(ddof=1)) / _BATCHES
    return _interval(float(hits.mean()), len(hits), variance)


def windowed_interval(hits: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of a share from hits and counts by window of time.

    Neighbouring windows are joined into batches of about as many requests; the
    variance is that of a ratio, for which batches need not be alike (Cochran,
    "Sampling Techniques", section 2.11).
    """
    n = int(counts.sum())
    share = float(hits.sum() / n)
    middle = np.cumsum(counts) - counts / 2
    batch = np.minimum((middle * _BATCHES / n).astype(np.int64), _BATCHES - 1)
    size = np.bincount(batch, counts, _BATCHES)
    excess = np.bincount(batch, hits, _BATCHES) - share * size
    used = int((size > 0).sum())
    variance = 0.0
    if n >= 2 * _BATCHES and used > 1:
        variance = used / (used - 1) * float((excess**2).sum()) / n**2
    return _interval(share, n, variance)


def _interval(share: float, n: int, variance: float) -> tuple[float, float]:
    """Return Wilson's interval for as many requests as have such a variance."""
    independent = max(share * (1 - share) / n, 1e-300)
    inflation = max(1.0, variance / independent)
    effective = n / inflation if share * (1 - share) > 0 else n
    z = stats.norm.ppf(0.5 + _CONFIDENCE / 2)
    center = (share + z * z / (2 * effective)) / (1 + z * z / effective)
    half = (
        z
        / (1 + z * z / effective)
        * np.sqrt(share * (1 - share) / effective + z * z / (4 * effective**2))
    )
    return float(max(0.0, center - half)), float(min(1.0, center + half))


def requests_needed(attainment_target: float) -> int:
    """Return how many requests show a share as high as the target.

    With fewer than about 10 requests expected to miss, one unlucky moment
    decides.
    """
    if attainment_target >= 1:
        return 1
    return int(np.ceil(10 / (1 - attainment_target)))
