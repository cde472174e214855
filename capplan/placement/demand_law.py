"""Workers against the arrival rate: Aladdin's Eq. 7."""

import math
from dataclasses import dataclass

import numpy as np

from capplan.errors import InputError

_TOLERANCE_WORKERS = 1.0
_CONFIDENCE = 0.95
_ROUNDING_SD = math.sqrt(1 / 12)
"""Standard deviation of a count's rounding up to whole workers. [workers]"""

OF_LAW = 4
"""Different rates that the law needs: two more than it has coefficients."""


@dataclass(frozen=True)
class DemandLaw:
    """Workers = ⌈k5 · rate + c5⌉ for rates of at least R."""

    workers_per_rate: float  # k5 [workers·s/request]
    workers_fixed: float  # c5 [workers]
    workers_per_rate_interval: tuple[float, float]
    workers_fixed_interval: tuple[float, float]
    linear_from_per_s: float  # R: all counts from here on are within one worker
    residual_workers: float  # largest distance from the line, rounding aside
    confidence: float = _CONFIDENCE  # level of the intervals

    def workers(self, rate_per_s: float) -> int:
        """Return ⌈k5 · rate + c5⌉, at least 1."""
        if rate_per_s < self.linear_from_per_s:
            raise InputError(
                f"the demand law holds from {self.linear_from_per_s:g} requests/s on; "
                f"{rate_per_s:g} is below: simulate it"
            )
        return _whole(self.workers_per_rate * rate_per_s + self.workers_fixed)


def workers_interval(law: DemandLaw, rate_per_s: float) -> tuple[int, int]:
    """Return the workers at a rate for both ends of the slope's interval.

    The line turns about the mean of the fitted rates, so the lowest slope goes with
    the highest constant.
    """
    slopes, fixed = law.workers_per_rate_interval, law.workers_fixed_interval
    ends = (slopes[0] * rate_per_s + fixed[1], slopes[1] * rate_per_s + fixed[0])
    return _whole(min(ends)), _whole(max(ends))


def _whole(workers: float) -> int:
    return max(math.ceil(workers - 1e-9), 1)


def fit_demand_law(rate_per_s: np.ndarray, workers: np.ndarray) -> DemandLaw:
    """Fit Eq. 7 to the workers needed at several rates (Aladdin, section 5.2).

    Least squares on the counts less a half, since rounding up adds half a worker on
    average. R is the lowest rate from which all counts are within one worker of the
    line fitted to them alone.

    Examples
    --------
    >>> rates = np.array([10.0, 20, 30, 40, 50])
    >>> law = fit_demand_law(rates, np.ceil(0.2 * rates + 0.5))
    >>> law.workers(100)
    21
    """
    order = np.argsort(rate_per_s)
    rate = np.asarray(rate_per_s, np.float64)[order]
    count = np.asarray(workers, np.float64)[order]
    if len(np.unique(rate)) < OF_LAW:
        raise InputError(
            f"{len(np.unique(rate))} different rates; a line needs at least {OF_LAW}"
        )
    # The line has two coefficients: at least four rates leave some to judge it by.
    for start in np.unique(rate)[:-3]:
        kept = rate >= start
        law = _fit(rate[kept], count[kept] - 0.5)
        if law.residual_workers <= _TOLERANCE_WORKERS:
            return law
    raise InputError(
        f"workers are not within {_TOLERANCE_WORKERS:g} of a line at the highest four "
        "rates; give higher rates"
    )


def _fit(x: np.ndarray, y: np.ndarray) -> DemandLaw:
    from scipy.special import stdtrit

    n = len(x)
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / spread)
    fixed = float(y.mean() - slope * x.mean())
    residual = y - slope * x - fixed
    t = float(stdtrit(n - 2, 0.5 + _CONFIDENCE / 2))
    # Counts on a line still carry the uncertainty of having been rounded up.
    error = max(math.sqrt(float((residual**2).sum()) / (n - 2)), _ROUNDING_SD)
    slope_error = t * error / math.sqrt(spread)
    fixed_error = t * error * math.sqrt(1 / n + x.mean() ** 2 / spread)
    return DemandLaw(
        slope,
        fixed,
        (slope - slope_error, slope + slope_error),
        (fixed - fixed_error, fixed + fixed_error),
        float(x[0]),
        float(np.abs(residual).max()),
    )
