"""What was read of a trace, in one line."""

from datetime import UTC, datetime

import numpy as np

from capplan.units import format_duration
from capplan.workload.readers.wrong_header import listed
from capplan.workload.trace import Trace

_HOUR_S = 3600.0


def described(trace: Trace) -> str:
    """Return what a trace holds and what of its source was left out.

    Examples
    --------
    >>> described(Trace([5] * 4, [5] * 4, np.array([0.0, 1, 2, 3]), left_out=(0, 2)))
    '4 requests over 3 s (1/s) of 5/5 tokens, 2 failed (left out), 1 class, no sessions'
    """
    others, failed = trace.left_out
    tokens = f"{trace.prompt_tokens.mean():,.0f}/{trace.output_tokens.mean():,.0f}"
    count = f"{len(trace):,} request{'s' * (len(trace) != 1)}"
    parts = [f"{count} {_times(trace)} of {tokens} tokens"]
    if failed:
        parts.append(f"{failed:,} failed (left out)")
    if others:
        parts.append(f"{others:,} rows that are no requests (left out)")
    parts += [*_peak(trace), _classes(trace), _sessions(trace)]
    text = ", ".join(parts)
    if trace.unread_columns and "columns not read" not in str(trace.notes):
        text += f"; columns not read: {listed(trace.unread_columns)}"
    return text


def _times(trace: Trace) -> str:
    if trace.arrival_s is None:
        return "without times"
    rate = f" ({trace.rate_per_s:.3g}/s)" * bool(np.isfinite(trace.rate_per_s))
    return f"over {format_duration(trace.duration_s)}{rate}"


def _peak(trace: Trace) -> list[str]:
    """Return the busiest hour of two or more, by the log's clock if it has one."""
    if trace.arrival_s is None or trace.duration_s < 2 * _HOUR_S:
        return []
    begin_s = trace.arrival_s[0] if trace.clock_s is None else -trace.clock_s
    hours, counts = np.unique(
        np.floor((trace.arrival_s - begin_s) / _HOUR_S), return_counts=True
    )
    at_s = float(hours[counts.argmax()]) * _HOUR_S
    when = f"from {format_duration(at_s)} on"
    if trace.clock_s is not None:
        is_long = trace.duration_s > 24 * _HOUR_S
        shown = "%a %Y-%m-%d %H:%M" if is_long else "%H:%M"
        when = f"at {datetime.fromtimestamp(at_s, UTC):{shown}}"
    return [f"peak hour {counts.max() / _HOUR_S:.3g}/s {when}"]


def _classes(trace: Trace) -> str:
    names = trace.class_names
    if len(names) == 1:
        return "1 class" if names == ("all",) else f"1 class ({names[0]})"
    return f"{len(names):,} classes ({listed(names, 4)})"


def _sessions(trace: Trace) -> str:
    count = len(np.unique(trace.session[trace.session >= 0]))
    if not count:
        return "no sessions"
    return f"{count:,} sessions (read by --router session alone)"
