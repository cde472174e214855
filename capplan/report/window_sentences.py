"""Sentences about windows of time, the same on the terminal and in HTML."""

from collections.abc import Sequence

from capplan.planning.evaluate.judgement import Judgement
from capplan.planning.evaluate.probe import Probe
from capplan.planning.load.worst_windows import TimeWindow
from capplan.planning.plan.result import Plan
from capplan.report.columns import format_count, format_share, plural
from capplan.report.page import Fact
from capplan.units import format_duration, format_usd

CLASSES_NAMED = 3
"""Classes that a sentence about a window names."""
_LENGTHS = {60.0: "minute", 300.0: "5 min", 3600.0: "hour", 86400.0: "day"}


def windows(judgement: Judgement, probes: Sequence[Probe] = ()) -> list[Fact]:
    """Return the attainment in the worst window of each length, and how wide they are.

    Where it is below the target, with the fewest replicas simulated that attain it.
    """
    found = judgement.in_windows
    return [
        *(
            (
                f"worst {window_length(row.joined * row.seconds)}",
                window(row) + _windows_take(row, probes),
            )
            for row in found.worst
        ),
        ("judged in", _judged_in(judgement)),
    ]


def window_length(seconds: float) -> str:
    """Return how long a window is: ``hour``, ``5 min``."""
    return _LENGTHS.get(seconds) or format_duration(seconds)


def window(row: TimeWindow) -> str:
    """Return how many requests of a window are in time, when, and at which rate."""
    asked = "" if row.meets else f" (asked {row.target * 100:.6g} %)"
    whose = " and ".join(row.classes[:CLASSES_NAMED]) or "requests"
    return (
        f"{format_share(row.slo_attainment)} of {whose} in time{asked}, "
        f"{row.when}, at {format_count(row.rate_per_s)} requests/s"
    )


def _windows_take(row: TimeWindow, probes: Sequence[Probe]) -> str:
    if row.meets or not probes:
        return ""
    enough = [
        probe.replica_count
        for probe in probes
        for same in probe.windows
        if same.seconds == row.seconds and same.meets
    ]
    if not enough:
        most = plural(max(probe.replica_count for probe in probes), "replica")
        return f"; even {most} (the most tried) miss in some windows this long"
    return f"; {plural(min(enough), 'replica')} would hold every window this long"


def _judged_in(judgement: Judgement) -> str:
    """Return how wide the windows are in which the target is asked, of each group."""
    found = judgement.in_windows
    judged = [row for row in found.worst if row.is_judged]
    if not judged:
        return "the whole trace" if found.worst or found.peak else ""
    joined = [row for row in found.widths if row.longest > 1]
    texts = []
    if len(joined) < len(found.widths):
        texts.append(f"every {window_length(judged[0].seconds)} of the log")
    for row in joined[:CLASSES_NAMED]:
        of = f"{' and '.join(row.classes[:CLASSES_NAMED])} in " if row.classes else ""
        wide = f"{row.window_count:,} windows"
        if row.window_count > 1:
            wide += f" of up to {format_duration(row.longest * judged[0].seconds)}"
        else:
            wide = "one window, the whole trace"
        texts.append(f"{of}{wide}: shorter ones have too few requests to judge")
    if len(joined) > CLASSES_NAMED:
        texts.append(f"likewise {len(joined) - CLASSES_NAMED:,} more groups")
    return "; ".join(texts)


def held(plan: Plan) -> str:
    """Return whether the peak is held, every window judged, and what decides it."""
    peak, low = plan.peak, [row for row in plan.windows if row.is_judged]
    if peak is None:
        return ""
    said = "The peak holds" if peak.meets else f"The peak misses: {window(peak)}"
    if peak.meets and low and low[0].meets:
        every = window_length(low[0].seconds)
        if any(row.longest > 1 for row in plan.window_widths):
            every = "other window"
        said += f", as does every {every}"
    found = plan.without_window
    if found is None or plan.best is None:
        return f"{said}."
    month = ""
    if found.usd_per_month is not None:
        month = f", {format_usd(found.usd_per_month)} a month"
    last = (plan.best.replica_count or 0) - found.replica_count
    return (
        f"{said}. {found.window.when} alone decides the last "
        f"{'replica' if last == 1 else plural(last, 'replica')}: without it "
        f"{found.replica_count:,} would do ({plural(found.gpu_count, 'GPU')}{month})."
    )
