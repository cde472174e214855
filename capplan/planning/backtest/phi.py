"""φ: the factor on the time of every iteration under which a fleet is as measured."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

MOST_SIMULATIONS = 8
_CLOSE = 0.005
"""Relative distance of a simulated factor within which another is interpolated."""
_LOW, _HIGH = 0.05, 20.0
_CORRELATED = 0.3
"""Lag-1 correlation from which on neighbours count as one."""
FEWEST_WINDOWS = 5
"""From which on neighbours that correlate are joined."""
CONFIDENCE = 0.95
_DRAWN = 0.01
"""What exports of simulations differ by at most, where requests are drawn."""


class Phi(NamedTuple):
    """A factor on iteration times with its interval."""

    value: float
    low: float
    high: float
    windows: int  # that it was found in


def factors(
    measured_s: np.ndarray, simulated_s: Callable[[float], np.ndarray]
) -> np.ndarray:
    """Return the factor of each window at which its simulated time is the measured one.

    ``simulated_s`` returns the times of all windows under a factor. At most eight
    are simulated; between two a time grows as a power of the factor. Exactly 1 where
    nothing differs.
    """
    first = simulated_s(1.0)
    if np.allclose(first, measured_s, rtol=1e-9, atol=0.0):
        return np.ones(len(measured_s))
    logs, times = [0.0], [np.log(first)]
    wanted = np.log(measured_s)
    for _ in range(MOST_SIMULATIONS - 1):
        estimates = _interpolated(wanted, np.array(logs), np.array(times))
        nearest = np.abs(estimates[:, None] - np.array(logs)).min(axis=1)
        if nearest.max() < _CLOSE:
            break
        middle = float(np.median(estimates))
        is_new = np.abs(middle - np.array(logs)).min() >= _CLOSE
        at = middle if is_new else float(estimates[int(np.argmax(nearest))])
        logs.append(at)
        times.append(np.log(simulated_s(math.exp(at))))
    return np.exp(_interpolated(wanted, np.array(logs), np.array(times)))


def _interpolated(
    wanted: np.ndarray, logs: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Return logarithms of factors; in proportion beyond what is known."""
    order = np.argsort(logs)
    logs, times = logs[order], np.maximum.accumulate(times[order], axis=0)
    found = np.empty(len(wanted))
    for k, log in enumerate(wanted):
        of = times[:, k]
        if log <= of[0] or log >= of[-1]:
            end = 0 if log <= of[0] else -1
            found[k] = logs[end] + log - of[end]
        else:
            found[k] = np.interp(log, of, logs)
    return np.clip(found, math.log(_LOW), math.log(_HIGH))


def pooled(of_windows: Sequence[float] | np.ndarray) -> Phi:
    """Return the factor of all windows: the mean of the logarithms, by Student's t.

    Of five or more, neighbours that correlate count as one.

    Examples
    --------
    >>> [round(x, 3) for x in pooled([1.10, 1.12, 1.14])]
    [1.12, 1.071, 1.171, 3]
    """
    from scipy.special import stdtrit

    logs = np.log(np.asarray(of_windows, float))
    blocks = logs
    while len(blocks) >= FEWEST_WINDOWS and _correlation(blocks) > _CORRELATED:
        even = len(blocks) // 2 * 2
        blocks = blocks[:even].reshape(-1, 2).mean(axis=1)
    mean = float(logs.mean())
    if len(blocks) < 2:
        return Phi(math.exp(mean), float("nan"), float("nan"), len(logs))
    error = float(blocks.std(ddof=1)) / math.sqrt(len(blocks))
    reach = float(stdtrit(len(blocks) - 1, 0.5 + CONFIDENCE / 2)) * error
    return Phi(
        math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), len(logs)
    )


def _correlation(values: np.ndarray) -> float:
    """Return the correlation of neighbours."""
    apart = values - values.mean()
    spread = float(apart @ apart)
    return float(apart[1:] @ apart[:-1]) / spread if spread > 0 else 0.0


def widened(phi: Phi) -> Phi:
    """Return a factor whose interval has what drawn requests leave, 1 % each way."""
    low, high = phi.value / (1 + _DRAWN), phi.value * (1 + _DRAWN)
    return phi._replace(low=min(phi.low, low), high=max(phi.high, high))


def of_one_window(value: float, log_error: float) -> Phi:
    """Return the factor of one window, with the interval of its draws or requests."""
    reach = 1.96 * log_error
    return Phi(value, value * math.exp(-reach), value * math.exp(reach), 1)
