"""The page of a simulated deployment."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from capplan.deployment.pools import PREFILL
from capplan.planning.configure.scheduling import scheduling
from capplan.planning.evaluate.classes import own_targets
from capplan.planning.evaluate.judgement import LEVELS, PERCENTILES
from capplan.planning.evaluate.run import Run
from capplan.report import sentences, window_sentences
from capplan.report.charts.fleet import fleet_figures, latency_figures
from capplan.report.charts.motion import motion_figures
from capplan.report.charts.plan import run_curve
from capplan.report.charts.sessions import session_figures
from capplan.report.columns import (
    column,
    format_count,
    format_fine_usd,
    format_share,
    record,
)
from capplan.report.fields import fields
from capplan.report.page import FILES, Fact, Figure, Page, Section, Table
from capplan.report.pages.classes import classes_section, classes_table
from capplan.report.pages.motion import motion_section, motion_values
from capplan.report.pages.plan import launch_section
from capplan.report.pages.served import kv_cache
from capplan.report.pages.tier import tier_fact, tier_values
from capplan.simulator.results.histogram import RELATIVE_ERROR
from capplan.units import format_duration

SCHEMA = "capplan.simulation/2"

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


def run_page(run: Run) -> Page:
    """Return the page of a simulated deployment."""
    gpu = run.configuration.gpu
    rows = [
        (name, label, run.judgement.percentiles[name])
        for name, label in METRICS.items()
        if name in run.judgement.percentiles  # a plan keeps those that it judges by
    ]
    latencies = Table(
        (
            column("", "latency", justify="left", path="1"),
            column("metric", path="0"),
            *(
                column(name, name, format_duration, path=f"2.{k}")
                for k, name in enumerate(STATISTICS)
            ),
        ),
        rows,
    )
    return Page(
        "simulation",
        str(run.deployment),
        f"one deployment, simulated{f' · {gpu}' if gpu else ''}",
        [
            Section("Results", facts=_facts(run)),
            classes_section(run.judgement.classes),
            motion_section(run),
            Section("Latency", tables=[latencies]),
            Section("Sessions", figures=partial(session_figures, run)),
            Section("Latency and the fleet over time", figures=partial(_figures, run)),
            launch_section(run.prefill_launch, PREFILL),
            launch_section(run.launch, run.deployment.roles[-1]),
            Section("Engine settings", facts=sentences.engine_facts(run), only=FILES),
        ],
        values=partial(run_values, run),
        csv={"simulation.csv": latencies, "classes.csv": classes_table([run])},
        warnings=run.warnings,
    )


def run_values(run: Run) -> dict[str, Any]:
    """Return the keys and values of ``simulation.json``."""
    columns = fields(
        "run",
        slo_text=lambda of: of.slo and of.slo.describe(of.simulation.class_names),
        latency=_latency,
        quantile_levels=lambda of: LEVELS,
    )
    values = {"schema": SCHEMA, **record(columns, run), **motion_values(run)}
    values |= tier_values(run)
    if run.simulation.times is None:  # percentiles come from a histogram
        values["percentile_error"] = RELATIVE_ERROR
    return values


def _latency(run: Run) -> dict[str, dict[str, float]]:
    known = run.judgement.percentiles
    return {
        name: dict(zip(STATISTICS, known[name], strict=True))
        for name in METRICS
        if name in known
    }


def _figures(run: Run) -> Sequence[Figure]:
    names, judgement = run.simulation.class_names, run.judgement
    limits_s = {} if run.slo is None else run.slo.shared_limits_s(names)
    target = None
    if run.slo is not None and not own_targets(judgement.classes):
        target = run.slo.shared_target(names)
    curve = run_curve(str(run.deployment), run)
    return [
        *latency_figures([curve], target, limits_s),
        *fleet_figures(run.simulation.series),
        *motion_figures(run),
    ]


def _facts(run: Run) -> list[Fact]:
    totals = run.simulation.totals
    return [
        ("interrupted", sentences.interruption(run)),
        (
            "serves",
            sentences.traffic(
                totals.rate_per_s, totals.mean_prompt_tokens, totals.mean_output_tokens
            ),
        ),
        *_objective_facts(run),
        ("throughput", _throughput(run)),
        (
            "iterations",
            f"{format_share(run.busy_share)} of the time, if only with one request",
        ),
        ("KV cache", kv_cache(run)),
        ("sessions", sentences.sessions_fact(run)),
        ("tier", tier_fact(run)),
        ("preemptions", format_count(totals.preemptions)),
        ("backlog", "" if run.judgement.stable else "keeps growing: too few replicas"),
        ("nodes", sentences.nodes(run)),
        ("costs", _cost(run)),
        ("engine", scheduling(run.configuration.engine)),
        ("latency", run.configuration.note),
        ("simulated", _requests(run)),
        ("noted", "; ".join(run.trace_notes)),
    ]


def _objective_facts(run: Run) -> list[Fact]:
    attainment = run.judgement.attainment
    if attainment is None or run.slo is None:
        return []
    asked = run.slo.describe_targets(run.simulation.class_names)
    return [
        ("within", run.slo.describe(run.simulation.class_names)),
        ("in time", sentences.attained(run.judgement, asked, sentences.judged(run))),
        *window_sentences.windows(run.judgement),
        ("load", sentences.load(run.judgement)),
        ("each limit", sentences.shares(attainment.by_limit)),
    ]


def _throughput(run: Run) -> str:
    goodput = run.goodput_per_s
    met = "" if goodput is None else f"; {format_count(goodput)} requests/s in time"
    span = ""
    if run.span_output_tokens_per_s is not None:
        span = f", {format_count(run.span_output_tokens_per_s)} until the last arrival"
    to_end = format_count(run.output_tokens_per_s)
    to = "" if run.simulation.totals.answers is not None else " to the last token"
    return f"{to_end} output tokens/s{to}{span}{met}"


def _cost(run: Run) -> str:
    if run.cost is None:
        return ""
    terms = " + ".join(
        f"{format_count(hour.quantity)} {hour.quantity_unit} × "
        f"{format_fine_usd(hour.unit_price_usd)}"
        for hour in run.cost.lines[: len(run.cost.nodes)]
    )
    return f"{terms} = {format_fine_usd(run.cost.usd_per_h)} per hour"


def _requests(run: Run) -> str:
    totals = run.simulation.totals
    return (
        f"{format_count(totals.request_count)} requests over "
        f"{format_duration(totals.duration_s)} of {run.trace_source}; "
        f"{sentences.counted(run.judgement, totals.request_count)}"
    )
