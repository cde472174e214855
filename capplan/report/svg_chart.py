"""A line chart as inline SVG, without a script."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from capplan.report.page import Figure
from capplan.report.ticks import linear_ticks, log_ticks

COLOURS = ("#1f5fbf", "#c2570c", "#1b7f5c", "#7a3fa0", "#8a6d00")
"""Distinct for colour-blind readers, dark enough on white paper."""
_DASHES = ((), (7, 4), (2, 3))
"""Lengths of dash and gap where the colours come again. [px]"""

WIDTH, HEIGHT = 480, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 44


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a chart, through the finite points; all arrays of shape (n,)."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None  # ends of error bars
    high: np.ndarray | None = None
    markers: bool = False  # circles at the points
    filled: Sequence[bool] = ()  # hollow circles where False
    joined: bool = True  # a line through the points
    shaded: bool = False  # the area between low and high, in place of bars


@dataclass(frozen=True)
class Rule:
    """A dashed line across the chart at ``x`` or ``y``, such as an SLO."""

    label: str
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``; ``show`` formats the values of its ticks."""

    label: str
    show: Callable[[float], str]
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()

    def tick_values(self) -> list[float]:
        """Return the values at which ticks are drawn."""
        if self.ticks:
            return list(self.ticks)
        if self.log:
            return log_ticks(self.low, self.high)
        return linear_ticks(self.low, self.high)

    def fraction(self, values: np.ndarray) -> np.ndarray:
        """Return the positions of values along the axis: 0 at its low end, 1 at high.

        On a log axis, values below ``low`` (0 among them) are at 0.
        """
        if self.log:
            ratio = np.log(np.maximum(values, self.low) / self.low)
            return np.asarray(ratio / math.log(self.high / self.low))
        return np.asarray((values - self.low) / (self.high - self.low))


def figure(
    title: str,
    x: Axis,
    y: Axis,
    lines: Sequence[Line],
    rules: Sequence[Rule] = (),
    caption: str = "",
) -> Figure:
    """Return lines over axes with their legend."""
    return Figure(title, chart(x, y, lines, rules), legend_of(lines), caption)


def chart(x: Axis, y: Axis, lines: Sequence[Line], rules: Sequence[Rule] = ()) -> str:
    """Return the SVG element of lines over axes; its texts are escaped."""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(y.label)} against {escape(x.label)}">'
    ]
    parts += _grid(x, y)
    parts += [_rule(x, y, rule) for rule in rules]
    for index, line in enumerate(lines):
        parts += _line(x, y, line, index)
    return Markup("".join(parts) + "</svg>")


def legend_of(lines: Sequence[Line]) -> tuple[tuple[str, str], ...]:
    """Return label and colour of each line, dashes as a gradient; none of one line."""
    if len(lines) < 2:
        return ()
    entries = []
    for index, line in enumerate(lines):
        colour, dash = _stroke(index)
        if dash:
            on, off = dash
            stops = f"{colour} 0 {on}px, transparent {on}px {on + off}px"
            colour = f"repeating-linear-gradient(90deg, {stops})"
        entries.append((line.label, colour))
    return tuple(entries)


def _stroke(index: int) -> tuple[str, tuple[int, ...]]:
    """Return colour and dashes of a line, different for fifteen of them."""
    repeats, colour = divmod(index, len(COLOURS))
    return COLOURS[colour], _DASHES[repeats % len(_DASHES)]


def _px(x: Axis, values: np.ndarray | float) -> np.ndarray:
    """Return horizontal positions; values outside the axis are at its ends. [px]"""
    inside = np.clip(x.fraction(np.asarray(values, dtype=float)), 0, 1)
    return np.asarray(_LEFT + inside * (WIDTH - _LEFT - _RIGHT))


