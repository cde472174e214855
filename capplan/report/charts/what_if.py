"""Charts of a what-if: GPUs and dollars against what is varied."""

from collections.abc import Callable

import numpy as np

from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report.charts.svg_bars import Bar, bars
from capplan.report.charts.svg_chart import Axis, Line, figure
from capplan.report.columns import at, format_count
from capplan.report.page import Figure
from capplan.report.sentences import plural
from capplan.units import format_usd

_AMOUNTS = ("rate", "scale", "users", "slo-scale")
"""What may be an axis, the first that has several values."""
_MOST_LINES = 15
"""Lines that can be told apart."""
_MOST_BARS = 40

Value = Callable[[Cell], float | None]
"""Returns a figure of a cell; None where there is none."""


def figures(result: WhatIf) -> list[Figure]:
    """Return the charts of GPUs and, where prices are known, of dollars a month.

    Lines against the first amount that is varied, or a bar for each plan.
    """
    of: list[tuple[Value, str, Callable[[float], str]]]
    of = [(_gpus, "GPUs", format_count)]
    if any(_usd(cell) is not None for cell in result.cells):
        of.append((_usd, "$ per month", format_usd))
    axis = next((name for name in _AMOUNTS if len(result.vary.get(name, ())) > 1), None)
    if axis is None or len(_lines(result, axis, _gpus)) > _MOST_LINES:
        return [_bars(result, value, title, show) for value, title, show in of]
    return [_against(result, axis, value, title, show) for value, title, show in of]


def _gpus(cell: Cell) -> float | None:
    count = at(cell, "best.gpu_count")
    return None if count is None else float(count)


def _usd(cell: Cell) -> float | None:
    usd: float | None = at(cell, "best.cost.usd_per_month")
    return usd


def _amount(cell: Cell, axis: str) -> float:
    """Return where a cell lies on an axis; of rates those that it was planned for."""
    if axis == "rate":
        rate = at(cell, "plan.rate_per_s")
        return float("nan") if rate is None else float(rate)
    return float(cell.values[axis])


def _lines(result: WhatIf, axis: str, value: Value) -> list[Line]:
    """Return a line for each combination of what else is varied."""
    by_rest: dict[str, list[tuple[float, float]]] = {}
    for cell in result.cells:
        rest = {name: text for name, text in cell.values.items() if name != axis}
        label = ", ".join(f"{name} {text}" for name, text in rest.items())
        found = value(cell)
        point = _amount(cell, axis), float("nan") if found is None else found
        by_rest.setdefault(label, []).append(point)
    lines = []
    for label, points in by_rest.items():
        x, y = np.array(sorted(points)).T
        lines.append(Line(label, x, y, markers=True))
    return lines


def _against(
    result: WhatIf,
    axis: str,
    value: Value,
    title: str,
    show: Callable[[float], str],
) -> Figure:
    lines = _lines(result, axis, value)
    x = np.concatenate([line.x for line in lines])
    y = np.concatenate([line.y for line in lines])
    x, y = x[np.isfinite(x)], y[np.isfinite(y)]
    if not len(x) or not len(y):
        return _bars(result, value, title, show)
    heading = {"rate": "requests/s", "slo-scale": "limits ×"}.get(axis, axis)
    left = sum(value(cell) is None for cell in result.cells)
    return figure(
        f"{title} against {heading.removesuffix(' ×')}",
        Axis(heading, format_count, 0.9 * float(x.min()), 1.05 * float(x.max())),
        Axis(title, show, 0, 1.08 * float(y.max()) or 1.0),
        lines,
        caption=f"Without {plural(left, 'plan')} that is not feasible." if left else "",
    )


def _bars(
    result: WhatIf, value: Value, title: str, show: Callable[[float], str]
) -> Figure:
    rows = []
    for cell in result.cells[:_MOST_BARS]:
        found = value(cell)
        label = ", ".join(cell.values.values())
        rows.append(Bar(label, found, cell.status if found is None else show(found)))
    left = len(result.cells) - len(rows)
    return Figure(
        title,
        bars(title, rows),
        caption=f"Without {left} more plans." if left > 0 else "",
    )
