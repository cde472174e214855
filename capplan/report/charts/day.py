"""The busiest day against what the fleet carries: the chart under a plan's tiles."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

from capplan.planning.load.demand_curve import HOURS_PER_DAY, typical_curve
from capplan.planning.load.worst_windows import TimeWindow
from capplan.planning.plan.result import Plan
from capplan.planning.plan.throughput import WITHIN_SLO
from capplan.report.charts.plan import attainment_figure
from capplan.report.columns import format_count, plural
from capplan.report.page import Figure
from capplan.units import format_duration
from capplan.workload.days import DAY_S

_HEADROOM = 1.14
"""Height of the chart over its highest line: room for a label above it."""
_LABEL = 0.09
"""Height of a label, as a share of the chart's on a phone."""
_LABELS = (
    ("tag", "left", "var(--ink)"),
    ("", "right", "var(--grid)"),
    ("tag", "right", "var(--accent)"),
)
"""Class, edge and, in a legend, colour of the labels of line, band and traffic."""


class Day(NamedTuple):
    """Traffic over a day, or over less."""

    at_s: np.ndarray  # edges of its steps, shape (n + 1,) [s]
    rate_per_s: np.ndarray  # of each, shape (n,) [requests/s]
    ends_s: float  # of the axis, which begins at 0 [s]
    told: str  # whose hours these are
    busiest: str  # which its highest step is


class Level(NamedTuple):
    """What the fleet carries, and what it would with the engines of an interval."""

    rate_per_s: float
    carried: str
    band_per_s: Sequence[float] = ()  # low and high; none where none was measured
    of_band: str = ""


def day_figure(plan: Plan) -> Figure | None:
    """Return the day under the line of what the fleet sustains within the SLO.

    Where that is not known (users, two pools) the counts that were tried; None without
    an answer.
    """
    best = plan.best
    if best is None or best.gpu_count is None:
        return None
    rates = [row.rate_per_s for row in plan.throughput if row.what == WITHIN_SLO]
    gpus, one = plural(best.gpu_count, "GPU"), best.gpu_count == 1
    if not rates:
        found = attainment_figure(plan)
        enough, last = f"{gpus} {'is' if one else 'are'} enough", plan.last_points
        if last is not None:
            left, points = best.gpu_count - last.gpu_count_more, 100 * last.missed_by
            miss = "misses" if left == 1 else "miss"
            enough += f"; {left:,} {miss} by {points:.2g} points"
        return None if found is None else found._replace(title=enough)
    title = f"{gpus} {'carries' if one else 'carry'} the day"
    carried = title.replace("the day", format_count(rates[0]))
    level = Level(rates[0], carried)
    if best.engine_fleets is not None and best.capacity_ratio is not None:
        low, high = (rates[0] * share for share in best.capacity_ratio)
        of, slow = "by the error of its times", "with slower times"
        if best.sweep_count:
            of, slow = "with the engines that were tested", "with a slow engine"
        of += f": {format_count(low)} to {format_count(high)}"
        level = Level(rates[0], carried, (low, high), of)
        if low < (plan.rate_per_s if plan.peak is None else plan.peak.rate_per_s):
            title += f"; {slow} {'it' if one else 'they'} would not"
    day = _typical(plan.rate_per_s) if plan.traffic is None else _own(plan)
    if day.rate_per_s.max() > rates[0]:
        told = f"{day.told} What is above the line waits until it can be served."
        day = day._replace(told=told)
    return _figure(title, day, level)


def _typical(rate_per_s: float) -> Day:
    """Return the busiest day of a typical week whose peak has a rate."""
    days = typical_curve(rate_per_s).peak_per_s.reshape(-1, HOURS_PER_DAY)
    rates = days[np.argmax(days.max(axis=1))]
    at_s = np.linspace(0, DAY_S, len(rates) + 1)
    told = (
        "Requests a second on a weekday, each hour by its busiest minute. The hours "
        "are assumed (a typical week); the peak is yours."
    )
    return Day(at_s, rates, DAY_S, told, "at the peak")


def _own(plan: Plan) -> Day:
    """Return the busiest day of a trace's own times, or all of a shorter one."""
    traffic = plan.traffic
    assert traffic is not None
    steps = format_duration(traffic.width_s)
    at_s = np.append(traffic.start_s, max(plan.duration_s, traffic.start_s[-1] + 1e-9))
    told = f"Your requests a second, in steps of {steps}"
    busiest = f"in the busiest {steps}"
    if at_s[-1] <= DAY_S:
        told += ", from the first one on."
        return Day(at_s, traffic.rate_per_s, float(at_s[-1]), told, busiest)
    since_s = _midnight_s(plan.peak)
    at_s = at_s - (since_s or 0.0)
    first_s = at_s[traffic.busiest] // DAY_S * DAY_S
    within = (at_s[:-1] >= first_s) & (at_s[:-1] < first_s + DAY_S)
    edges = np.append(at_s[:-1][within], at_s[1:][within][-1]) - first_s
    clock = "by the clock of your log" if since_s is not None else "from the first on"
    told += f", on the busiest day, {clock}."
    rates = traffic.rate_per_s[within]
    return Day(np.minimum(edges, DAY_S), rates, DAY_S, told, busiest)


