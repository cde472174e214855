"""The page of compared systems: what each needs, what each does on equal hardware."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from capplan.planning.compare.compare import Comparison
from capplan.planning.compare.system_price import SystemResult
from capplan.planning.compare.systems import TUNED
from capplan.planning.evaluate.highest_rate import STEP
from capplan.report import sentences
from capplan.report.charts.compare import figures, finding
from capplan.report.columns import Column, at, format_count, record
from capplan.report.compare_answer import (
    compare_answer,
    compare_lead,
    compare_subject,
    compare_title,
    winners,
)
from capplan.report.compare_why import compare_why
from capplan.report.fields import fields
from capplan.report.first_screen import prices_told
from capplan.report.page import Fact, Page, Section, Table, next_section, why_section
from capplan.report.pages.system_columns import (
    AT_RATES,
    BINDING,
    BOTH,
    BUDGETS,
    COLUMNS,
    COUNTS,
    HELD,
    OF_USERS,
    PRICE,
    of_users,
)

SCHEMA = "capplan.compare/2"

_NEEDS = (
    "“at least”: with fewer GPUs no scheduler holds the limits with the same iteration "
    "times and that system's engine settings."
)
_NEEDS_OF_USERS = (
    "Users ask less of a slow fleet, so no lower bound is known: “at least” is one "
    "replica, of each pool where there are two."
)
_HELD = (
    "Goodput: requests in time. {most}, to 3 %, with the token budget that holds most. "
    "“binds” keeps it from more: a full setting, or the limit that most requests miss. "
    "Tokens/s to the end: over the time to the last token; in the span: over the "
    "time from the first arrival to the last. Preemptions and swaps: of one sample. "
    "Pause: of a request that keeps its KV. The curves are in {curves}."
)
_RATE = "Max rate: the highest that a system holds there, with arrivals scaled in time"
_USERS = (
    "Each user asks again when the last answer and the think time are over: a system's "
    "rate follows from that. Max users: the most whom a system answers in time there"
)


def comparison_page(comparison: Comparison) -> Page:
    """Return the page of compared systems."""
    rows, first = comparison.systems, winners(comparison)
    best, answer = first[0].candidate if first else None, compare_answer(comparison)
    curves = [(row.name, served) for row in rows for served in row.curve]
    at_loads = {"rates.csv": Table(AT_RATES, curves)}
    if comparison.asked_by is not None:
        at_loads = {"users.csv": Table(OF_USERS, curves)}
    return Page(
        "compare",
        compare_title(comparison),
        compare_subject(comparison),
        [
            why_section("many GPUs", compare_why(comparison)),
            Section(
                "What each needs",
                tables=[_table(PRICE, comparison)],
                notes=[_NEEDS if comparison.asked_by is None else _NEEDS_OF_USERS],
                topic="count",
            ),
            _on_equal_hardware(comparison),
            Section("Remarks", facts=notes(comparison), topic="candidates"),
            Section("Charts", figures=partial(figures, comparison)),
            Section("Systems", tables=[Table(_RUNS_AS, rows)], topic="run"),
            Section(
                "What is compared", facts=_assumed(comparison), topic="assumptions"
            ),
            Section("How sure it is", facts=_basis(comparison), topic="sure"),
            next_section([answer.next]),
        ],
        values=partial(comparison_values, comparison),
        csv={"compare.csv": Table(_columns(comparison, COLUMNS), rows), **at_loads},
        prices=prices_told(None if best is None else best.price),
        answer=answer,
        lead=compare_lead(comparison),
        chart=finding(comparison),
        warnings=comparison.warnings,
        is_failure=not any(row.candidate or row.served for row in rows),
    )


def _on_equal_hardware(comparison: Comparison) -> Section:
    on, count = comparison.hardware, comparison.replica_count
    if on is None or count is None:
        return Section()
    several = any(
        row.served is not None and len(row.served.attainment_by_class) > 1
        for row in comparison.systems
    )
    counts = [
        each.within("served")
        for each in COUNTS
        if several or each.name != "attainment_by_class"
    ]
    held = _columns(comparison, [PRICE[0], HELD, BINDING, *BUDGETS, *counts])
    both = [PRICE[0], *(each.within("served") for each in BOTH)]
    return Section(
        f"All on {sentences.plural(count, 'replica')} of {on}",
        tables=[_table(held, comparison), _table(both, comparison)],
        notes=[_on_load(comparison)],
        topic="peak",
    )


def _on_load(comparison: Comparison) -> str:
    """Return what all are asked on equal hardware, and what its columns mean."""
    if comparison.asked_by is not None:
        held = _HELD.format(most=_USERS, curves="users.csv")
        return f"Asked by {comparison.asked_by}. {held}"
    held = _HELD.format(most=_RATE, curves="rates.csv")
    return f"At {format_count(comparison.rate_per_s)} requests/s. {held}"


def _columns(comparison: Comparison, columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return columns of rates, or those of users where they ask."""
    return tuple(columns) if comparison.asked_by is None else of_users(columns)


