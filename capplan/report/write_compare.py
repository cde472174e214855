"""Write compared systems on the terminal and as JSON, CSV and HTML."""

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from capplan.planning.compare import Comparison
from capplan.planning.highest_rate import STEP
from capplan.planning.system_price import SystemResult
from capplan.planning.systems import TUNED
from capplan.report import answer
from capplan.report.columns import format_count
from capplan.report.compare_charts import figures
from capplan.report.compare_columns import (
    AT_RATES,
    BINDING,
    BOTH,
    BUDGETS,
    COLUMNS,
    COUNTS,
    HELD,
    PRICE,
    SHOWN,
    classes_text,
    curve_values,
    on,
)
from capplan.report.page import render_page
from capplan.report.tables import csv_text, plain_table
from capplan.report.terminal import print_facts, print_warnings
from capplan.report.write_json import plain, render
from capplan.units import format_duration

SCHEMA = "capplan.compare/1"


_WIDEST = 1000
"""Columns of the terminal that a table may take."""


def print_comparison(comparison: Comparison, out: Console) -> None:
    """Print the table of systems, what did not run and why, and the warnings."""
    out.print(Text(headline(comparison), style="bold"))
    print_facts(facts(comparison), out)
    table = plain_table((c.heading, c.justify) for c in SHOWN)
    for row in comparison.systems:
        style = "" if row.status == "feasible" else "dim"
        table.add_row(*(escape(column.text(row)) for column in SHOWN), style=style)
    widest = out.options.update(max_width=_WIDEST)
    table.width = table.__rich_measure__(out, widest).maximum
    out.print(table, crop=False)  # a figure that is cut is another one
    for label, text in [*notes(comparison), *_classes(comparison)]:
        out.print(Text(f"  {label}: {text}", style="dim"))
    took = f"compared in {format_duration(comparison.runtime_s)}"
    out.print(Text(took, style="dim"))
    print_warnings(comparison.warnings, out)


def headline(comparison: Comparison) -> str:
    """Return "9 systems compared   Llama-3.1-8B on H100-SXM"."""
    count = answer.plural(len(comparison.systems), "system")
    return f"{count} compared   {comparison.llm}"


def hardware(comparison: Comparison) -> str:
    """Return the hardware on which all are compared; empty where there is none."""
    at, count = comparison.hardware, comparison.replica_count
    if at is None or count is None:
        return ""
    return f"{answer.plural(count, 'replica')} of {at}"


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return labels and texts of a comparison, for the terminal and HTML."""
    early = "what was not simulated by then is missing"
    return [
        ("interrupted", early if comparison.interrupted else ""),
        (
            "serves",
            answer.traffic(
                comparison.rate_per_s,
                comparison.mean_prompt_tokens,
                comparison.mean_output_tokens,
            ),
        ),
        (
            "within",
            f"{comparison.slo_text}; asked {comparison.attainment_text}",
        ),
        (
            "GPUs, $",
            "the fewest of each system with its published seats and token budget"
            if comparison.is_published
            else "the fewest of each system with the same seats and its own tuned "
            "token budget; --published takes the published ones",
        ),
        (
            "equal GPUs",
            f"all else on {hardware(comparison)}; max rate within {STEP - 1:.0%}"
            if hardware(comparison)
            else "",
        ),
        (
            "simulated",
            f"{format_count(comparison.request_count)} requests of "
            f"{comparison.trace_source}, seed {comparison.seed}",
        ),
    ]


def notes(comparison: Comparison) -> list[tuple[str, str]]:
    """Return what there is to say of each system beside its figures."""
    found = []
    for row in comparison.systems:
        if row.reason:
            found.append((row.name, f"{row.status}: {row.reason}"))
        if row.not_served:
            found.append((row.name, f"on the same hardware: {row.not_served}"))
        if row.given:
            text = "; ".join(row.given)
            found.append((row.name, f"the scenario's own: {text}"))
        said = (_two_kinds(row), _refused(row, comparison), _predictions(row))
        found += [(row.name, text) for text in said if text]
    return found


def _two_kinds(row: SystemResult) -> str:
    """Return the seats and the budget as tuned and as published, where they differ."""
    kinds = {"tuned": row.tuned, "published": row.published}
    engines = [found.engine for found in kinds.values() if found is not None]
    differ = [
        name
        for name in TUNED
        if len({getattr(engine, name, None) for engine in engines}) > 1
    ]
    if not engines or (len(engines) == 2 and not differ):
        return ""
    texts = []
    for kind, found in kinds.items():
        if found is None:
            texts.append(f"{kind}: not feasible")
            continue
        flags = [
            f"{name} {format_count(getattr(found.engine, name))}" for name in differ
        ]
        gpus = answer.plural(found.gpu_count or 0, "GPU")
        texts.append(f"{', '.join([kind, *flags])}: {gpus}")
    return "; ".join(texts)


def _refused(row: SystemResult, comparison: Comparison) -> str:
    """Return which requests a system refuses, as longer than its room."""
    if not row.refused_share or row.room_tokens is None:
        return ""
    return (
        f"set up for requests of {format_count(row.room_tokens)} tokens "
        f"(--max-model-len); the longest {row.refused_share:.2%}, of up to "
        f"{format_count(comparison.longest_request_tokens)}, are refused: they count "
        f"as missed, and their {row.refused_token_share:.2%} of all tokens load nothing"
    )


def _predictions(row: SystemResult) -> str:
    """Return how good the predictions of a system are, and whether they matter."""
    error = row.prediction_error
    if error is None or not row.predictor or not error.mean > 0:
        return ""
    published = row.published_prediction_error
    beside = "" if published is None else f"; published {100 * published:.3g} %"
    matter = ""
    if row.predictions_matter is False:
        matter = "; at this rate they change nothing: true lengths give the same times"
    return f"predictor {row.predictor} {error}{beside}{matter}"


def _classes(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the attainment of each class by system; empty where there is one class."""
    return [
        (row.name, classes_text(row.served.attainment_by_class))
        for row in comparison.systems
        if row.served is not None and len(row.served.attainment_by_class) > 1
    ]


