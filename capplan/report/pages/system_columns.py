"""Columns of compared systems: one table for the terminal, CSV, JSON and HTML."""

from collections.abc import Iterable, Sequence
from typing import Any

from capplan.planning.compare.equal_hardware import OperatingPoint
from capplan.report.columns import Column, column, format_count, record
from capplan.report.fields import fields
from capplan.report.pages.candidates import pool_values
from capplan.report.sentences import shares
from capplan.units import format_duration


def _p50_p99(values_s: Sequence[float]) -> str:
    """Return two of a mean and PERCENTILES."""
    return f"{format_duration(values_s[1])}, {format_duration(values_s[4])}"


COUNTS = fields("point", shares=shares)
SERVED = (*COUNTS, *fields("point_latency"))
"""Columns of what a system does at one rate, a ``OperatingPoint``."""
BOTH = fields("point_latencies", p50_p99=_p50_p99)
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
    found = [HELD_USERS if each.name == HELD.name else each for each in columns]
    asked = next(at for at, each in enumerate(found) if each.name == COUNTS[0].name)
    return (*found[:asked], ASKED.within("served"), *found[asked:])


AT_RATES = (
    column("name", path="0"),
    column("rate_per_s", path="1.rate_per_s"),
    *(each.within("1") for each in SERVED),
)
"""Columns of a system at a rate, a pair of its name and a ``OperatingPoint``."""
OF_USERS = (AT_RATES[0], column("users", path="1.users"), *AT_RATES[1:])
"""Those of a system with so many users."""
