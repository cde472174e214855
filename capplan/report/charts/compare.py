"""Charts of compared systems: goodput and latency against the load, and the price."""

import math
from collections.abc import Callable

import numpy as np

from capplan.planning.compare.compare import Comparison
from capplan.planning.compare.equal_hardware import OperatingPoint
from capplan.planning.compare.system_price import SystemResult
from capplan.report.charts.svg_bars import Bar, bars
from capplan.report.charts.svg_chart import Axis, Line, figure
from capplan.report.columns import at, format_count
from capplan.report.page import Figure
from capplan.report.sentences import plural
from capplan.units import format_usd


def figures(comparison: Comparison) -> list[Figure]:
    """Return the charts that a comparison has data for."""
    drawn = sorted((row for row in comparison.systems if row.curve), key=_gpus)
    return [_goodput(comparison, drawn), _latency(comparison, drawn)] if drawn else []


def _gpus(row: SystemResult) -> float:
    """Return the GPUs that a system needs: of many, those that need least are told."""
    return float(at(row, "candidate.gpu_count") or math.inf)


def _lines(
    drawn: list[SystemResult], value: Callable[[OperatingPoint], float]
) -> list[Line]:
    return [
        Line(
            row.name,
            np.array([_amount(served) for served in row.curve], float),
            np.array([value(served) for served in row.curve], float),
            markers=len(row.curve) == 1,
        )
        for row in drawn
    ]


def _amount(served: OperatingPoint) -> float:
    """Return the rate, or the users who ask. [requests/s, or users]"""
    return served.rate_per_s if served.users is None else served.users


def _load_axis(comparison: Comparison) -> Axis:
    amounts, what = comparison.rates_per_s, "requests/s"
    if comparison.asked_by is not None:
        amounts, what = comparison.users_of_curves, "users"
    return Axis(what, format_count, 0.9 * amounts[0], 1.05 * amounts[-1])


def _against(comparison: Comparison) -> str:
    return "rate" if comparison.asked_by is None else "users"


def _goodput(comparison: Comparison, drawn: list[SystemResult]) -> Figure:
    lines = _lines(drawn, lambda served: served.goodput_per_s or 0.0)
    most = max(float(line.y.max()) for line in lines) or 1.0
    y = Axis("requests/s in time", format_count, 0, 1.08 * most)
    title = f"Goodput against {_against(comparison)}"
    return figure(title, _load_axis(comparison), y, lines)


def _latency(comparison: Comparison, drawn: list[SystemResult]) -> Figure:
    lines = _lines(drawn, lambda served: served.mean_s("normalized_latency_s"))
    ends = np.concatenate([line.y[np.isfinite(line.y)] for line in lines])
    low, high = float(ends.min()) / 1.2, float(ends.max()) * 1.2
    beyond = (
        " Above the highest rate that a system holds it grows with the length of the "
        "sample; far above it the curve ends."
    )
    if comparison.asked_by is not None:
        beyond = " Users who wait longer ask less."
    return figure(
        f"Latency against {_against(comparison)}",
        _load_axis(comparison),
        Axis("mean e2e per token, s", format_count, low, high, log=high / low > 3),
        lines,
        caption=f"Mean of the end-to-end time over the output tokens.{beyond}",
    )


def finding(comparison: Comparison) -> Figure:
    """Return what each system takes, the least and the most as the title."""
    priced = any(at(row, "candidate.cost") for row in comparison.systems)
    rows = []
    for row in comparison.systems:
        best = row.candidate
        if best is None or best.gpu_count is None:
            rows.append(Bar(row.name, None, row.status))
            continue
        value, text = float(best.gpu_count), plural(best.gpu_count, "GPU")
        if best.cost is not None:
            value = best.cost.usd_per_month
            text = format_usd(value)
        elif priced:
            rows.append(Bar(row.name, None, f"{text}, no price"))
            continue
        bound = best.lower_bound_gpu_count
        mark = None if bound is None else value * bound / best.gpu_count
        rows.append(Bar(row.name, value, text, mark))
    drawn = sorted((row for row in rows if row.value), key=lambda row: row.value or 0)
    title = "No system serves these requests in time"
    if drawn:
        low, high = drawn[0].text, drawn[-1].text + " a month" * priced
        title = (
            f"From {low} to {high}" if low != drawn[-1].text else f"Each takes {high}"
        )
    caption = "For the rate asked. White line: no scheduler takes less."
    if comparison.asked_by is not None:
        caption = f"For {comparison.asked_by}."
    return Figure(title, bars(title, rows), caption=caption)
