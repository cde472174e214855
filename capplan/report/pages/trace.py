"""Pages of conversations: what their sessions are like, and what was written."""

from pathlib import Path
from typing import Any

from capplan.report.columns import column, format_count, format_share, plural
from capplan.report.fields import fields
from capplan.report.page import Fact, Page, Section, Table
from capplan.workload.forest import session_of
from capplan.workload.sessions import QUANTILES, SIZES, SessionFigures
from capplan.workload.trace import Trace

_SCHEMA = "capplan.trace/1"
_ENOUGH = 0.999
"""Of what an endless cache hits: larger ones are left out."""


def trace_page(trace: Trace, figures: SessionFigures) -> Page:
    """Return what the sessions of a trace are like."""
    quantities = [
        {"quantity": name, "mean": figures.means[name]}
        | {
            f"p{100 * q:g}": at
            for q, at in zip(QUANTILES, values.tolist(), strict=True)
        }
        for name, values in figures.quantiles.items()
    ]
    hits, hours = _hits(figures), _hours(figures)
    best, turns = figures.curve.share(float("inf")), figures.means["turns"]
    parents = f"{figures.appends:,} go on, {figures.cuts:,} with part of the one before"
    facts: list[Fact] = [
        ("requests", format_count(figures.request_count)),
        (
            "sub-agents",
            format_count(figures.agent_count) if figures.agent_count else "",
        ),
        ("prompts", f"{parents}, {figures.restarts:,} anew"),
        ("prefix share", f"{format_share(figures.prefix_share)} of prompt tokens"),
        ("an endless cache hits", f"{format_share(best)} of prompt tokens"),
        ("texts", ", ".join(trace.text_names[:5])),
    ]
    tables = {
        "sessions.csv": Table(fields("trace_quantity"), quantities),
        "hits.csv": Table(
            fields("trace_hits"), hits, "hits of one LRU cache, nothing running"
        ),
        "hours.csv": Table(fields("trace_hour"), hours, "by hour"),
    }
    return Page(
        "trace",
        f"{plural(figures.session_count, 'session')} of {turns:.3g} turns",
        trace.source,
        [Section(facts=facts, tables=[*tables.values()], notes=trace.notes)],
        values=lambda: {
            "schema": _SCHEMA,
            "session_count": figures.session_count,
            "request_count": figures.request_count,
            "agent_count": figures.agent_count,
            "appends": figures.appends,
            "cuts": figures.cuts,
            "restarts": figures.restarts,
            "prefix_share": figures.prefix_share,
            "hit_share": best,
            "quantities": quantities,
            "hits": hits,
            "hours": hours,
        },
        csv=tables,
    )


def _hits(figures: SessionFigures) -> list[dict[str, Any]]:
    """Return the hits by the size of the cache, up to one that hits nearly all."""
    rows: list[dict[str, Any]] = []
    most = figures.curve.share(float("inf"))
    for tokens in SIZES:
        share = figures.curve.share(tokens)
        rows.append({"cache_tokens": int(tokens), "hit_share": share})
        if share >= _ENOUGH * most:
            break
    return rows


def _hours(figures: SessionFigures) -> list[dict[str, Any]]:
    names = ("sessions", "requests", "live_sessions")
    return [
        {"hour": hour, **dict(zip(names, row, strict=True))}
        for hour, row in enumerate(figures.hours.tolist())
    ]


def written_page(trace: Trace, out: Path) -> Page:
    """Return what was written of a trace."""
    count = int(session_of(trace).max()) + 1
    row = {
        "file": str(out),
        "session_count": count,
        "request_count": len(trace),
    }
    table = Table([column(key) for key in row], [row])
    return Page(
        "trace-written",
        f"{plural(count, 'session')} of {len(trace):,} requests",
        str(out),
        [Section(notes=trace.notes)],
        values=lambda: {"schema": "capplan.trace-written/1", **row},
        csv={"trace-written.csv": table},
    )
