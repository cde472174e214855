"""What the figures of a plan rest on: the simulation, then all that was assumed."""

from capplan.planning.plan.result import Assumption, Plan
from capplan.report import sentences
from capplan.report.columns import format_share
from capplan.report.fields import fields
from capplan.report.page import FILES, Section, Table
from capplan.units import format_duration

HOW = {
    "measured": "Measured",
    "fitted": "Fitted to measurements",
    "published": "Published",
    "assumed": "Assumed",
    "given": "Given by you",
}
"""Headings of the assumptions by how each was obtained, most certain first."""

ASSUMPTION = fields("assumption")


def assumption_sections(plan: Plan) -> list[Section]:
    """Return what the figures rest on: the simulation, then all that was assumed."""
    best = plan.best
    run = None if best is None else best.run
    counted = (
        "" if run is None else sentences.counted(run.judgement, plan.request_count)
    )
    errors = {} if run is None else run.configuration.latency_error
    simulated = (
        f"{plan.request_count:,} requests of {plan.trace_source}, over "
        f"{format_duration(plan.duration_s)}"
    )
    how = "" if run is None else f"scheduler {run.configuration.engine.scheduler}, "
    facts = [
        ("latency", "" if run is None else run.configuration.note),
        (
            "its error",
            ", ".join(f"{phase} {format_share(x)}" for phase, x in errors.items()),
        ),
        ("simulated", "; ".join(filter(None, (simulated, counted)))),
        ("with", f"{how}router {plan.router}, seed {plan.seed}"),
    ]
    tables = [
        Table(ASSUMPTION, rows, title=heading)
        for heading, rows in grouped(plan.assumptions)
    ]
    return [
        Section("What the figures rest on", facts=facts, topic="sure"),
        Section(
            "Assumptions",
            tables=tables,
            only=FILES,
            is_folded=True,
            topic="assumptions",
        ),
    ]


def grouped(assumptions: tuple[Assumption, ...]) -> list[tuple[str, list[Assumption]]]:
    """Return the assumptions by how each was obtained, most certain first."""
    # Kinds without a heading of ours come last, under their own name.
    kinds = [*HOW, *sorted({row.how for row in assumptions} - set(HOW))]
    groups = [
        (HOW.get(kind, kind), [row for row in assumptions if row.how == kind])
        for kind in kinds
    ]
    return [(heading, rows) for heading, rows in groups if rows]