def _py(y: Axis, values: np.ndarray | float) -> np.ndarray:
    """Return vertical positions; SVG counts them from the top. [px]"""
    inside = np.clip(y.fraction(np.asarray(values, dtype=float)), 0, 1)
    return np.asarray(HEIGHT - _BOTTOM - inside * (HEIGHT - _TOP - _BOTTOM))


def _grid(x: Axis, y: Axis) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for tick in y.tick_values():
        at = float(_py(y, tick))
        parts.append(
            f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">'
            f"{escape(y.show(tick))}</text>"
        )
    for tick in x.tick_values():
        at = float(_px(x, tick))
        parts.append(
            f'<path class="grid" d="M{at:.1f} {_TOP}V{bottom}"/>'
            f'<text x="{at:.1f}" y="{bottom + 17}" text-anchor="middle">'
            f"{escape(x.show(tick))}</text>"
        )
    parts.append(
        f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
        f'<text class="label" x="{(_LEFT + right) / 2:.0f}" y="{HEIGHT - 6}" '
        f'text-anchor="middle">{escape(x.label)}</text>'
        f'<text class="label" transform="translate(13 {(_TOP + bottom) / 2:.0f}) '
        f'rotate(-90)" text-anchor="middle">{escape(y.label)}</text>'
    )
    return parts


def _rule(x: Axis, y: Axis, rule: Rule) -> str:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    if rule.x is not None:
        if not x.low <= rule.x <= x.high:
            return ""
        at = float(_px(x, rule.x))
        end = at > (_LEFT + right) / 2  # the label is on the wider side of the rule
        return (
            f'<path class="rule" d="M{at:.1f} {_TOP}V{bottom}"/>'
            f'<text class="rule" x="{at + (-5 if end else 5):.1f}" y="{bottom - 8}" '
            f'text-anchor="{"end" if end else "start"}">{escape(rule.label)}</text>'
        )
    if rule.y is None or not y.low <= rule.y <= y.high:
        return ""
    at = float(_py(y, rule.y))
    below = at < _TOP + 24  # no room for the label above
    return (
        f'<path class="rule" d="M{_LEFT} {at:.1f}H{right}"/>'
        f'<text class="rule" x="{_LEFT + 6}" y="{at + (15 if below else -6):.1f}">'
        f"{escape(rule.label)}</text>"
    )


def _line(x: Axis, y: Axis, line: Line, index: int) -> list[str]:
    finite = np.isfinite(line.x) & np.isfinite(line.y)
    px, py = _px(x, line.x[finite]), _py(y, line.y[finite])
    if len(px) == 0:
        return []
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(px, py, strict=True))
    colour, dash = _stroke(index)
    dashed = f' stroke-dasharray="{dash[0]} {dash[1]}"' if dash else ""
    parts = []
    if line.joined:
        parts.append(f'<path class="line" stroke="{colour}"{dashed} d="M{path}"/>')
    if line.low is not None and line.high is not None:
        low, high = _py(y, line.low[finite]), _py(y, line.high[finite])
        if line.shaded:
            edge = zip([*px, *px[::-1]], [*low, *high[::-1]], strict=True)
            area = "L".join(f"{a:.1f} {b:.1f}" for a, b in edge)
            parts.append(
                f'<path class="area" fill="{colour}" fill-opacity="0.15" d="M{area}Z"/>'
            )
            return parts
        parts += [
            f'<path class="bar" stroke="{colour}" d="M{at:.1f} {a:.1f}V{b:.1f}"/>'
            for at, a, b in zip(px, low, high, strict=True)
        ]
    if line.markers:
        filled = np.asarray(line.filled or [True] * len(line.x))[finite]
        points = zip(px, py, filled, line.x[finite], line.y[finite], strict=True)
        parts += [
            f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="4.5" stroke="{colour}" '
            f'fill="{colour if full else "#fff"}" stroke-width="2"><title>'
            f"{escape(x.show(value_x))}: {escape(y.show(value_y))}</title></circle>"
            for at_x, at_y, full, value_x, value_y in points
        ]
    return parts
