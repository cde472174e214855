"""Values of a simulated deployment, shared by JSON and HTML."""

from typing import Any

from capplan.planning.cost import HOURS_PER_MONTH, HOURS_PER_YEAR
from capplan.planning.judgement import LEVELS, PERCENTILES
from capplan.planning.run import Run
from capplan.simulator.histogram import RELATIVE_ERROR

SCHEMA = "capplan.simulation/1"

METRICS = {
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "e2e_s": "arrival to last token",
    "wait_s": "arrival to first scheduling",
    "longest_gap_s": "longest gap between tokens",
    "normalized_latency_s": "e2e per output token",
}
"""Latencies of a run and their labels."""

STATISTICS = ("mean", *(f"p{level:g}" for level in PERCENTILES))
"""Headings of the statistics of each latency."""


def run_values(run: Run) -> dict[str, Any]:
    """Return the keys and values of ``simulation.json``."""
    usd_per_h, judgement, simulation = run.usd_per_h, run.judgement, run.simulation
    attainment, totals = judgement.attainment, simulation.totals
    values = {
        "schema": SCHEMA,
        "gpu": run.gpu or None,
        "tp": run.tp,
        "replica_count": run.replica_count,
        "gpu_count": run.gpu_count,
        "slo_attainment": attainment and attainment.share,
        "slo_attainment_interval": attainment and attainment.interval,
        "attainment_by_limit": attainment and attainment.by_limit,
        "attainment_by_class": attainment and attainment.by_class,
        "classes": judgement.classes,
        "stable": judgement.stable,
        "utilisation": judgement.steadiness.known_utilisation,
        "settled": judgement.steadiness.settled,
        "recovery_s": judgement.steadiness.recovery_s,
        "undecided_reason": judgement.open or None,
        "goodput_per_s": run.goodput_per_s,
        "output_tokens_per_s": run.output_tokens_per_s,
        "span_output_tokens_per_s": run.span_output_tokens_per_s,
        "usd_per_h": usd_per_h,
        "usd_per_month": None if usd_per_h is None else usd_per_h * HOURS_PER_MONTH,
        "usd_per_year": None if usd_per_h is None else usd_per_h * HOURS_PER_YEAR,
        "price": run.price,
        "warmup_s": judgement.warmup_s,
        "counted_request_count": judgement.counted_request_count,
        "sample_count": judgement.sample_count,
        "slo_text": run.slo and run.slo.describe(simulation.class_names),
        "limits": run.engine,
        "launch_line": run.launch and run.launch.line,
        "launch_notes": run.launch and run.launch.notes,
        "profile_note": run.profile_note,
        "latency": {
            name: dict(zip(STATISTICS, judgement.percentiles[name], strict=True))
            for name in METRICS
        },
        "quantile_levels": LEVELS,
        "warnings": run.warnings,
        "busy_share": simulation.busy_share,
        "preemptions": totals.preemptions,
        "request_count": totals.request_count,
        "completed": simulation.completed,
        "iteration_count": simulation.iteration_count,
        "trace_source": run.trace_source,
        "trace_notes": run.trace_notes,
        "rate_per_s": totals.rate_per_s,
        "duration_s": totals.duration_s,
        "mean_prompt_tokens": totals.prompt_tokens / totals.request_count,
        "mean_output_tokens": totals.output_tokens / totals.request_count,
        "ttft_quantiles_s": judgement.quantiles_s["ttft_s"],
        "tpot_quantiles_s": judgement.quantiles_s["tpot_s"],
        "e2e_quantiles_s": judgement.quantiles_s["e2e_s"],
        "series": simulation.series,
        "interrupted": simulation.interrupted,
    }
    if simulation.times is None:  # percentiles come from a histogram
        values["percentile_error"] = RELATIVE_ERROR
    return values
