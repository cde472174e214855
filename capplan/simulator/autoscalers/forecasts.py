"""Forecasts of the next period's requests, as Dynamo's planner makes them.

ai-dynamo 1.6.1, dynamo/planner/core/load/predictors.py: ``constant`` and ``kalman``.
Its default, auto-ARIMA, and Prophet are fitted by packages that are not used here.
"""

from collections.abc import Callable

FORECASTS = ("constant", "kalman")


Forecast = Callable[[float], float]
"""Told a count of requests each period, it says the next one."""


def constant(count: float) -> float:
    """Return the last count."""
    return count


class Kalman:
    """A Kalman filter of level and trend, both random walks.

    Variances ``kalman_q_level`` 1, ``kalman_q_trend`` 0.1 and ``kalman_r`` 10, as
    filterpy steps it from a first count as the level and a covariance of 1000·I. It
    says the last count until it has had five, skips zeros at the start, and is never
    below 0.

    Examples
    --------
    >>> forecast = Kalman()
    >>> [round(forecast(count), 2) for count in (10, 20, 30, 40, 50)]
    [10, 20, 30, 40, 59.95]
    """

    level_variance = 1.0
    trend_variance = 0.1
    noise_variance = 10.0
    least_counts = 5

    def __init__(self) -> None:
        self._level = self._trend = 0.0
        self._covariance = (1000.0, 0.0, 1000.0)  # level, both, trend
        self._counts = 0

    def __call__(self, count: float) -> float:
        """Return the forecast of the next count after this one."""
        if self._counts == 0:
            if count == 0:
                return 0.0
            self._level = count
        else:
            if self._counts < self.least_counts:
                self._predict()
            self._update(count)
        self._counts += 1
        if self._counts < self.least_counts:
            return count
        self._predict()
        return max(self._level, 0.0)

    def _predict(self) -> None:
        level, both, trend = self._covariance
        self._level += self._trend
        self._covariance = (
            level + 2 * both + trend + self.level_variance,
            both + trend,
            trend + self.trend_variance,
        )

    def _update(self, count: float) -> None:
        level, both, trend = self._covariance
        variance = level + self.noise_variance
        error = count - self._level
        self._level += level / variance * error
        self._trend += both / variance * error
        kept = self.noise_variance / variance
        self._covariance = (
            level * kept,
            both * kept,
            trend - both * both / variance,
        )


def forecast(kind: int) -> Forecast:
    """Return a fresh forecast of a kind, by its place in ``FORECASTS``."""
    return Kalman() if FORECASTS[kind] == "kalman" else constant
