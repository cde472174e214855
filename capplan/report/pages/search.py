"""The page of a comparison of GPU types and TP degrees."""

import math
from functools import partial
from typing import Any

from capplan.planning.configure.excluded import Excluded
from capplan.planning.size.search import Search, TpRow
from capplan.report.columns import DASH, format_count, format_fine_usd
from capplan.report.fields import fields
from capplan.report.page import Fact, Page, Section, Table
from capplan.units import format_duration

SCHEMA = "capplan.search/2"


# A row that cannot serve has zeros.
_COLUMNS = fields(
    "search", positive=lambda count: format_count(count) if count else DASH
)


def _named(row: TpRow | Excluded) -> str:
    return f"{row.gpu} × TP {row.tp}"


def search_page(search: Search) -> Page:
    """Return the choice with its reason, then the table."""
    found = search.found
    best, cheapest = found.best, found.best_by_usd

    def style(row: TpRow) -> str:
        return "best" if row is best else "fail" if row.infeasible_reason else ""

    facts: list[Fact] = []
    if cheapest is not None and cheapest is not best:
        usd, price = cheapest.saturated_usd_per_million_output_tokens, ""
        if usd is not None:
            price = f" at {format_fine_usd(usd)} per million at full load"
        facts.append(("cheapest output tokens", f"{_named(cheapest)}{price}"))
    facts += [(_named(row), row.infeasible_reason or "") for row in found.rows]
    facts += [(_named(row), row.reason) for row in search.excluded]
    if best is not None:
        facts.append(("latency", search.profile_notes[f"{best.gpu} TP {best.tp}"]))
    limit = "no TPOT limit"
    if math.isfinite(found.slo_tpot_s):
        limit = f"TPOT ≤ {format_duration(found.slo_tpot_s)}"
    note = (
        f"For a mean context of {found.context_tokens:,.0f} tokens and {limit}; decode "
        "alone, with a full batch at all times, which is “full load”. `capplan plan` "
        "simulates prefill and queueing, and prices tokens at your traffic."
    )
    table = Table(_COLUMNS, found.rows, style=style)
    return Page(
        "search",
        f"None can serve {search.llm}" if best is None else _named(best),
        search.llm,
        [Section("Output tokens per GPU", facts, [table], notes=[note])],
        values=partial(search_values, search),
        csv={"search.csv": table},
        lead=found.reason,
        warnings=search.warnings,
        is_failure=best is None,
    )


def search_values(search: Search) -> dict[str, Any]:
    """Return the comparison by the keys of ``search.json``."""
    excluded = [
        {"gpu": row.gpu, "tp": row.tp, "reason": row.reason} for row in search.excluded
    ]
    return {"schema": SCHEMA, **vars(search), "excluded": excluded}
