"""The chart of a capacity: the rate that each fleet carries, and its bound."""

from capplan.planning.size.capacity import Capacity, Served
from capplan.report.charts.svg_bars import Bar, bars
from capplan.report.columns import format_count, plural
from capplan.report.page import Figure

_MOST_BARS = 12


def finding(capacity: Capacity) -> Figure | None:
    """Return the rate that each fleet carries, the best one's as title.

    None of a single fleet, which the tiles say, and of none that carries anything. For
    users who wait for their answers no bound is known.
    """
    best = capacity.best
    if best.max_rate_per_s is None or len(capacity.rows) < 2:
        return None
    rows = [_bar(row) for row in capacity.rows[:_MOST_BARS]]
    carry = "carries" if best.deployment.gpu_count == 1 else "carry"
    gpus = plural(best.deployment.gpu_count, f"{best.pool.configuration.gpu} GPU")
    layout = best.pool.configuration.layout.text
    title = f"{gpus} {carry} {format_count(best.max_rate_per_s)} requests/s as {layout}"
    caption = "Requests/s in time; no scheduler carries more than the bound."
    return Figure(title, bars(title, rows), caption=caption)


def _bar(row: Served) -> Bar:
    rate, bound = row.max_rate_per_s, row.upper_bound_rate_per_s
    most = "" if bound is None else f", bound {format_count(bound)}"
    text = "none in time" if rate is None else f"{format_count(rate)}{most}"
    return Bar(f"{row.pool.configuration}, {row.slo_text}", rate, text)
