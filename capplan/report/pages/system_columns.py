"""Columns of compared systems: one table for the terminal, CSV, JSON and HTML."""

from collections.abc import Iterable
from typing import Any

from capplan.planning.compare.equal_hardware import OperatingPoint
from capplan.report.columns import Column, column, format_count, record
from capplan.report.fields import fields
from capplan.report.pages.candidates import pool_values
from capplan.report.sentences import shares
from capplan.units import format_duration

LATENCIES = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "longest_gap_s": "longest gap",
    "e2e_s": "e2e",
    "normalized_latency_s": "e2e per token",
}
"""Latencies compared, and their headings."""


def _latency(metric: str, level: float) -> Column:
    base = metric.removesuffix("_s")
    return Column(
        f"{base}_p{level:g}_s",
        lambda served: served.percentile_s(metric, level),
        f"p{level:g} {LATENCIES[metric]}",
        format_duration,
    )


COUNTS = fields("point", shares=shares)

SERVED = (
    *COUNTS,
    *(_latency(metric, level) for metric in LATENCIES for level in (50.0, 99.0)),
    Column(
        "normalized_latency_mean_s",
        lambda served: served.mean_s("normalized_latency_s"),
    ),
)
"""Columns of what a system does at one rate, a ``OperatingPoint``."""


def _both(metric: str) -> Column:
    return Column(
        metric,
        lambda served: [served.percentile_s(metric, level) for level in (50.0, 99.0)],
        f"{LATENCIES[metric]}, p50 and p99",
        lambda values_s: ", ".join(map(format_duration, values_s)),
        leaves=0 if metric in ("ttft_s", "tpot_s") else 1,
    )


BOTH = tuple(map(_both, LATENCIES))
"""Latencies of a ``OperatingPoint``, two to a column."""

PRICE = fields("system")
"""Columns of what a system needs, a ``SystemResult``."""

HELD, HELD_USERS, BINDING, *BUDGETS = fields("system_held")
ASKED = column("rate_per_s", "asked/s", format_count)
"""Rate at which users ask, who wait for their answers."""


def _curve_values(served: OperatingPoint) -> dict[str, Any]:
    """Return the values of a system at one load by the names of their columns."""
    users = {} if served.users is None else {"users": served.users}
    return {**users, "rate_per_s": served.rate_per_s, **record(SERVED, served)}


COLUMNS = (
    *PRICE,
    HELD,
    BINDING,
    *BUDGETS,
    *(each.within("served") for each in SERVED),
    *fields(
        "system_runs",
        pools=lambda row: pool_values(row.candidate),
        curve=lambda row: list(map(_curve_values, row.curve)),
    ),
)
"""All columns of a system, in the order of the CSV."""


def of_users(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of a system where users ask: their number for a rate."""
    return tuple(
        HELD_USERS if each.name == HELD.name else each
        for column in columns
        for each in (
            (ASKED.within("served"), column)
            if column.name == COUNTS[0].name
            else (column,)
        )
    )


AT_RATES = (
    column("name", path="0"),
    column("rate_per_s", path="1.rate_per_s"),
    *(each.within("1") for each in SERVED),
)
"""Columns of a system at a rate, a pair of its name and a ``OperatingPoint``."""
OF_USERS = (AT_RATES[0], column("users", path="1.users"), *AT_RATES[1:])
"""Those of a system with so many users."""
