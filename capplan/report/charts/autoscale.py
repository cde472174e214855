"""Charts of autoscaled fleets: replicas over time, and GPU-hours."""

import numpy as np

from capplan.planning.autoscale.result import Autoscaled
from capplan.report.charts.motion import replicas_figure, steps
from capplan.report.charts.svg_bars import Bar, bars
from capplan.report.charts.svg_chart import Line
from capplan.report.columns import format_count
from capplan.report.page import Figure
from capplan.simulator.autoscalers.perfect import needed

_BINS = 336
"""Parts of the time in which arrivals are counted: half an hour of a week."""
_LEAST_S = 60.0
"""Shortest such part. [s]"""


def finding(result: Autoscaled) -> Figure | None:
    """Return the replicas of the cheapest policy over time; their range as title."""
    row, fixed = result.best_policy, result.fixed
    if row is None or row.outcome.moments is None:
        return None
    moments = row.outcome.moments
    line = _needed(result)
    drawn = replicas_figure(row.outcome.makespan_s, moments, line)
    low, high = moments.ready.min(), moments.ready.max()
    title = f"{row.name} runs {low:,} to {high:,} replicas"
    if fixed is not None:
        title += f"; a fixed fleet needs {fixed.outcome.replica_count:,}"
    more = " Needed: the arrivals over what a replica holds within the SLO."
    caption = drawn.caption + more * (line is not None)
    return drawn._replace(title=title, caption=caption)


def _needed(result: Autoscaled) -> Line | None:
    """Return the replicas that the arrivals need; None where that is not known."""
    if result.sustained is None:
        return None
    since_s = result.arrivals_since_s
    width_s = max(float(since_s[-1]) / _BINS, _LEAST_S)
    counts = needed(since_s, width_s, result.sustained.rate_per_s)
    return Line("needed", *steps(np.arange(len(counts) + 1) * width_s, counts))


def figures(result: Autoscaled) -> list[Figure]:
    """Return the GPU-hours of all fleets beside the least that holds."""
    title = "GPU-hours paid"
    drawn = [
        Bar(
            row.name,
            row.outcome.gpu_hours_paid,
            format_count(row.outcome.gpu_hours_paid)
            + ("" if row.meets else ", misses"),
            result.lower_bound_gpu_hours,
        )
        for row in result.fleets
    ]
    caption = "White line: no fleet that holds the target takes less."
    return [Figure(title, bars(title, drawn), caption=caption)]
