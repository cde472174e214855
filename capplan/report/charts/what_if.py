"""Charts of a what-if: GPUs and dollars against what is varied."""

from collections.abc import Callable
from functools import partial

import numpy as np

from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report.charts.svg_bars import Bar, bars
from capplan.report.charts.svg_chart import MOST_LINES, Axis, Line, figure
from capplan.report.columns import at, format_count
from capplan.report.page import Figure
from capplan.report.sentences import plural
from capplan.units import format_usd, in_shown_currency

_AMOUNTS = ("rate", "scale", "users", "slo-scale")
"""What may be an axis, the first that has several values."""
_MOST_BARS = 40

_USD = "best.cost.usd_per_month"
"""Path of a cell's dollars a month."""

Shown = tuple[str, str, Callable[[float], str]]
"""Path of a figure of a cell, its title, and what formats it."""
_GPUS: Shown = "best.gpu_count", "GPUs", format_count


def figures(result: WhatIf) -> list[Figure]:
    """Return the chart of GPUs where :func:`finding` has dollars; else none."""
    return [_drawn(result, _GPUS)] if _is_priced(result) else []


def finding(result: WhatIf) -> Figure | None:
    """Return dollars a month, the least and the most as title; without prices GPUs.

    None where no plan is feasible.
    """
    shown = _GPUS
    if _is_priced(result):
        symbol, _ = in_shown_currency(0.0)
        shown = _USD, f"{symbol.strip()} per month", partial(format_usd, digits=0)
    path, _, show = shown
    known = [cell for cell in result.cells if at(cell, path) is not None]
    if not known:
        return None
    known.sort(key=lambda cell: float(at(cell, path)))
    low, high = (show(at(known[end], path)) for end in (0, -1))
    unit = "GPUs" if shown is _GPUS else "a month"
    names = [name for name, values in result.vary.items() if len(values) > 1]
    first, last = (
        ", ".join(f"{name} {known[end].values[name]}" for name in names)
        for end in (0, -1)
    )
    said = f"From {low} {unit} ({first}) to {high} ({last})"
    said = f"Each takes {low} {unit}" if low == high else said
    return _drawn(result, shown)._replace(title=said)


def _is_priced(result: WhatIf) -> bool:
    return any(at(cell, _USD) is not None for cell in result.cells)


def _drawn(result: WhatIf, shown: Shown) -> Figure:
    """Return lines against the first amount that is varied, or a bar for each plan."""
    axis = next((name for name in _AMOUNTS if len(result.vary.get(name, ())) > 1), None)
    if axis is None or len(_lines(result, axis, shown[0])) > MOST_LINES:
        return _bars(result, shown)
    return _against(result, axis, shown)


def _amount(cell: Cell, axis: str) -> float:
    """Return where a cell lies on an axis; of rates those that it was planned for."""
    if axis == "rate":
        return _number(at(cell, "plan.rate_per_s"))
    return float(cell.values[axis])


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _lines(result: WhatIf, axis: str, path: str) -> list[Line]:
    """Return a line for each combination of what else is varied."""
    by_rest: dict[str, list[tuple[float, float]]] = {}
    for cell in result.cells:
        rest = {name: text for name, text in cell.values.items() if name != axis}
        label = ", ".join(f"{name} {text}" for name, text in rest.items())
        point = _amount(cell, axis), _number(at(cell, path))
        by_rest.setdefault(label, []).append(point)
    lines = []
    for label, points in by_rest.items():
        x, y = np.array(sorted(points)).T
        lines.append(Line(label, x, y, markers=True))
    return lines


def _against(result: WhatIf, axis: str, shown: Shown) -> Figure:
    path, title, show = shown
    lines = _lines(result, axis, path)
    x = np.concatenate([line.x for line in lines])
    y = np.concatenate([line.y for line in lines])
    x, y = x[np.isfinite(x)], y[np.isfinite(y)]
    if not len(x) or not len(y):
        return _bars(result, shown)
    heading = {"rate": "requests/s", "slo-scale": "limits ×"}.get(axis, axis)
    left = sum(at(cell, path) is None for cell in result.cells)
    return figure(
        f"{title} against {heading.removesuffix(' ×')}",
        Axis(heading, format_count, 0.9 * float(x.min()), 1.05 * float(x.max())),
        Axis(title, show, 0, 1.08 * float(y.max()) or 1.0),
        lines,
        caption=f"{plural(left, 'infeasible plan')} not drawn." if left else "",
    )


def _bars(result: WhatIf, shown: Shown) -> Figure:
    path, title, show = shown
    rows = []
    for cell in result.cells[:_MOST_BARS]:
        found = at(cell, path)
        label = ", ".join(cell.values.values())
        rows.append(Bar(label, found, cell.status if found is None else show(found)))
    left = len(result.cells) - len(rows)
    return Figure(
        title,
        bars(title, rows),
        caption=f"{plural(left, 'more plan')} not drawn." if left > 0 else "",
    )
