"""More or fewer requests at the hours at which a trace has them."""

from dataclasses import replace

import numpy as np

from capplan.errors import InputError
from capplan.workload.forest import begins_s, session_of, take
from capplan.workload.synthesis import merged, renumbered
from capplan.workload.trace import MOST_REQUESTS, Trace

MOST_SCALE = 1000.0
"""Times its traffic that a trace may be given."""

_MOST_SHIFT_S = 300.0
_SHIFT_SHARE = 0.1
"""Copies are shifted by so much at most [s], and by this part of the trace."""


def scaled_traffic(trace: Trace, scale: float, seed: int) -> Trace:
    """Return a trace with ``scale`` times its requests, at the same hours.

    Up to 1 each session is kept with probability ``scale``, and each request without
    one: a Poisson process stays one (thinning), and classes, lengths and prefix groups
    keep their shares. What a smaller scale keeps, a larger one keeps too.

    Above 1 whole copies are added, of its fraction a thinned one (superposition). Each
    is shifted by a time of its own, up to 5 minutes or a tenth of the trace, around the
    end: bursts keep their shape and do not meet their own copies, while the hours of a
    day stay. Copies have sessions and prefix groups of their own, as other users have,
    but for a group of all requests: more of the same would hit the prefix cache more
    often than the source does. Of conversations whole sessions are kept and shifted;
    the waits in them stay.
    """
    if not 0 < scale <= MOST_SCALE:
        raise InputError(
            f"--scale is {scale:g}; expected more than 0 and at most {MOST_SCALE:g}"
        )
    if trace.arrival_s is None:
        raise InputError(
            f"{trace.source}: no arrival times, so that --scale has nothing to "
            "multiply; give --rate"
        )
    if scale == 1:
        return trace
    if scale * len(trace) > MOST_REQUESTS:
        raise InputError(
            f"--scale {scale:g}: {scale * len(trace):,.0f} requests; expected at most "
            f"{MOST_REQUESTS:,}"
        )
    whole, part = divmod(scale, 1.0)
    shares = [1.0] * int(whole) + [part] * (part > 0)
    parts = [
        copied
        for index, share in enumerate(shares)
        if (copied := _copy(trace, index, len(shares), share, seed)) is not None
    ]
    if not parts:
        raise InputError(f"--scale {scale:g}: none of {len(trace):,} requests is left")
    result = merged(parts)
    note = f"{scale:g} times the requests: {len(result):,} of {len(trace):,}"
    return replace(result, notes=(*trace.notes, note))


def _copy(
    trace: Trace, index: int, copies: int, share: float, seed: int
) -> Trace | None:
    """Return the requests of a copy, or its sessions; None where none is left."""
    shift_s = _shift_s(trace, index, copies, seed)
    kept = _draws(trace, index, seed) < share
    if not kept.any():
        return None
    if trace.has_turns:
        label = session_of(trace)
        _, first = np.unique(label, return_index=True)
        begin_s = _shifted(trace, begins_s(trace, label), shift_s)
        sessions = np.flatnonzero(kept[first])
        copied = take(trace, sessions, begin_s[sessions])
        return copied.changed(session=copied.session + index * len(first))
    arrival_s = _shifted(trace, trace.arrival_s, shift_s)
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(arrival_s[rows], kind="stable")]
    copied = replace(trace, arrival_s=None).select(rows)
    copied = renumbered(copied, trace, index) if index else copied
    return copied.changed(arrival_s=arrival_s[rows])


def _draws(trace: Trace, index: int, seed: int) -> np.ndarray:
    """Return a number in [0, 1) of each request, the same in a session, shape (n,)."""
    rng = np.random.default_rng((seed, 11, index))
    session = session_of(trace) if trace.has_turns else trace.session
    # A request without a session is one by itself.
    alone = -1 - np.arange(len(trace))
    _, unit = np.unique(np.where(session < 0, alone, session), return_inverse=True)
    return np.asarray(rng.random(len(trace))[unit])


def _shift_s(trace: Trace, index: int, copies: int, seed: int) -> float:
    """Return the time by which a copy is shifted, apart from that of others. [s]"""
    if index == 0:
        return 0.0
    most_s = min(_MOST_SHIFT_S, _SHIFT_SHARE * trace.duration_s)
    within = float(np.random.default_rng((seed, 12, index)).uniform(0.25, 0.75))
    return most_s * (index - 1 + within) / max(1, copies - 1)


def _shifted(trace: Trace, arrival_s: np.ndarray | None, shift_s: float) -> np.ndarray:
    """Return arrivals in a trace shifted around its end, in their shape. [s]"""
    assert arrival_s is not None
    assert trace.arrival_s is not None
    if not shift_s > 0:
        return arrival_s
    first_s = float(np.nanmin(trace.arrival_s))
    # The last request is followed by the first one after a mean gap.
    arrivals = int(np.isfinite(trace.arrival_s).sum())
    period_s = trace.duration_s * arrivals / max(1, arrivals - 1)
    return first_s + np.fmod(arrival_s - first_s + shift_s, period_s or np.inf)
