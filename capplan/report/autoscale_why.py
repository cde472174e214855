"""Why a policy is the cheapest that holds, and what delays or misses the others."""

from capplan.planning.autoscale.result import Autoscaled, PolicyResult
from capplan.planning.autoscale.settings import PERFECT
from capplan.report.columns import format_count, format_share, plural
from capplan.report.page import Fact
from capplan.units import format_duration


def autoscale_why(result: Autoscaled) -> list[Fact]:
    """Return what the replicas of each fleet do that is paid, the chosen one first."""
    best = result.best
    if best is None:
        return []
    others = [row for row in result.fleets if row is not best and row.name != PERFECT]
    return [
        (f"{best.name}, the cheapest", _used(best)),
        *((f"{row.name} {_told(row)}", _why(result, row)) for row in others),
    ]


def _told(row: PolicyResult) -> str:
    return "holds, for no less" if row.meets else "misses"


def _used(row: PolicyResult) -> str:
    """Return how many replicas are paid, and which part of that time they work."""
    hours = row.outcome.hours
    count = plural(hours.peak_replicas, "replica")
    if hours.mean_replicas < hours.peak_replicas:
        count = f"{format_count(hours.mean_replicas)} on average, up to {count}"
    if not hours.paid_h:
        return count
    starts = 1 - hours.ready_h / hours.paid_h
    starting = f", {format_share(starts)} starting" if starts > 0 else ""
    busy = format_share(hours.busy_h / hours.paid_h)
    return f"{count}: {busy} of the paid time busy{starting}"


def _why(result: Autoscaled, row: PolicyResult) -> str:
    """Return what a fleet that is not chosen pays for, or when it misses, and why."""
    parts, outcome, fixed = [_used(row)], row.outcome, result.fixed
    if not row.meets:
        hour = outcome.worst_hour_attainment
        where = "in all" if hour is None else "in its worst hour"
        share = format_share(outcome.slo_attainment if hour is None else hour)
        parts.insert(0, f"{share} in time {where}")
        if fixed and outcome.hours.peak_replicas < fixed.outcome.replica_count:
            parts.append(f"never the {fixed.outcome.replica_count:,} of a fixed fleet")
        elif row.policy and result.cold_start_s:
            delay = format_duration(result.cold_start_s)
            parts.append(f"each serves {delay} after its order")
    longest_s = (row.break_even_s or (None,))[0]
    if longest_s is not None and not row.pays:
        text = f"would pay with a cold start of {format_duration(longest_s)}"
        parts.append(text if longest_s else "would pay without a cold start")
    return "; ".join(parts)