def _table(columns: Any, comparison: Comparison) -> Table:
    first = winners(comparison)

    def style(row: SystemResult) -> str:
        if row in first:
            return "best"
        return "" if row.status == "feasible" else "fail"

    return Table(columns, comparison.systems, style=style)


def _runs_as(row: SystemResult) -> str:
    error = f", {row.prediction_error}" if row.prediction_error else ""
    parts = [
        row.scheduler or "–",
        f"router {row.router}" if row.router else "",
        f"predictor {row.predictor}{error}" if row.predictor else "",
    ]
    if row.engine is not None:
        parts += [f"{name} {format_count(getattr(row.engine, name))}" for name in TUNED]
    return "; ".join(filter(None, parts))


_RUNS_AS = fields(
    "system_runs_as", **{"scheduler, router, predictor, engine": _runs_as}
)


def _basis(comparison: Comparison) -> list[Fact]:
    drawn = "" if comparison.asked_by is None else "from "
    requests = f"{drawn}{format_count(comparison.request_count)} requests"
    source = "; ".join((comparison.trace_source, *comparison.trace_notes))
    return [
        ("workload", f"{requests} of {source}"),
        ("latency", at(comparison, "hardware.note") or ""),
        ("seed", str(comparison.seed)),
    ]


def _assumed(comparison: Comparison) -> list[Fact]:
    early = "what was not simulated by then is missing"
    given = "the fewest of each system with its published seats and token budget"
    if not comparison.is_published:
        given = (
            "the fewest of each system with the same seats and its own tuned token "
            "budget; --published takes the published ones"
        )
    return [("interrupted", early * comparison.interrupted), ("GPUs, $", given)]


def notes(comparison: Comparison) -> list[Fact]:
    """Return what there is to say of each system beside its figures."""
    found = []
    for row in comparison.systems:
        own = "; ".join(row.given)
        said = (
            row.reason and f"{row.status}: {row.reason}",
            row.not_served and f"on the same hardware: {row.not_served}",
            own and f"the scenario's own: {own}",
            _pools(row),
            _refused(row, comparison),
            _predictions(row, comparison),
        )
        found += [(row.name, text) for text in said if text]
    return found


def _pools(row: SystemResult) -> str:
    """Return the pools of a system with disaggregated prefill and decode."""
    best = row.candidate
    if best is None or best.run is None or not best.pools:
        return ""
    return f"disaggregated prefill and decode: {best.run.deployment}"


def _refused(row: SystemResult, comparison: Comparison) -> str:
    """Return which requests a system refuses, as longer than its room."""
    if not row.refused_share or row.room_tokens is None:
        return ""
    return (
        f"set up for requests of {format_count(row.room_tokens)} tokens "
        f"(--max-model-len); the longest {100 * row.refused_share:.2f} %, of up to "
        f"{format_count(comparison.longest_request_tokens)}, are refused: they count "
        f"as missed, and their {100 * row.refused_token_share:.2f} % of all tokens "
        "load nothing"
        + ("" if comparison.asked_by is None else "; users ask another at once")
    )


def _predictions(row: SystemResult, comparison: Comparison) -> str:
    """Return how good the predictions of a system are, and whether they matter."""
    error = row.prediction_error
    if error is None or not row.predictor or not error.mean > 0:
        return ""
    published = row.published_prediction_error
    beside = "" if published is None else f"; published {100 * published:.3g} %"
    matter = ""
    if row.predictions_matter is False:
        there = "at this rate" if comparison.asked_by is None else "with these users"
        matter = f"; {there} they change nothing: true lengths give the same times"
    return f"predictor {row.predictor} {error}{beside}{matter}"


_HARDWARE = fields("compared_hardware")


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison by the keys of ``compare.json``."""
    hardware, columns = comparison.hardware, _columns(comparison, COLUMNS)
    values = {
        "schema": SCHEMA,
        "llm": comparison.llm,
        "hardware": hardware and record(_HARDWARE, comparison),
        "systems": [record(columns, row) for row in comparison.systems],
    }
    # The replicas stand with the hardware; the same comparison gives the same bytes.
    left_out = {*values, "replica_count", "runtime_s"}
    rest = {k: v for k, v in vars(comparison).items() if k not in left_out}
    return {**values, **rest, "rate_step": STEP}
