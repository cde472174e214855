"""What a simulated deployment shows: one document that JSON, CSV and HTML share."""

from typing import Any

import numpy as np

from capplan.planning.cost import HOURS_PER_MONTH, HOURS_PER_YEAR
from capplan.planning.deployment_run import PERCENTILES, DeploymentRun
from capplan.planning.stream_run import StreamRun
from capplan.report.stream_values import stream_values

SCHEMA = "capplan.simulation/1"

LEVELS = np.concatenate([np.linspace(0, 0.99, 100), [0.995, 0.999, 1.0]])
"""Where the latency distributions are read off."""

METRICS = {
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "e2e_s": "arrival to last token",
    "wait_s": "arrival to first scheduling",
    "longest_gap_s": "longest gap between tokens",
    "normalized_latency_s": "e2e per output token",
}
"""Latencies of a run and what people call them."""

STATISTICS = ("mean", *(f"p{level:g}" for level in PERCENTILES))
"""Headings of what a run reports of each latency."""


def run_values(run: DeploymentRun | StreamRun) -> dict[str, Any]:
    """Return the run under the names of its fields, ready for JSON."""
    usd_per_h = run.usd_per_h
    values = {
        "schema": SCHEMA,
        "gpu": run.gpu or None,
        "tp": run.tp,
        "replica_count": run.replica_count,
        "gpu_count": run.gpu_count,
        "slo_attainment": None if run.attainment is None else run.attainment.share,
        "slo_attainment_interval": (
            None if run.attainment is None else run.attainment.interval
        ),
        "attainment_by_limit": (
            None if run.attainment is None else run.attainment.by_limit
        ),
        "attainment_by_class": (
            None if run.attainment is None else run.attainment.by_class
        ),
        "stable": run.stable,
        "goodput_per_s": run.goodput_per_s,
        "output_tokens_per_s": run.output_tokens_per_s,
        "usd_per_h": usd_per_h,
        "usd_per_month": None if usd_per_h is None else usd_per_h * HOURS_PER_MONTH,
        "usd_per_year": None if usd_per_h is None else usd_per_h * HOURS_PER_YEAR,
        "price": run.price,
        "warmup_s": run.warmup_s,
        "slo_text": slo_text(run),
        "limits": run.engine,
        "profile_note": run.profile_note,
        "latency": {
            name: dict(zip(STATISTICS, run.percentiles[name], strict=True))
            for name in METRICS
        },
        "quantile_levels": LEVELS,
        "warnings": run.warnings,
    }
    own = stream_values(run, LEVELS) if isinstance(run, StreamRun) else _table(run)
    return {**values, **own}


def _table(run: DeploymentRun) -> dict[str, Any]:
    """Return what is read off the table of requests."""
    times = run.simulation.times
    counted = times.arrival_s >= run.warmup_s
    return {
        "busy_share": busy_share(run),
        "preemptions": int(times.preemptions.sum()),
        "request_count": len(times),
        "completed": run.simulation.completed,
        "iteration_count": run.simulation.iteration_count,
        "trace_source": run.trace.source,
        "trace_notes": run.trace.notes,
        "rate_per_s": run.trace.rate_per_s,
        "duration_s": run.trace.duration_s,
        "mean_prompt_tokens": float(run.trace.prompt_tokens.mean()),
        "mean_output_tokens": float(run.trace.output_tokens.mean()),
        "ttft_quantiles_s": quantiles(times.ttft_s[counted]),
        "tpot_quantiles_s": quantiles(times.tpot_s[counted]),
        "e2e_quantiles_s": quantiles(times.e2e_s[counted]),
        "series": run.simulation.series,
        "interrupted": run.interrupted_of is not None,
    }


def quantiles(values_s: np.ndarray) -> np.ndarray:
    """Return the values at LEVELS; NaN where there are none. [s]"""
    known = values_s[~np.isnan(values_s)]
    return np.quantile(known, LEVELS) if known.size else np.full(len(LEVELS), np.nan)


def busy_share(run: DeploymentRun) -> float:
    """Return the share of replica time in which an iteration ran."""
    times = run.simulation.times
    span_s = float(np.nanmax(times.finish_s) - times.arrival_s[0])
    available_s = span_s * run.replica_count
    return run.simulation.busy_s / available_s if available_s > 0 else 0.0


def slo_text(run: DeploymentRun | StreamRun) -> str | None:
    """Return the limits as a reader writes them; None where none were given."""
    if run.slo is None:
        return None
    names = run.class_names
    if len(names) == 1:
        return str(run.slo.of_class(names[0]))
    return "; ".join(f"{name}: {run.slo.of_class(name)}" for name in names)


def shared_limits_s(run: DeploymentRun | StreamRun) -> dict[str, float]:
    """Return the limits that hold for every class alike. [s]"""
    if run.slo is None:
        return {}
    names = run.class_names
    columns = run.slo.columns(np.arange(len(names)), names)
    return {
        name: float(limits_s[0])
        for name, limits_s in zip(("ttft", "tpot", "e2e"), columns, strict=True)
        if np.isfinite(limits_s).all() and (limits_s == limits_s[0]).all()
    }
