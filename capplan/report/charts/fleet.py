"""Charts of latency distributions and of the fleet over time."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from capplan.report.charts.svg_chart import Axis, Line, Rule, figure
from capplan.report.charts.ticks import linear_ticks
from capplan.report.columns import format_count, format_share
from capplan.report.page import Figure
from capplan.simulator.results.times import Series
from capplan.units import format_duration

TITLES = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "e2e": "Arrival to last token",
}
"""Titles of the latencies."""


class Curve(NamedTuple):
    """Latency distributions of one deployment: values at ``levels``, by metric. [s]"""

    label: str
    levels: np.ndarray
    quantiles_s: Mapping[str, np.ndarray | None]


def latency_figures(
    curves: list[Curve], target: float | None, limits_s: dict[str, float]
) -> list[Figure]:
    """Return the distributions of TTFT, TPOT and e2e with the target and the limits."""
    figures = [
        _distribution(curves, metric, title, target, limits_s.get(metric))
        for metric, title in TITLES.items()
    ]
    return [figure for figure in figures if figure is not None]


def _distribution(
    curves: list[Curve],
    metric: str,
    title: str,
    target: float | None,
    limit_s: float | None,
) -> Figure | None:
    lines = []
    for curve in curves:
        values = curve.quantiles_s.get(metric)
        if values is not None:
            drawn = np.isfinite(values) & (values > 0)  # the axis may be logarithmic
            if drawn.any():
                levels = np.asarray(curve.levels, dtype=float)
                lines.append(Line(curve.label, values[drawn], levels[drawn]))
    if not lines:
        return None
    ends = np.concatenate([line.x for line in lines])
    rules = []
    if target is not None:
        rules.append(Rule(f"asked {format_share(target)}", y=target))
    if limit_s is not None and math.isfinite(limit_s):
        ends = np.append(ends, limit_s)
        rules.append(Rule(f"SLO {format_duration(limit_s)}", x=limit_s))
    x = Axis.around(title.lower(), format_duration, ends)
    y = Axis("share of requests within", format_share, 0, 1)
    return figure(title, x, y, lines, rules)


def fleet_figures(series: Series) -> list[Figure]:
    """Return utilisation, KV use, requests and preemptions over time."""
    if len(series.start_s) < 2:
        return []
    time = time_axis(series.start_s)
    busy = Line("busy", series.start_s, series.busy_share)
    kv = Line("KV blocks in use", series.start_s, series.kv_share)
    running = Line("running", series.start_s, series.batch_requests)
    waiting = Line("waiting", series.start_s, series.waiting_requests)
    # At least one request, so that an idle fleet has an axis; 8 % are left above.
    most = float(np.nanmax([running.y.max(), waiting.y.max(), 1.0])) * 1.08
    figures = [
        figure(
            "Load and KV over time",
            time,
            Axis("share", format_share, 0, 1),
            [busy, kv],
            caption="Share of time that engines compute, and share of KV blocks in "
            "use; mean over the replicas.",
        ),
        figure(
            "Requests on a replica over time",
            time,
            Axis("requests", digits, 0, most),
            [running, waiting],
            caption="Mean over the replicas.",
        ),
    ]
    preempted = float(np.nansum(series.preemptions))
    if preempted:
        line = Line("preemptions", series.start_s, series.preemptions)
        top = float(np.nanmax(series.preemptions)) * 1.08
        axis, total = Axis("per bin", digits, 0, top), f"{preempted:,.0f} in total."
        figures.append(
            figure("Preemptions over time", time, axis, [line], caption=total)
        )
    return figures


digits = format_count
"""Numbers at the ticks of an axis."""


def time_axis(start_s: np.ndarray) -> Axis:
    """Return the axis of moments after the first arrival. [s]"""
    last = float(start_s[-1])
    scale_s, unit = (3600, "h") if last > 7200 else (60, "min")
    # Ten minutes of seconds or two hours of minutes still read well.
    if last <= 600:
        scale_s, unit = 1, "s"
    first = min(0.0, float(start_s[0]))
    ticks = linear_ticks(first / scale_s, last / scale_s)
    return Axis(
        f"time since the first arrival, {unit}",
        lambda value: digits(value / scale_s),
        first,
        last,
        ticks=tuple(tick * scale_s for tick in ticks),
    )


def hour_axis(hours: int) -> Axis:
    """Return the axis of hours that come again, in days where these are few."""
    days = tuple(float(hour) for hour in range(0, hours + 1, 24))
    return Axis("hour", digits, 0, hours, ticks=days if 2 < len(days) <= 9 else ())
