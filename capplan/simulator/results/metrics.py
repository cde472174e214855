"""Intervals of a simulated share, and how many requests show one."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from capplan.errors import InputError

CONFIDENCE = 0.95
"""Confidence of the intervals that are reported."""

_BATCHES = 30
_MOST_NEEDED = 20_000_000


def share_interval(
    hits: np.ndarray, counts: np.ndarray, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the interval of a share from hits and counts by block or by sample.

    Requests of a block share their fate, so the variance is that between blocks, in
    order of time: of a ratio, for which blocks need not be alike (Cochran, "Sampling
    Techniques", section 2.11), after neighbours were joined into at most 30 (Law &
    Kelton, "Simulation Modeling and Analysis", section 9.5.3). It is never taken
    smaller than that of independent requests, for which the interval is Wilson's.
    """
    n = float(counts.sum())
    share = float(hits.sum() / n)
    middle = np.cumsum(counts) - counts / 2
    batch = np.minimum((middle * _BATCHES / n).astype(np.int64), _BATCHES - 1)
    size = np.bincount(batch, counts, _BATCHES)
    excess = np.bincount(batch, hits, _BATCHES) - share * size
    used = int((size > 0).sum())
    independent = max(share * (1 - share) / n, 1e-300)
    z = standard_errors(confidence)
    inflation = 1.0
    if used > 1:
        variance = used / (used - 1) * float((excess**2).sum()) / n**2
        t = standard_errors(confidence, used - 1)
        inflation = max(1.0, variance * t * t / (independent * z * z))
    effective = n / inflation if share * (1 - share) > 0 else n
    center = (share + z * z / (2 * effective)) / (1 + z * z / effective)
    half = (
        z
        / (1 + z * z / effective)
        * np.sqrt(share * (1 - share) / effective + z * z / (4 * effective**2))
    )
    return float(max(0.0, center - half)), float(min(1.0, center + half))


@cache
def standard_errors(confidence: float, freedom: int | None = None) -> float:
    """Return within how many standard errors of 0 a normal variate lies so surely.

    With degrees of freedom one of Student's t, whose probability has a closed form
    (Abramowitz & Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4).
    """
    if freedom is None:
        root_2 = math.sqrt(2)
        return _solved(lambda z: math.erf(z / root_2), confidence, 40.0)

    def within(angle: float) -> float:
        odd, cosine = freedom % 2, math.cos(angle)
        term, total = cosine if odd else 1.0, 0.0
        for k in range(odd, freedom - 1, 2):
            term *= (k - 1) / k * cosine**2 if k > odd else 1
            total += term
        total *= math.sin(angle)
        return (angle + total) * 2 / math.pi if odd else total

    angle = _solved(within, confidence, math.pi / 2)
    return math.sqrt(freedom) * math.tan(angle)


def _solved(rising: Callable[[float], float], value: float, high: float) -> float:
    """Return where a function of 0 to ``high`` reaches a value, by bisection."""
    low = 0.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return high


def requests_needed(attainment_target: float) -> int:
    """Return how many requests show a share as high as the target.

    With fewer than about 10 expected to miss, one unlucky moment decides.
    """
    if attainment_target >= 1:
        return 1
    needed = int(np.ceil(10 / (1 - attainment_target)))
    if needed > _MOST_NEEDED:
        raise InputError(
            f"attainment {attainment_target}: takes {needed:,} requests to judge; "
            "expected at most 0.999999, or 1 for every request"
        )
    return needed


def length_biased_mean(stays_s: np.ndarray) -> float:
    """Return the mean stay of the requests that a moment finds in the system. [s]

    Long ones are found more often: each is weighted by its stay, shape (n,).
    """
    return float((stays_s**2).sum() / max(float(stays_s.sum()), 1e-12))


def autocorrelation_time(series: np.ndarray) -> float:
    """Return how many points of an even series one independent point is worth.

    The integrated autocorrelation time 1 + 2 Σ ρ_k, summed up to five times itself
    (Sokal, "Monte Carlo Methods in Statistical Mechanics", section 3). Shape (n,).
    """
    n = len(series)
    centered = series - series.mean()
    spectrum = np.abs(np.fft.rfft(centered, 2 * n)) ** 2
    covariance = np.fft.irfft(spectrum)[:n]
    if not covariance[0] > 0:
        return 1.0
    times = 2 * np.cumsum(covariance / covariance[0]) - 1
    within = np.flatnonzero(np.arange(n) >= 5 * times)
    return float(max(1.0, times[within[0] if len(within) else -1]))
