"""Columns of the candidates: one table for the terminal, CSV and HTML."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import JustifyMethod

from capplan.planning.cost import HOURS_PER_MONTH, HOURS_PER_YEAR
from capplan.units import format_duration, format_usd

DASH = "–"


def format_share(share: float) -> str:
    """Return a share in percent, rounded down: 98.996 % is below a target of 99 %.

    Examples
    --------
    >>> format_share(0.98996), format_share(1.0), format_share(0.57)
    ('98.99 %', '100 %', '57 %')
    """
    if not math.isfinite(share):
        return DASH
    # 0.57 * 10_000 is 5699.999...: the small term keeps it at 57 %.
    return f"{math.floor(share * 10_000 + 1e-6) / 100:g} %"


def format_count(count: float) -> str:
    """Return a count with thousands separated; three digits of a fraction.

    Examples
    --------
    >>> format_count(20000), format_count(12.3456), format_count(0.01234)
    ('20,000', '12.3', '0.0123')
    """
    if not math.isfinite(count):
        return DASH
    # From 999.5 on, three digits would round to 1e+03.
    if float(count).is_integer() or abs(count) >= 999.5:
        return f"{count:,.0f}"
    return f"{count:.3g}"


def format_fine_usd(amount: float) -> str:
    """Return dollars; below a dollar, three digits in place of whole cents.

    Examples
    --------
    >>> format_fine_usd(0.0414), format_fine_usd(99.6), format_fine_usd(0)
    ('$0.0414', '$99.60', '$0.00')
    """
    # From $0.995 on, three digits would round to $1.
    return f"${amount:.3g}" if 0 < abs(amount) < 0.995 else format_usd(amount)


class Column(NamedTuple):
    """One column of a table of results."""

    name: str  # in CSV
    value: Callable[[Any], Any]  # of a row; may be None
    heading: str = ""  # on the terminal and in HTML; empty: not shown there
    show: Callable[[Any], str] = str  # formats the value there
    justify: JustifyMethod = "right"

    def text(self, row: Any) -> str:
        """Return the value for people; a dash where there is none."""
        value = self.value(row)
        return DASH if value is None or value == "" else self.show(value)


def field_column(
    name: str,
    heading: str = "",
    show: Callable[[Any], str] = str,
    justify: JustifyMethod = "right",
) -> Column:
    """Return the column of the attribute ``name``."""
    return Column(name, lambda row: getattr(row, name), heading, show, justify)


def _price(name: str, field: str) -> Column:
    return Column(
        name, lambda row: None if row.price is None else getattr(row.price, field)
    )


def _per_hours(name: str, hours: int) -> Column:
    return Column(
        name, lambda row: None if row.usd_per_h is None else row.usd_per_h * hours
    )


def end_column(name: str, field: str, end: int) -> Column:
    """Return the column of one end of an interval that may be missing."""
    return Column(name, lambda row: (getattr(row, field) or (None, None))[end])


COLUMNS = (
    field_column("gpu", "GPU", justify="left"),
    field_column("tp", "TP"),
    field_column("status"),
    field_column("replica_count", "replicas", format_count),
    end_column("replica_count_low", "replica_count_range", 0),
    end_column("replica_count_high", "replica_count_range", 1),
    field_column("latency_source"),
    end_column("carried_low", "carried", 0),
    end_column("carried_high", "carried", 1),
    field_column("sweeps"),
    Column("doubts", lambda row: "; ".join(row.doubts)),
    field_column("kv_dtype"),
    field_column("gpu_count", "GPUs", format_count),
    field_column("lower_bound_gpu_count", "at least", format_count),
    field_column("slo_attainment", "attainment", format_share),
    end_column("slo_attainment_low", "slo_attainment_interval", 0),
    end_column("slo_attainment_high", "slo_attainment_interval", 1),
    field_column("attainment_by_class"),
    field_column("decided"),
    field_column("undecided_reason"),
    field_column("too_close"),
    field_column("coarse"),
    field_column("utilisation"),
    field_column("settled"),
    field_column("recovery_s"),
    field_column("counted_request_count"),
    field_column("sample_count"),
    field_column("warmup_s"),
    field_column("ttft_p99_s", "p99 TTFT", format_duration),
    field_column("tpot_p99_s", "p99 TPOT", format_duration),
    _price("usd_per_gpu_h", "usd_per_gpu_h"),
    field_column("usd_per_h", "$ per hour", format_usd),
    _per_hours("usd_per_month", HOURS_PER_MONTH),
    _per_hours("usd_per_year", HOURS_PER_YEAR),
    field_column("usd_per_million_output_tokens", "$ per Mtok out", format_fine_usd),
    field_column("usd_per_million_total_tokens"),
    field_column("binding", "binds", justify="left"),
    field_column("router"),
    field_column("scheduler"),
    field_column("caching_unused"),
    field_column("launch_line"),
    field_column("infeasible_reason"),
    field_column("pruned_reason"),
    _price("price_source", "source"),
    _price("price_as_of", "as_of"),
    _price("price_note", "note"),
    field_column("profile_note"),
    field_column("bound_note"),
)
"""All columns of a candidate, in the order of the CSV."""

SHOWN = tuple(column for column in COLUMNS if column.heading)
"""Columns of the table on the terminal and in HTML."""
