"""Columns of compared systems: one table for the terminal, CSV, JSON and HTML."""

from collections.abc import Callable
from typing import Any

from capplan.planning.cost import HOURS_PER_MONTH
from capplan.planning.equal_hardware import Served
from capplan.report.columns import (
    Column,
    field_column,
    format_count,
    format_share,
)
from capplan.units import format_duration, format_usd
from capplan.workload.predictors import PredictionError

LATENCIES = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "longest_gap_s": "longest gap",
    "e2e_s": "e2e",
    "normalized_latency_s": "e2e per token",
}
"""Latencies compared, and their headings."""


def on(column: Column) -> Column:
    """Return a column of Served as one of a system on equal hardware."""

    def value(row: Any) -> Any:
        return None if row.served is None else column.value(row.served)

    return column._replace(value=value)


def _best(
    name: str, heading: str = "", show: Callable[[Any], str] = str, times: float = 1
) -> Column:
    """Return the column of a field of the best candidate, ``times`` a factor."""

    def value(row: Any) -> Any:
        found = None if row.candidate is None else getattr(row.candidate, name)
        return found * times if found is not None and times != 1 else found

    return Column(name, value, heading, show)


def _gpus(of: str) -> Column:
    """Return the column of the GPUs with one kind of seats and token budget."""

    def value(row: Any) -> Any:
        found = getattr(row, of)
        return None if found is None else found.gpu_count

    return Column(f"{of}_gpu_count", value, f"GPUs, {of}", format_count)


def _served_with(name: str) -> Column:
    """Return the column of an engine setting on equal hardware."""
    return Column(
        name, lambda row: getattr(row.served_engine, name, None), name, format_count
    )


def _latency(metric: str, level: float) -> Column:
    base = metric.removesuffix("_s")
    return Column(
        f"{base}_p{level:g}_s",
        lambda served: served.percentile_s(metric, level),
        f"p{level:g} {LATENCIES[metric]}",
        format_duration,
    )


def _interval(name: str, end: int) -> Column:
    return Column(
        name, lambda served: (served.slo_attainment_interval or (None, None))[end]
    )


def _error(part: str) -> Column:
    return Column(
        f"prediction_error_{part}",
        lambda row: getattr(row.prediction_error, part, None),
    )


def classes_text(shares: dict[str, float]) -> str:
    """Return the attainment of each class; a dash for one class."""
    return ", ".join(f"{name} {format_share(share)}" for name, share in shares.items())


COUNTS = (
    field_column("slo_attainment", "attained", format_share),
    _interval("slo_attainment_low", 0),
    _interval("slo_attainment_high", 1),
    field_column("attainment_by_class", "by class", classes_text, "left"),
    field_column("goodput_per_s", "goodput/s", format_count),
    field_column("output_tokens_per_s", "tokens/s to the end", format_count),
    field_column("span_output_tokens_per_s", "in the span", format_count),
    field_column("request_count"),
    field_column("preemptions", "preemptions", format_count),
    field_column("swaps", "swaps", format_count),
    field_column("paused_s", "mean pause", format_duration),
)

SERVED = (
    *COUNTS,
    *(_latency(metric, level) for metric in LATENCIES for level in (50.0, 99.0)),
    Column(
        "normalized_latency_mean_s",
        lambda served: served.mean_s("normalized_latency_s"),
    ),
)
"""Columns of what a system does at one rate, a ``Served``."""


def _both(metric: str) -> Column:
    return Column(
        metric,
        lambda served: [served.percentile_s(metric, level) for level in (50.0, 99.0)],
        f"{LATENCIES[metric]}, p50 and p99",
        lambda values_s: ", ".join(map(format_duration, values_s)),
    )


BOTH = tuple(map(_both, LATENCIES))
"""Latencies of a ``Served``, two to a column."""

PRICE = (
    field_column("name", "system", justify="left"),
    field_column("status"),
    _best("gpu", "GPU")._replace(justify="left"),
    _best("tp", "TP"),
    _best("gpu_count", "GPUs", format_count),
    _gpus("tuned"),
    _gpus("published"),
    _best("replica_count", "replicas", format_count),
    _best("lower_bound_gpu_count", "at least", format_count),
    _best("usd_per_h"),
    _best("usd_per_h", "$ per month", format_usd, HOURS_PER_MONTH)._replace(
        name="usd_per_month"
    ),
    _best("decided"),
    _best("too_close"),
    _best("binding", "binds")._replace(justify="left"),
    Column("infeasible_reason", lambda row: row.reason),
    field_column("room_tokens"),
    field_column("refused_share"),
    field_column("refused_token_share"),
)
"""Columns of what a system needs, a ``SystemResult``."""

HELD = field_column("max_rate_per_s", "max rate/s", format_count)

BINDING = field_column("binding_setting", "binds")._replace(justify="left")
BUDGETS = (_served_with("max_num_batched_tokens"), _served_with("max_num_seqs"))

COLUMNS = (
    *PRICE,
    HELD,
    BINDING,
    *BUDGETS,
    *map(on, SERVED),
    field_column("not_served"),
    field_column("scheduler"),
    field_column("router"),
    field_column("predictor"),
    *(_error(part) for part in PredictionError._fields),
    field_column("published_prediction_error"),
    field_column("predictions_matter"),
    field_column("given"),
    field_column("source"),
)
"""All columns of a system, in the order of the CSV."""

_TERMINAL: tuple[str, ...] = (
    "name",
    "tuned_gpu_count",
    "published_gpu_count",
    "lower_bound_gpu_count",
    "usd_per_month",
)
_TERMINAL += ("slo_attainment", "goodput_per_s", "max_rate_per_s", "ttft_p99_s")
_TERMINAL += ("tpot_p99_s", "e2e_p99_s", "output_tokens_per_s")
_TERMINAL += ("span_output_tokens_per_s", "binding_setting")
_BY_NAME = {column.name: column for column in COLUMNS}
SHOWN = tuple(_BY_NAME[name] for name in _TERMINAL)
"""Columns of the table on the terminal."""


def _of_pair(column: Column) -> Column:
    return column._replace(value=lambda pair: column.value(pair[1]))


AT_RATES = (
    Column("name", lambda pair: pair[0]),
    _of_pair(field_column("rate_per_s")),
    *map(_of_pair, SERVED),
)
"""Columns of a system at a rate, a pair of its name and a ``Served``."""


def curve_values(served: Served) -> dict[str, Any]:
    """Return the values of a system at a rate by the names of their columns."""
    values = {column.name: column.value(served) for column in SERVED}
    return {"rate_per_s": served.rate_per_s, **values}
