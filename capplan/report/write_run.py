"""A simulated deployment as JSON, CSV and HTML."""

import csv
import io

from capplan.planning.judgement import LEVELS
from capplan.planning.run import Run
from capplan.report import answer
from capplan.report.columns import format_count, format_fine_usd, format_share
from capplan.report.fleet_charts import Curve, fleet_figures, latency_figures
from capplan.report.page import render_page
from capplan.report.run_values import (
    METRICS,
    STATISTICS,
    run_values,
)
from capplan.report.write_json import plain, render
from capplan.units import format_duration


def run_json(run: Run) -> str:
    """Return the run as JSON; what is not a finite number is null."""
    return render(plain(run_values(run))) + "\n"


def run_csv(run: Run) -> str:
    """Return the latencies as CSV: one row per metric, in seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["metric", *STATISTICS])
    for name in METRICS:
        values = plain(run.judgement.percentiles[name])
        writer.writerow([name, *("" if value is None else value for value in values)])
    return text.getvalue()


def run_html(run: Run) -> str:
    """Return the run as a self-contained page; every text is escaped."""
    values = run_values(run)
    curve = Curve(
        str(run.deployment),
        LEVELS,
        {metric: values[f"{metric}_quantiles_s"] for metric in ("ttft", "tpot", "e2e")},
    )
    names = run.simulation.class_names
    limits_s = {} if run.slo is None else run.slo.shared_limits_s(names)
    target = None if run.slo is None else run.slo.attainment
    return render_page(
        "simulation.html.j2",
        run=run,
        values=values,
        title=str(run.deployment),
        facts=run_facts(run),
        metrics=METRICS,
        statistics=STATISTICS,
        figures=[
            *latency_figures([curve], target, limits_s),
            *fleet_figures(values["series"]),
        ],
    )


def run_facts(run: Run) -> list[tuple[str, str]]:
    """Return the facts of a run, label and sentence, for terminal and page."""
    values = run_values(run)
    facts = []
    if run.interrupted_of is not None:
        of = format_count(run.interrupted_of)
        arrived = " that had arrived" if run.simulation.times is None else ""
        count = format_count(values["request_count"])
        facts.append(
            (
                "interrupted",
                f"after {count} of {of} requests{arrived}: the figures hold for those",
            )
        )
    facts += [
        (
            "serves",
            f"{format_count(values['rate_per_s'])} requests/s, on average "
            f"{format_count(values['mean_prompt_tokens'])} prompt and "
            f"{format_count(values['mean_output_tokens'])} output tokens",
        )
    ]
    attainment = run.judgement.attainment
    if attainment is not None and run.slo is not None:
        low, high = attainment.interval
        facts += [
            ("within", str(values["slo_text"])),
            (
                "attained by",
                f"{format_share(attainment.share)} of requests (95 % interval "
                f"{format_share(low)} to {format_share(high)}); asked "
                f"{format_share(run.slo.attainment)}",
            ),
            ("each limit", _shares(attainment.by_limit)),
        ]
        if len(attainment.by_class) > 1:
            facts.append(("each class", _shares(attainment.by_class)))
    goodput = values["goodput_per_s"]
    within = "" if goodput is None else f"; {format_count(goodput)} requests/s in SLO"
    facts += [
        (
            "makes",
            f"{format_count(values['output_tokens_per_s'])} output tokens/s{within}",
        ),
        ("busy", f"{format_share(values['busy_share'])} of the time"),
        ("preemptions", format_count(values["preemptions"])),
    ]
    if not run.judgement.stable:
        facts.append(("backlog", "grows without end: too few replicas"))
    if run.price is not None and run.usd_per_h is not None:
        facts.append(
            (
                "costs",
                f"{run.gpu_count:,} × {format_fine_usd(run.price.usd_per_gpu_h)} per "
                f"GPU-hour = {format_fine_usd(run.usd_per_h)} per hour",
            )
        )
    facts += [
        ("latency", run.profile_note),
        (
            "simulated",
            f"{format_count(values['request_count'])} requests over "
            f"{format_duration(values['duration_s'])} of {run.trace_source}; "
            f"{answer.counted(run.judgement, values['request_count'])}",
        ),
    ]
    return facts


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {format_share(share)}" for name, share in shares.items())
