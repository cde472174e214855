"""Charts of what a plan serves: traffic over time, and lengths of requests."""

from typing import Any

import numpy as np

from capplan.planning.load.traffic_over_time import LEVELS, Lengths, Traffic
from capplan.planning.plan.result import Plan
from capplan.planning.plan.throughput import SATURATED, WITHIN_SLO
from capplan.report.charts.fleet import digits, time_axis
from capplan.report.charts.motion import steps
from capplan.report.charts.svg_chart import Axis, Line, Rule, figure
from capplan.report.columns import format_count, format_share
from capplan.report.page import Figure
from capplan.units import format_duration

_CLASSES_DRAWN = 5
"""Classes whose lengths are drawn; more lines hide each other."""
_ROOM = 1.12
"""Height of the axis over what is highest in it."""
_RULES = {WITHIN_SLO: "most within the SLO", SATURATED: "maximum throughput"}


def traffic_figures(plan: Plan) -> list[Figure]:
    """Return requests and tokens over the time of the trace against the capacity."""
    traffic = plan.traffic
    if traffic is None:
        return []
    capacity = {row.what: row for row in plan.throughput if row.what in _RULES}
    every = f"in each {format_duration(traffic.width_s)}"
    tokens = traffic.prompt_tokens_per_s + traffic.output_tokens_per_s
    return [
        _over_time(
            "Requests over time against capacity",
            "requests/s",
            traffic,
            traffic.rate_per_s,
            {_RULES[what]: row.rate_per_s for what, row in capacity.items()},
            f"Arrivals {every}; the circle is the busiest. A batch and its queue "
            "absorb a short peak above a line.",
        ),
        _over_time(
            "Tokens over time against capacity",
            "1,000 tokens/s",
            traffic,
            tokens / 1e3,
            {
                _RULES[what]: (row.prompt_tokens_per_s + row.output_tokens_per_s) / 1e3
                for what, row in capacity.items()
            },
            f"Prompt and output tokens of the requests that arrive {every}. The "
            "capacity is for the mean mix of both: an output token takes more time "
            "than a prompt token.",
        ),
    ]


def _over_time(
    title: str,
    unit: str,
    traffic: Traffic,
    values: np.ndarray,
    capacity: dict[str, float],
    caption: str,
) -> Figure:
    """Return a rate over time with its peak marked, and what the fleet sustains."""
    at = int(np.argmax(values))
    ends = np.append(traffic.start_s, traffic.start_s[-1] + traffic.width_s)
    time = time_axis(ends)
    rate = Line("", *steps(ends, values))
    middle = traffic.start_s[at : at + 1] + traffic.width_s / 2
    peak = Line("", middle, values[at : at + 1], markers=True, joined=False)
    top = max([float(values[at]), *capacity.values()]) * _ROOM
    rules = [
        Rule(f"{name}: {format_count(value)}", y=value)
        for name, value in capacity.items()
    ]
    y = Axis(unit, format_count, 0, top)
    return figure(title, time, y, [rate, peak], rules, caption)


def length_figures(lengths: tuple[Lengths, ...]) -> list[Figure]:
    """Return the distributions of prompt and output tokens, a line for each class."""
    of_classes = lengths[1:]
    drawn = of_classes if 0 < len(of_classes) <= _CLASSES_DRAWN else lengths[:1]
    rows: list[tuple[str, Any]] = [(row.class_name or "all", row) for row in drawn]
    return [
        _distribution(title, axis, [(name, getattr(row, field)) for name, row in rows])
        for title, axis, field in (
            ("Prompt tokens", "tokens of a prompt", "prompt_tokens_quantiles"),
            ("Output tokens", "tokens of an answer", "output_tokens_quantiles"),
        )
    ]


def _distribution(title: str, axis: str, rows: list[tuple[str, np.ndarray]]) -> Figure:
    lines = [Line(name, np.maximum(values, 1), LEVELS) for name, values in rows]
    ends = np.concatenate([line.x for line in lines])
    x = Axis.around(axis, digits, ends, wide=10)
    y = Axis("share of requests within", format_share, 0, 1)
    return figure(title, x, y, lines)
