"""A line chart as inline SVG, without a script."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from markupsafe import Markup, escape

from capplan.report.charts.ticks import linear_ticks, log_ticks
from capplan.report.page import Figure

COLOURS = ("#1f5fbf", "#c2570c", "#1b7f5c", "#7a3fa0", "#8a6d00")
"""Distinct for colour-blind readers, dark enough on white paper."""
MOST_LINES = len(COLOURS) + 1
"""Lines that are told from each other; the rest is grey."""
_DASHES = ((), (7, 4), (2, 3), (12, 3, 2, 3), (16, 4), (5, 3, 1, 3))
"""Lengths of dashes and gaps of each, which survive black and white. [px]"""
_REST = "#9aa4b2"
_GLYPHS = "●■▲◆"
_SHAPES = (
    "",
    "m-4 -4h8v8h-8z",
    "m0 -5l5 9h-10z",
    "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
)
"""Of points that no line joins, in the legend and in the chart; first a circle."""
_RULE = "repeating-linear-gradient(90deg, var(--bad) 0 5px, transparent 5px 9px)"
"""Swatch of a rule: its label stands in the legend, where no line crosses it."""

WIDTH, HEIGHT = 480, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 44
"""Margins; the first two are wider where the labels of ticks are. [px]"""
_LABEL_PX, _GAP_PX = 17, 6
"""Width of an axis's own label, and between the labels of ticks and the axis. [px]"""
_WIDER = 0.15
"""By how much digits are wider in wide fonts; room for it where there is little."""
_LETTER_PX, _NARROW_PX, _SIGN_PX = 7.6, 3.8, 11.4
"""Widths of a digit, a comma and a sign, at 13.5 px in common fonts. [px]"""


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
    until: np.ndarray | None = None  # areas from x to there, between low and high


