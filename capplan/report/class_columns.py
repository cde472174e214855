"""Columns of the classes of a run: one table for the terminal, CSV and HTML."""

from capplan.planning.classes import ClassResult
from capplan.report.columns import (
    Column,
    end_column,
    field_column,
    format_count,
    format_share,
)
from capplan.units import format_duration

MOST_SHOWN = 20
"""Rows shown to people; all are in the files."""


def _interval_text(interval: tuple[float, float]) -> str:
    low, high = map(format_share, interval)
    return f"{low} to {high}"


COLUMNS = (
    field_column("class_name", "class", justify="left"),
    field_column("slo_text", "limits", justify="left"),
    field_column("attainment", "asked", format_share),
    Column("attainment_of", lambda row: "; ".join(row.attainment_of)),
    field_column("slo_attainment", "attained", format_share),
    Column(
        "",  # two columns in CSV
        lambda row: row.slo_attainment_interval,
        "95 % interval",
        _interval_text,
    ),
    end_column("slo_attainment_low", "slo_attainment_interval", 0),
    end_column("slo_attainment_high", "slo_attainment_interval", 1),
    field_column("counted_request_count", "requests", format_count),
    field_column("ttft_p99_s", "p99 TTFT", format_duration),
    field_column("tpot_p99_s", "p99 TPOT", format_duration),
    field_column("e2e_p99_s", "p99 e2e", format_duration),
)
"""Columns of a class; ``attainment`` may be asked of several classes together."""

SHOWN = tuple(column for column in COLUMNS if column.heading)
IN_FILES = tuple(column for column in COLUMNS if column.name)


def shown(classes: tuple[ClassResult, ...]) -> tuple[ClassResult, ...]:
    """Return the classes to show: all, or those closest to their target and below."""
    if len(classes) <= MOST_SHOWN:
        return classes
    near = sorted(classes, key=lambda row: row.slo_attainment - row.attainment)
    return tuple(near[:MOST_SHOWN])


def note(classes: tuple[ClassResult, ...]) -> str:
    """Return what the table leaves out, or asks of several classes together."""
    parts = []
    if len(classes) > MOST_SHOWN:
        parts.append(
            f"{MOST_SHOWN} of {len(classes):,} classes, those closest to their target "
            "or below it; all are in classes.csv"
        )
    for group in dict.fromkeys(row.attainment_of for row in classes):
        if len(group) > 1:
            target = next(row.attainment for row in classes if row.class_name in group)
            of = "all classes" if len(group) == len(classes) else " and ".join(group)
            parts.append(f"{format_share(target)} is asked of {of} together")
    return "; ".join(parts)