def compare_json(comparison: Comparison) -> str:
    """Return the comparison as JSON; a number that is not finite is null."""
    at = comparison.hardware
    values = {
        "schema": SCHEMA,
        "llm": comparison.llm,
        "hardware": at
        and {
            "gpu": at.gpu,
            "tp": at.tp,
            "replica_count": comparison.replica_count,
            "latency_source": at.latency_source,
            "profile_note": at.note,
        },
        "systems": [
            {
                **{column.name: column.value(row) for column in COLUMNS},
                "limits": row.engine,
                "curve": [curve_values(served) for served in row.curve],
            }
            for row in comparison.systems
        ],
        "slo_text": comparison.slo_text,
        "attainment": comparison.attainment,
        "attainment_text": comparison.attainment_text,
        "trace_source": comparison.trace_source,
        "trace_notes": comparison.trace_notes,
        "request_count": comparison.request_count,
        "rate_per_s": comparison.rate_per_s,
        "mean_prompt_tokens": comparison.mean_prompt_tokens,
        "mean_output_tokens": comparison.mean_output_tokens,
        "rates_per_s": comparison.rates_per_s,
        "rate_step": STEP,
        "is_published": comparison.is_published,
        "longest_request_tokens": comparison.longest_request_tokens,
        "seed": comparison.seed,
        "warnings": comparison.warnings,
        "interrupted": comparison.interrupted,
    }
    return render(plain(values)) + "\n"


def compare_csv(comparison: Comparison) -> str:
    """Return the systems as CSV, one row each."""
    rows = ([column.value(row) for column in COLUMNS] for row in comparison.systems)
    return csv_text([column.name for column in COLUMNS], rows)


def rates_csv(comparison: Comparison) -> str:
    """Return what each system does at each rate as CSV."""
    pairs = [(row.name, served) for row in comparison.systems for served in row.curve]
    rows = ([column.value(pair) for column in AT_RATES] for pair in pairs)
    return csv_text([column.name for column in AT_RATES], rows)


def compare_html(comparison: Comparison) -> str:
    """Return the comparison as a self-contained page."""
    counts = [
        on(column)
        for column in COUNTS
        if column.heading
        and (_classes(comparison) or column.name != "attainment_by_class")
    ]
    return render_page(
        "compare.html.j2",
        comparison=comparison,
        headline=headline(comparison),
        hardware=hardware(comparison),
        facts=facts(comparison),
        notes=notes(comparison),
        price=[column for column in PRICE if column.heading],
        served=[
            [PRICE[0], HELD, BINDING, *BUDGETS, *counts],
            [PRICE[0], *map(on, BOTH)],
        ],
        count=answer.plural(len(comparison.systems), "system"),
        figures=figures(comparison),
    )
