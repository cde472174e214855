"""Charts of autoscaled fleets: replicas over time, traffic and capacity, GPU-hours."""

import numpy as np

from capplan.planning.autoscale.result import Autoscaled, PolicyResult
from capplan.report.charts.fleet import digits, time_axis
from capplan.report.charts.motion import edges_of, replicas_figure, steps
from capplan.report.charts.svg_bars import Bar, bars
from capplan.report.charts.svg_chart import Axis, Line, figure
from capplan.report.columns import format_count
from capplan.report.page import Figure
from capplan.simulator.autoscalers.perfect import needed

_BINS = 336
"""Parts of the time in which arrivals are counted: half an hour of a week."""
_LEAST_S = 60.0
"""Shortest such part. [s]"""


def figures(result: Autoscaled) -> list[Figure]:
    """Return the charts of the policy that costs least, and the GPU-hours of all."""
    shown = result.best_policy
    found = [] if shown is None else [_capacity(result, shown)]
    return [*found, _gpu_hours(result)]


def finding(result: Autoscaled) -> Figure | None:
    """Return the replicas of that policy over time, with how many it runs as title."""
    row, fixed = result.best_policy, result.fixed
    if row is None or row.outcome.moments is None:
        return None
    ready = row.outcome.moments.ready
    title = f"{row.name} runs {int(ready.min()):,} to {int(ready.max()):,} replicas"
    if fixed is not None:
        title += f"; a fixed fleet needs {fixed.outcome.replica_count:,}"
    return _replicas(result, row)._replace(title=title)


def _bins(result: Autoscaled) -> tuple[np.ndarray, float]:
    """Return arrivals since the first one, and the length of a bin. [s]"""
    since_s = result.arrivals_since_s
    return since_s, max(float(since_s[-1]) / _BINS, _LEAST_S)


def _by_bin(y: np.ndarray, width_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a line of steps, one each bin."""
    return steps(np.arange(len(y) + 1) * width_s, y)


def _replicas(result: Autoscaled, row: PolicyResult) -> Figure:
    line = None
    moments = row.outcome.moments
    assert moments is not None
    if result.sustained is not None:
        since_s, width_s = _bins(result)
        counts = needed(since_s, width_s, result.sustained.rate_per_s)
        line = Line("needed", *_by_bin(counts, width_s))
    drawn = replicas_figure(row.outcome.makespan_s, moments, line)
    caption = drawn.caption
    if line is not None:
        caption += " Needed: the arrivals over what a replica holds within the SLO."
    title = f"Replicas over time, {row.name}"
    return drawn._replace(title=title, caption=caption)


def _capacity(result: Autoscaled, row: PolicyResult) -> Figure:
    since_s, width_s = _bins(result)
    per_s = np.bincount((since_s / width_s).astype(np.int64)) / width_s
    lines = [Line("arrivals", *_by_bin(per_s, width_s))]
    caption = "Requests a second."
    moments = row.outcome.moments
    if result.sustained is not None and moments is not None:
        sustained_per_s = result.sustained.rate_per_s
        at_s = edges_of(moments, row.outcome.makespan_s)
        ready_per_s = moments.ready * sustained_per_s
        lines.append(Line(f"{row.name}, ready", *steps(at_s, ready_per_s)))
        if result.fixed is not None:
            of_fixed_per_s = result.fixed.outcome.replica_count * sustained_per_s
            lines.append(Line("fixed fleet", at_s[[0, -1]], np.full(2, of_fixed_per_s)))
        caption = "Capacity: ready replicas times what each holds within the SLO."
    return figure(
        f"Traffic against capacity, {row.name}",
        time_axis(np.array([0.0, float(since_s[-1])])),
        Axis.above("requests/s", digits, lines, 0.0),
        lines,
        caption=caption,
    )


def _gpu_hours(result: Autoscaled) -> Figure:
    bound = result.lower_bound_gpu_hours
    rows = [row for row in (result.fixed, *result.policies) if row is not None]
    title = "GPU-hours paid"
    drawn = [
        Bar(
            row.name,
            row.outcome.gpu_hours_paid,
            format_count(row.outcome.gpu_hours_paid)
            + ("" if row.meets else ", misses"),
            bound,
        )
        for row in rows
    ]
    caption = "White line: no fleet that holds the target takes less."
    return Figure(title, bars(title, drawn), caption=caption)