@dataclass(frozen=True)
class Rule:
    """A dashed line across the chart at ``x`` or ``y``, such as an SLO."""

    label: str
    x: float | None = None
    y: float | None = None

    def lies_in(self, x: "Axis", y: "Axis") -> bool:
        """Return whether it crosses the plot of two axes."""
        if self.x is not None:
            return x.low <= self.x <= x.high
        return self.y is not None and y.low <= self.y <= y.high


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``; ``show`` formats the values of its ticks."""

    label: str
    show: Callable[[float], str]
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()

    @classmethod
    def above(
        cls, label: str, show: Callable[[float], str], lines: Sequence[Line], least=1.0
    ) -> "Axis":
        """Return the axis from 0 to a little above lines, and at least so high."""
        return cls(
            label, show, 0, 1.08 * max(least, *(float(x.y.max()) for x in lines))
        )

    @classmethod
    def around(
        cls, label: str, show: Callable[[float], str], ends: np.ndarray, wide: float = 3
    ) -> "Axis":
        """Return the axis that keeps values off the frame; log where they are wide."""
        low, high = float(ends.min()) / 1.1, float(ends.max()) * 1.15
        return cls(label, show, low, high, log=high / low > wide)

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
    """Return lines over axes with their legend, which no line crosses."""
    told = ((rule.label, _RULE) for rule in rules if rule.label and rule.lies_in(x, y))
    legend = (*legend_of(lines), *told)
    return Figure(title, chart(x, y, lines, rules), legend, caption)


def chart(x: Axis, y: Axis, lines: Sequence[Line], rules: Sequence[Rule] = ()) -> str:
    """Return the SVG element of lines over axes; its texts are escaped."""
    plot = _Plot.of(x, y)
    parts = [*_grid(plot), *(_rule(plot, each) for each in rules if each.lies_in(x, y))]
    order = range(len(lines))
    for index in (*order[MOST_LINES:], *order[:MOST_LINES]):  # grey below the others
        parts += _line(plot, lines[index], index, _shape(lines, index))
    return svg(HEIGHT, f"{y.label} against {x.label}", parts)


def svg(height: int, label: str, parts: Sequence[str]) -> Markup:
    """Return an SVG element of the width of charts; its label is escaped."""
    return Markup(
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def legend_of(lines: Sequence[Line]) -> tuple[tuple[str, str], ...]:
    """Return label and colour of each line, dashes as a gradient; none of one line."""
    if len(lines) < 2:
        return ()
    entries = []
    for index, line in enumerate(lines[:MOST_LINES]):
        colour, dashes = _stroke(index)
        if dashes and line.joined and line.until is None:
            edges = [sum(dashes[:k]) for k in range(len(dashes) + 1)]
            stops = ", ".join(
                f"{colour if k % 2 == 0 else 'transparent'} {low}px {high}px"
                for k, (low, high) in enumerate(pairwise(edges))
            )
            colour = f"repeating-linear-gradient(90deg, {stops})"
        glyph = "" if line.joined else f"{_GLYPHS[_shape(lines, index)]} "
        if line.label:
            entries.append((f"{glyph}{line.label}", colour))
    if left := len(lines[MOST_LINES:]):
        entries.append((f"{left:,} more", _REST))
    return tuple(entries)


def _shape(lines: Sequence[Line], index: int) -> int:
    """Return which shape the points of a line have, a circle where it joins them."""
    if lines[index].joined:
        return 0
    return sum(not line.joined for line in lines[:index]) % len(_SHAPES)


def _stroke(index: int) -> tuple[str, tuple[int, ...]]:
    """Return colour and dashes of a line; grey of one that is not told from others."""
    if index >= MOST_LINES:
        return _REST, ()
    return COLOURS[index % len(COLOURS)], _DASHES[index]


def text_px(text: str) -> float:
    """Return about how wide a text is in the font of charts. [px]"""
    widths = {**dict.fromkeys(",. :'", _NARROW_PX), **dict.fromkeys("+−", _SIGN_PX)}
    return sum(widths.get(letter, _LETTER_PX) for letter in text)


class _Plot(NamedTuple):
    """The axes, and where they end so that no label of a tick is cut."""

    x: Axis
    y: Axis
    left: int  # [px]
    right: int  # [px]

    @classmethod
    def of(cls, x: Axis, y: Axis) -> "_Plot":
        """Return the plot of two axes."""
        widest = max((text_px(y.show(tick)) for tick in y.tick_values()), default=0.0)
        last = max(x.tick_values(), default=x.high)
        beyond = text_px(x.show(last)) / 2
        left = math.ceil(_LABEL_PX + widest + _GAP_PX)
        return cls(
            x,
            y,
            _LEFT if left <= _LEFT else left + math.ceil(_WIDER * widest),
            WIDTH - max(_RIGHT, math.ceil(beyond)),
        )

    def px(self, values: np.ndarray | float) -> np.ndarray:
        """Return horizontal positions; values outside are at the ends. [px]"""
        inside = np.clip(self.x.fraction(np.asarray(values, dtype=float)), 0, 1)
        return np.asarray(self.left + inside * (self.right - self.left))

    def py(self, values: np.ndarray | float) -> np.ndarray:
        """Return vertical positions; SVG counts them from the top. [px]"""
        inside = np.clip(self.y.fraction(np.asarray(values, dtype=float)), 0, 1)
        return np.asarray(HEIGHT - _BOTTOM - inside * (HEIGHT - _TOP - _BOTTOM))


def _grid(plot: _Plot) -> list[str]:
    x, y, left, right = plot
    bottom = HEIGHT - _BOTTOM
    parts = []
    for tick in y.tick_values():
        at = float(plot.py(tick))
        parts.append(
            f'<path class="grid" d="M{left} {at:.1f}H{right}"/>'
            f'<text x="{left - _GAP_PX}" y="{at + 4:.1f}" text-anchor="end">'
            f"{escape(y.show(tick))}</text>"
        )
    for tick in x.tick_values():
        at = float(plot.px(tick))
        parts.append(
            f'<path class="grid" d="M{at:.1f} {_TOP}V{bottom}"/>'
            f'<text x="{at:.1f}" y="{bottom + 17}" text-anchor="middle">'
            f"{escape(x.show(tick))}</text>"
        )
    parts.append(
        f'<path class="axis" d="M{left} {_TOP}V{bottom}H{right}"/>'
        f'<text class="label" x="{(left + right) / 2:.0f}" y="{HEIGHT - 6}" '
        f'text-anchor="middle">{escape(x.label)}</text>'
        f'<text class="label" transform="translate(11 {(_TOP + bottom) / 2:.0f}) '
        f'rotate(-90)" text-anchor="middle">{escape(y.label)}</text>'
    )
    return parts


def _rule(plot: _Plot, rule: Rule) -> str:
    path = f"M{plot.left} {float(plot.py(rule.y or 0.0)):.1f}H{plot.right}"
    if rule.x is not None:
        path = f"M{float(plot.px(rule.x)):.1f} {_TOP}V{HEIGHT - _BOTTOM}"
    return f'<path class="rule" d="{path}"/>'


def _line(plot: _Plot, line: Line, index: int, shape: int) -> list[str]:
    x, y = plot.x, plot.y
    finite = np.isfinite(line.x) & np.isfinite(line.y)
    px, py = plot.px(line.x[finite]), plot.py(line.y[finite])
    if len(px) == 0:
        return []
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(px, py, strict=True))
    colour, dash = _stroke(index)
    if line.until is not None and line.low is not None and line.high is not None:
        edges = plot.px(line.until), plot.py(line.low), plot.py(line.high)
        return [
            f'<rect class="span" x="{a:.1f}" y="{top:.1f}" width="{max(b - a, 1):.1f}" '
            f'height="{bottom - top:.1f}" fill="{colour}"/>'
            for a, b, bottom, top in zip(px, *edges, strict=True)
        ]
    dashed = f' stroke-dasharray="{" ".join(map(str, dash))}"' if dash else ""
    parts = []
    if line.joined:
        parts.append(f'<path class="line" stroke="{colour}"{dashed} d="M{path}"/>')
    if line.low is not None and line.high is not None:
        low, high = plot.py(line.low[finite]), plot.py(line.high[finite])
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
        for at_x, at_y, full, value_x, value_y in points:
            style = f'stroke="{colour}" fill="{colour if full else "#fff"}"'
            told = f"{escape(x.show(value_x))}: {escape(y.show(value_y))}"
            name, where = "circle", f'cx="{at_x:.1f}" cy="{at_y:.1f}" r="4.5"'
            if shape:
                name, where = "path", f'd="M{at_x:.1f} {at_y:.1f}{_SHAPES[shape]}"'
            parts.append(
                f'<{name} {where} {style} stroke-width="2">'
                f"<title>{told}</title></{name}>"
            )
    return parts
