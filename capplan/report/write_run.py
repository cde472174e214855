"""Write a simulated deployment on the terminal and as JSON, CSV and HTML."""

from rich.console import Console
from rich.text import Text

from capplan.planning.classes import own_targets
from capplan.planning.judgement import LEVELS
from capplan.planning.run import Run
from capplan.planning.scheduling import scheduling
from capplan.report import answer, class_columns
from capplan.report.columns import format_count, format_fine_usd, format_share
from capplan.report.fleet_charts import Curve, fleet_figures, latency_figures
from capplan.report.page import render_page
from capplan.report.run_values import METRICS, STATISTICS, run_values
from capplan.report.tables import csv_text, plain_table
from capplan.report.terminal import (
    print_classes,
    print_facts,
    print_launch,
    print_warnings,
)
from capplan.report.write_json import plain, render
from capplan.units import format_duration


def print_run(run: Run, out: Console) -> None:
    """Print a deployment's attainment, throughput, latencies and warnings."""
    gpu = f"   {run.gpu}" if run.gpu else ""
    out.print(Text(f"{run.deployment.pool}{gpu}", style="bold"))
    print_facts(run_facts(run), out)
    print_launch(run.launch, out)
    table = plain_table([("", "left"), *((name, "right") for name in STATISTICS)])
    for metric, label in METRICS.items():
        values_s = run.judgement.percentiles[metric]
        table.add_row(label, *map(format_duration, values_s))
    out.print(table)
    if run.judgement.classes:
        out.print()
    print_classes(run.judgement.classes, out)
    print_warnings(run.warnings, out)


def run_json(run: Run) -> str:
    """Return the run as JSON; a number that is not finite is null."""
    return render(plain(run_values(run))) + "\n"


def run_csv(run: Run) -> str:
    """Return the latencies as CSV, one row per metric. [s]"""
    percentiles = run.judgement.percentiles
    rows = ([metric, *percentiles[metric]] for metric in METRICS)
    return csv_text(["metric", *STATISTICS], rows)


def run_html(run: Run) -> str:
    """Return the run as a self-contained page."""
    values, title = run_values(run), str(run.deployment.pool)
    quantiles_s = {
        metric: values[f"{metric}_quantiles_s"] for metric in ("ttft", "tpot", "e2e")
    }
    names = run.simulation.class_names
    limits_s = {} if run.slo is None else run.slo.shared_limits_s(names)
    target = None
    if run.slo is not None and not own_targets(run.judgement.classes):
        target = run.slo.shared_target(names)
    curves = [Curve(title, LEVELS, quantiles_s)]
    return render_page(
        "simulation.html.j2",
        run=run,
        answer=answer,
        values=values,
        title=title,
        facts=run_facts(run),
        classes=run.judgement.classes,
        class_columns=class_columns,
        metrics=METRICS,
        statistics=STATISTICS,
        figures=[
            *latency_figures(curves, target, limits_s),
            *fleet_figures(values["series"]),
        ],
    )


def run_facts(run: Run) -> list[tuple[str, str]]:
    """Return labels and texts of a run, for the terminal and HTML."""
    facts = [
        ("interrupted", answer.interruption(run)),
        ("serves", _traffic(run)),
        *_objective_facts(run),
        ("throughput", _throughput(run)),
        ("busy", f"{format_share(run.simulation.busy_share)} of the time"),
        ("preemptions", format_count(run.simulation.totals.preemptions)),
        ("backlog", "" if run.judgement.stable else "keeps growing: too few replicas"),
        ("costs", _cost(run)),
        ("engine", scheduling(run.engine)),
        ("latency", run.profile_note),
        ("simulated", _requests(run)),
        ("noted", "; ".join(run.trace_notes)),
    ]
    return [(label, text) for label, text in facts if text]


def _traffic(run: Run) -> str:
    totals = run.simulation.totals
    return answer.traffic(
        totals.rate_per_s,
        totals.prompt_tokens / totals.request_count,
        totals.output_tokens / totals.request_count,
    )


def _objective_facts(run: Run) -> list[tuple[str, str]]:
    attainment = run.judgement.attainment
    if attainment is None or run.slo is None:
        return []
    asked = run.slo.describe_targets(run.simulation.class_names)
    return [
        ("within", run.slo.describe(run.simulation.class_names)),
        ("attained by", answer.attained(run.judgement, asked)),
        ("load", answer.load(run.judgement)),
        ("each limit", answer.shares(attainment.by_limit)),
    ]


def _throughput(run: Run) -> str:
    goodput = run.goodput_per_s
    met = (
        ""
        if goodput is None
        else f"; {format_count(goodput)} requests/s within the SLO"
    )
    in_span = run.span_output_tokens_per_s
    span = (
        "" if in_span is None else f", {format_count(in_span)} until the last arrival"
    )
    to_end = format_count(run.output_tokens_per_s)
    return f"{to_end} output tokens/s to the last token{span}{met}"


def _cost(run: Run) -> str:
    if run.price is None or run.usd_per_h is None:
        return ""
    return (
        f"{run.gpu_count:,} × {format_fine_usd(run.price.usd_per_gpu_h)} per GPU-hour "
        f"= {format_fine_usd(run.usd_per_h)} per hour"
    )


def _requests(run: Run) -> str:
    totals = run.simulation.totals
    return (
        f"{format_count(totals.request_count)} requests over "
        f"{format_duration(totals.duration_s)} of {run.trace_source}; "
        f"{answer.counted(run.judgement, totals.request_count)}"
    )
