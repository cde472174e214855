"""The page of autoscalers against fleets of a fixed size."""

import hashlib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from capplan.input_file import named_sha256
from capplan.planning.autoscale.result import Autoscaled, PolicyResult
from capplan.planning.configure.scheduling import scheduling
from capplan.planning.money.cost import paid_price
from capplan.planning.plan.result import NOT_IN_THE_RESULT
from capplan.report import sentences
from capplan.report.autoscale_answer import (
    autoscale_answer,
    autoscale_lead,
    autoscale_steps,
    autoscale_subject,
    autoscale_title,
)
from capplan.report.autoscale_why import autoscale_why
from capplan.report.charts.autoscale import figures, finding
from capplan.report.columns import format_count, record
from capplan.report.fields import Function, fields
from capplan.report.first_screen import prices_told
from capplan.report.money import in_its_currency
from capplan.report.page import Fact, Page, Section, Table, next_section, why_section
from capplan.report.render.json_text import plain
from capplan.units import format_duration

SCHEMA = "capplan.autoscale/1"
DIGEST = "document_digest"

OF_RESULT: dict[str, Function] = {
    "slo_text": lambda of: of.slo.describe(of.class_names),
    "attainment_text": lambda of: of.slo.describe_targets(of.class_names),
    "trace_sha256": lambda of: named_sha256(of.settings.trace),
    "profiles_sha256": lambda of: named_sha256(of.settings.profiles),
    "settings": lambda of: of.settings.document(NOT_IN_THE_RESULT),
}
"""What a result says of what was asked."""


def _break_even(pair: tuple[float | None, float | None]) -> str:
    """Return the cold start up to which a policy pays."""
    low, high = pair
    if low is None:
        return "never"
    return format_duration(low) if high is not None else f"> {format_duration(low)}"


@in_its_currency
def autoscale_page(result: Autoscaled) -> Page:
    """Return what autoscalers cost and attain against fleets of a fixed size."""
    best, fixed = result.best, result.fixed
    rows = result.fleets

    def style(row: PolicyResult) -> str:
        return "best" if row is best else "" if row.meets else "fail"

    has_break_even = any(row.break_even_s is not None for row in rows)
    pays = "“pays up to”: longest cold start with which it holds for less. "
    note = (
        "“fixed, as good”: the smallest fixed fleet with as many requests in time, in "
        "all and in the worst hour; “of its bill”: what the policy costs of that. A "
        "month is 730 h of the whole nodes that hold the replicas of each moment, at "
        "one provider; replicas are paid while they start, too. "
        f"{pays if has_break_even else ''}perfect knows the arrivals to come."
    )
    columns = [
        each
        for each in fields("autoscale_policy", **_functions(result))
        if has_break_even or each.heading != "pays up to"
    ]
    table = Table(columns, rows, note=note, style=style)
    lost_note = (
        "“while gone”: requests that arrive while replicas are gone; “holds”: these "
        "and all requests hold the target. Recomputed: begun, and computed again."
    )
    lost = Table(fields("autoscale_loss"), result.losses, note=lost_note)
    return Page(
        "autoscale",
        autoscale_title(result),
        autoscale_subject(result),
        [
            why_section("policy", autoscale_why(result)),
            Section(
                "Autoscalers against a fixed fleet", tables=[table], topic="candidates"
            ),
            Section("What it rests on", _facts(result), topic="sure"),
            Section("While replicas are gone", tables=[lost], topic="peak"),
            Section("Over time", figures=partial(figures, result)),
            next_section(autoscale_steps(result)),
        ],
        values=partial(autoscale_values, result),
        csv={"autoscale.csv": table, "losses.csv": lost},
        prices=prices_told(paid_price(result.deployment.pools)),
        answer=autoscale_answer(result),
        chart=finding(result),
        lead=autoscale_lead(result),
        warnings=result.warnings,
        is_failure=fixed is None,
    )


def _facts(result: Autoscaled) -> list[Fact]:
    configuration = result.deployment.pool.configuration
    sustained, bound = result.sustained, result.lower_bound_gpu_hours
    known = least = ""
    if sustained is not None:
        known = (
            f"{format_count(sustained.rate_per_s)} requests/s, "
            f"{format_count(sustained.in_flight)} in flight within the SLO: the "
            f"highest rate of {sentences.plural(sustained.replica_count, 'replica')} "
            "with Poisson arrivals of these requests, over their number; policies that "
            "need it were given it"
        )
    if bound is not None:
        least = (
            f"{format_count(bound)} GPU-hours: no fleet holds the target with fewer, "
            "whoever scales it"
        )
    return [
        ("within", result.slo.describe(result.class_names)),
        (
            "cold start",
            f"{format_duration(result.cold_start_s)} from order to first request",
        ),
        ("a replica holds", known),
        ("at least", least),
        *[(row.name, row.policy) for row in result.policies if row.policy != row.name],
        ("requests", result.trace_source),
        ("replicas of", str(configuration)),
        ("engine", scheduling(configuration.engine)),
        ("latency", configuration.note),
    ]


def autoscale_values(result: Autoscaled) -> dict[str, Any]:
    """Return the keys and values of ``autoscale.json``."""
    columns = fields("autoscale", **_functions(result), **OF_RESULT)
    values = {"schema": SCHEMA, **record(columns, result)}
    return {**values, DIGEST: digest_of(values)}


def _functions(result: Autoscaled) -> dict[str, Function]:
    """Return those of a policy; the bound is of all policies."""
    bound = result.lower_bound_gpu_hours
    return {"break_even": _break_even, "lower_bound_gpu_hours": lambda row: bound}


def digest_of(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document as JSON, without its own digest."""
    bare = {name: value for name, value in document.items() if name != DIGEST}
    encoded = json.dumps(plain(bare), sort_keys=True, ensure_ascii=True).encode()
    return hashlib.sha256(encoded).hexdigest()
