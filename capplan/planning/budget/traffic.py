"""The rates of a budget's hours, and which of them are simulated."""

from collections.abc import Sequence

import numpy as np

from capplan.errors import InputError, warn
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.load.demand_curve import (
    DemandCurve,
    busiest_per_s,
    curve_of_trace,
    shows_a_day,
    typical_curve,
)
from capplan.units import format_duration, parse_duration_s
from capplan.workload.arrivals import no_times
from capplan.workload.trace import Trace

_WIDEST = 100.0
"""Times the lowest simulated rate that the highest is; below, counts are its."""
_BETWEEN = 2
"""Rates simulated between the quietest hour and the lowest peak."""


def curve_of(trace: Trace, settings: BudgetSettings) -> DemandCurve:
    """Return the rates of the hours: of the trace, or of a typical week.

    A rate that is given is the mean of a trace that shows a day or more, and else the
    peak of the typical week.
    """
    window_s = parse_duration_s(settings.window)
    if trace.arrival_s is None or settings.arrivals is not None:
        rate_per_s = settings.rate or trace.rate_per_s
        if not np.isfinite(rate_per_s):
            raise InputError(no_times(trace))
        return typical_curve(rate_per_s)
    if shows_a_day(trace.arrival_s, window_s):
        curve = curve_of_trace(trace, window_s)
        if settings.rate is None:
            return curve
        return curve.scaled(settings.rate / float(curve.mean_per_s.mean()))
    rate_per_s = settings.rate or busiest_per_s(trace.arrival_s, window_s)
    lasts = format_duration(float(trace.arrival_s[-1] - trace.arrival_s[0]))
    warn(
        f"{trace.source}: its requests arrive within {lasts}, so the hours of a day "
        f"are not known: a typical week is assumed, {rate_per_s:.3g} requests/s at its "
        "peak"
    )
    return typical_curve(rate_per_s)


def rates_to_simulate(
    curve: DemandCurve, factors: Sequence[float], anchors: Sequence[int]
) -> tuple[float, ...]:
    """Return the rates at which replicas are simulated, ascending. [requests/s]

    The peaks of some months, the quietest hour of all months, and some between.
    """
    peaks = [curve.busiest_per_s * factors[month - 1] for month in anchors]
    busy = curve.peak_per_s[curve.peak_per_s > 0]
    least = max(peaks) / _WIDEST
    low = max(float(busy.min()) * min(factors), least)
    rates = [low, *(peak for peak in peaks if peak > least)]
    if low < min(rates[1:]):
        rates += np.linspace(low, min(rates[1:]), _BETWEEN + 2)[1:-1].tolist()
    return tuple(sorted({float(f"{rate:.6g}") for rate in rates}))
