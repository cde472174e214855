"""The page of what given fleets serve."""

import math
from functools import partial
from typing import Any

from capplan.planning.size.capacity import Capacity, Served
from capplan.report.columns import format_count, record
from capplan.report.fields import fields
from capplan.report.page import Fact, Page, Section, Table, about
from capplan.units import format_usd

SCHEMA = "capplan.capacity/2"

_FLEET = fields("capacity_fleet", tp=lambda row: row.pool.configuration.layout.degrees)


def capacity_page(capacity: Capacity) -> Page:
    """Return what the fleets serve: the most first."""
    best = capacity.best
    facts: list[Fact] = [
        (f"{row.pool.configuration} within {row.slo_text}", row.reason)
        for row in capacity.rows
    ]
    facts += [(str(row), row.reason) for row in capacity.excluded]
    facts += [("users", capacity.think), ("requests", capacity.trace_source)]
    facts.append(("latency", best.pool.configuration.note))
    note = (
        "A rate, or a number of users, is decided to be held, and the next one, 3 % "
        "higher, is not. “at most” is a bound: no scheduler serves more within the SLO "
        "under the same latency model; of users none is known."
    )

    def style(row: Served) -> str:
        return "best" if row is best else "fail" if row.reason else ""

    table = Table(_FLEET, capacity.rows, note=note, style=style)
    return Page(
        "capacity",
        str(best.deployment),
        about(capacity.llm, best.pool.configuration.gpu),
        [Section("What each fleet serves", facts, [table])],
        values=partial(capacity_values, capacity),
        csv={"capacity.csv": table},
        lead=_lead(best),
        warnings=capacity.warnings,
        is_failure=best.max_rate_per_s is None,
    )


def _lead(best: Served) -> str:
    if best.max_rate_per_s is None:
        return f"Serves nothing within {best.slo_text}: {best.reason}."
    low, high = best.max_rate_per_s_interval or (best.max_rate_per_s, math.inf)
    missed = f" (not {format_count(high)})" if math.isfinite(high) else ""
    peak, usd = best.busiest_hour_per_s, best.usd_per_month
    alike = [] if peak is None else [f"{format_count(peak)} in the busiest hour"]
    alike += [] if best.max_users is None else [f"or {best.max_users:,} users"]
    also = "".join(f", {text}" for text in alike) + "," * bool(alike)
    mean = "" if peak is None else " in the mean"
    costs = "" if usd is None else f" It costs {format_usd(usd)} a month."
    return (
        f"Serves {format_count(low)} requests/s{mean}{missed}{also} "
        f"within {best.slo_text}; asked {best.attainment_text}.{costs}"
    )


def capacity_values(capacity: Capacity) -> dict[str, Any]:
    """Return the best fleet by its keys, then all, by the keys of ``capacity.json``."""
    return {"schema": SCHEMA, **record(fields("capacity"), capacity)}
