"""Arrival rates by the hour: of a trace, or of a typical week scaled to a rate."""

from dataclasses import dataclass, replace

import numpy as np

from capplan.deployment.changes import arrivals_within
from capplan.errors import InputError
from capplan.units import format_duration
from capplan.workload.trace import Trace
from capplan.workload.week_curve import TYPICAL, share_of_rate, typical_curves

_HOUR_S = 3600.0
HOURS_PER_DAY, HOURS_PER_WEEK = 24, 168
_POINTS = 60
"""Points of an hour at which the typical curve is read."""


@dataclass(frozen=True, eq=False)
class DemandCurve:
    """Rates of each hour, which come again in the same order."""

    peak_per_s: np.ndarray  # of the busiest window of each hour, shape (hours,)
    mean_per_s: np.ndarray  # of each hour, shape (hours,) [requests/s]
    window_s: float  # length of such a window [s]
    source: str  # for people
    is_typical: bool = False  # no trace says so

    @property
    def days(self) -> float:
        """Days that it was seen for; 0 of a typical curve."""
        return 0.0 if self.is_typical else len(self.peak_per_s) / HOURS_PER_DAY

    @property
    def days_text(self) -> str:
        """Those days for people."""
        return _days_text(self.days)

    @property
    def is_short(self) -> bool:
        """Whether it does not show a whole week."""
        return not self.is_typical and len(self.peak_per_s) < HOURS_PER_WEEK

    @property
    def busiest_per_s(self) -> float:
        """Rate of the busiest window. [requests/s]"""
        return float(self.peak_per_s.max())

    def scaled(self, factor: float) -> "DemandCurve":
        """Return the curve with all rates times a factor."""
        return replace(
            self,
            peak_per_s=self.peak_per_s * factor,
            mean_per_s=self.mean_per_s * factor,
        )


def curve_of_trace(trace: Trace, window_s: float) -> DemandCurve:
    """Return the rates of the hours of a trace, from its first request on.

    The rate of an hour is that of its busiest window: its mean hides the peaks that
    replicas must serve. A last hour of less than a window is left out.
    """
    assert trace.arrival_s is not None
    check_window(window_s)
    since_s = trace.arrival_s - trace.arrival_s[0]
    lasts_s = float(since_s[-1])
    hours = _hours(lasts_s, window_s)
    if hours < HOURS_PER_DAY:
        raise InputError(
            f"{trace.source}: its requests arrive within {format_duration(lasts_s)}; "
            "the hours of a budget need a day or more"
        )
    per_hour = round(_HOUR_S / window_s)
    counts = np.bincount((since_s // window_s).astype(np.int64))
    counts = np.resize(np.append(counts, np.zeros(per_hour)), hours * per_hour)
    windows = counts.reshape(hours, per_hour)
    seen_s = np.clip(lasts_s - _HOUR_S * np.arange(hours), window_s, _HOUR_S)
    return DemandCurve(
        windows.max(axis=1) / window_s,
        windows.sum(axis=1) / seen_s,
        window_s,
        f"{_days_text(hours / HOURS_PER_DAY)} of {trace.source}",
    )


def most_of_each(values: np.ndarray, hours: int) -> np.ndarray:
    """Return the most of each hour where so many come again, shape (hours,) or less.

    Examples
    --------
    >>> most_of_each(np.array([3, 5, 4]), 2)
    array([4, 5])
    """
    return np.array(
        [values[hour::hours].max() for hour in range(min(hours, len(values)))]
    )


def _days_text(days: float) -> str:
    text = f"{days:.3g}"
    return f"{text} day" if text == "1" else f"{text} days"


def _hours(lasts_s: float, window_s: float) -> int:
    """Return the hours of a time of which a window or more is seen."""
    return max(1, int(np.ceil((lasts_s - window_s) / _HOUR_S)))


def shows_a_day(arrival_s: np.ndarray, window_s: float) -> bool:
    """Return whether arrivals tell all hours of a day."""
    return _hours(float(arrival_s[-1] - arrival_s[0]), window_s) >= HOURS_PER_DAY


def busiest_per_s(arrival_s: np.ndarray, window_s: float) -> float:
    """Return the rate of the busiest window of arrivals, or of all of a shorter time.

    Examples
    --------
    >>> busiest_per_s(np.array([0.0, 100.0, 101.0, 102.0, 900.0]), 60.0)
    0.05
    """
    lasts_s = float(arrival_s[-1] - arrival_s[0])
    window_s = min(window_s, lasts_s) if lasts_s > 0 else window_s
    return float(arrivals_within(arrival_s, window_s).max() / window_s)


def typical_curve(busiest_per_s: float) -> DemandCurve:
    """Return a typical week whose busiest moment has a rate. [requests/s]"""
    middle_s = (np.arange(HOURS_PER_WEEK * _POINTS) + 0.5) * (_HOUR_S / _POINTS)
    shares = share_of_rate(typical_curves(), middle_s).reshape(HOURS_PER_WEEK, _POINTS)
    shares = shares * (busiest_per_s / shares.max())
    return DemandCurve(
        shares.max(axis=1),
        shares.mean(axis=1),
        _HOUR_S / _POINTS,
        f"a typical week, as {TYPICAL}, with {busiest_per_s:.4g} requests/s at its "
        "peak",
        is_typical=True,
    )


def check_window(window_s: float) -> None:
    """Refuse windows that do not fill an hour, or last less than a minute. [s]"""
    per_hour = _HOUR_S / window_s if window_s > 0 else 0.0
    if window_s < 60 or window_s > _HOUR_S or abs(per_hour - round(per_hour)) > 1e-9:
        raise InputError(
            f"a window of {format_duration(window_s)}; expected a part of an hour from "
            "1 min on, such as 10m"
        )


def hour_name(hour: int, *, of_week: bool) -> str:
    """Return what an hour is called: ``Mon 15:00``, or ``day 1, 15 h`` of a trace.

    Examples
    --------
    >>> hour_name(39, of_week=True), hour_name(39, of_week=False)
    ('Tue 15:00', 'day 2, 15 h')
    """
    day, rest = divmod(hour, HOURS_PER_DAY)
    if of_week:
        return f"{('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[day % 7]} {rest}:00"
    return f"day {day + 1}, {rest} h"