def _midnight_s(peak: TimeWindow | None) -> float | None:
    """Return when a day of the log began, after the first arrival; or None. [s]"""
    if peak is None or peak.starts_at is None or not peak.start_s:
        return None
    at = datetime.fromisoformat(peak.starts_at)
    return peak.start_s - (at - at.replace(hour=0, minute=0, second=0)).total_seconds()


def _figure(title: str, day: Day, level: Level) -> Figure:
    """Return the chart; its texts are HTML, which keeps its size on a phone.

    What has no place free of lines stands in the legend.
    """
    peak_per_s, band = float(day.rate_per_s.max()), level.band_per_s
    most = _HEADROOM * max(peak_per_s, level.rate_per_s, *band)

    def top(rate_per_s: float) -> float:
        return 1 - rate_per_s / most

    yours = f"your traffic, {format_count(peak_per_s)} {day.busiest}"
    texts = (level.carried, level.of_band, yours)
    lines = [top(each) for each in (level.rate_per_s, *band[::-1])]
    places = _places(lines, top(peak_per_s), top(float(day.rate_per_s.min())))
    parts, legend, numbered = [_svg(day, level, most)], [], list[float]()
    for rate in (level.rate_per_s, 0.0, *band):
        if all(abs(top(rate) - at) > _LABEL for at in numbered):
            numbered.append(top(rate))
            text = format_count(rate)
            parts.append(f'<i style="top:{100 * top(rate):.2f}%">{text}</i>')
    for text, at, (kind, side, colour) in zip(texts, places, _LABELS, strict=True):
        if text and at is None:
            legend.append((text, colour))
        elif text:
            style = f"{side}:8px;top:{100 * (at or 0.0):.2f}%"
            parts.append(f'<u class="{kind}" style="{style}">{escape(text)}</u>')
    for quarter in range(5):
        text = format_duration(quarter * day.ends_s / 4) if quarter else "0"
        parts.append(f'<u class="hour" style="left:{25 * quarter}%">{text}</u>')
    told = escape(". ".join(filter(None, texts)))
    chart = f'<div class="chart" role="img" aria-label="{told}.">{"".join(parts)}</div>'
    return Figure(title, Markup(chart), tuple(legend), day.told)


def _places(lines: Sequence[float], peak: float, least: float) -> list[float | None]:
    """Return the tops of labels of the fleet's line, the band and the traffic.

    None where a line is in the way: of the fleet, the band's high and low end, or the
    traffic, which lies between ``peak`` and ``least``. All from 0 at the top to 1.
    """
    places: list[float | None] = []
    line, high = lines[0], min(lines[1:], default=1.0)
    band = high + (0.01 if line - high > 2 * _LABEL else -_LABEL)
    for top in (line - _LABEL, band, 0.99 - _LABEL):
        over = top < least and top + _LABEL > peak
        crossed = any(top < each < top + _LABEL for each in lines)
        taken = any(at is not None and abs(top - at) < _LABEL for at in places)
        places.append(None if crossed or over or taken or top < 0 else top)
    return places


def _svg(day: Day, level: Level, most: float) -> str:
    """Return traffic, line and band, with hours across and requests/s upwards."""
    hours, wide = day.at_s / 3600, f"{day.ends_s / 3600:.6g}"
    steps = "".join(
        f"V{most - rate:.6g}H{end:.6g}"
        for rate, end in zip(day.rate_per_s, hours[1:], strict=True)
    )
    paths = [
        ("day", f"M{hours[0]:.6g} {most:.6g}{steps}V{most:.6g}Z"),
        ("carried", f"M0 {most - level.rate_per_s:.6g}H{wide}"),
    ]
    if level.band_per_s:
        low, top = (f"{most - each:.6g}" for each in level.band_per_s)
        paths.insert(0, ("ends", f"M0 {top}H{wide}M0 {low}H{wide}"))
        paths.insert(0, ("band", f"M0 {top}H{wide}V{low}H0Z"))
    drawn = "".join(
        f'<path class="{kind}" vector-effect="non-scaling-stroke" d="{path}"/>'
        for kind, path in paths
    )
    return (
        f'<svg viewBox="0 0 {wide} {most:.6g}" preserveAspectRatio="none" '
        f'aria-hidden="true">{drawn}</svg>'
    )
