"""Longest gap between two tokens of a request, without a look at each token.

A replica keeps (iteration, gap) pairs whose gaps fall with the iteration: a gap
followed by a longer one is never the longest again. For a request whose first
token came in iteration k, the longest gap is the first pair after k. When the
ring of pairs is full, its two oldest are merged; the longer gap is kept, so a
request whose first token came between the two is given a gap from before it.

Where a class has a limit on each gap (TBT), ``late`` counts the gaps of a replica above
it. A request has had as many as were counted since its first token.
"""

import math

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import GAPS, LIMIT_COUNT, Limit, State


@inlined()
def _place(state: State, k):
    """Return the column of ``ends`` of the k-th request that is resuming."""
    return (state.ends.shape[1] >> 1) + k


@inlined()
def note_gap(state: State, r: int, step, gap_s):
    """Record the time between the results of iterations ``step - 1`` and ``step``."""
    replica = state.replicas[r]
    while replica.gap_count > 0:
        newest = (replica.gap_first + replica.gap_count - 1) % GAPS
        if state.gaps[r, newest].gap_s > gap_s:
            break
        replica.gap_count -= 1
    if replica.gap_count == GAPS:
        oldest = replica.gap_first
        second = (oldest + 1) % GAPS
        state.gaps[r, second].gap_s = state.gaps[r, oldest].gap_s
        replica.gap_first = second
        replica.gap_count -= 1
    index = (replica.gap_first + replica.gap_count) % GAPS
    state.gaps[r, index].step = step
    state.gaps[r, index].gap_s = gap_s
    replica.gap_count += 1


@inlined()
def _counts_late(state: State):
    return state.engine[0].counts_late != 0


@compiled()
def _count_late(state: State, r: int, last_s, slope_s, n):
    """Count n gaps, each ``slope_s`` longer than the one before, up to ``last_s``."""
    for c in range(state.classes.shape[0]):
        tbt_s = state.classes[c, Limit.TBT]
        if not last_s > tbt_s:
            continue
        count = n
        if last_s - (n - 1) * slope_s <= tbt_s:
            # The quotient is an estimate; its rounding must not matter.
            count = min(n, math.ceil((last_s - tbt_s) / slope_s))
            while last_s - (count - 1) * slope_s <= tbt_s:
                count -= 1
            while last_s - count * slope_s > tbt_s:
                count += 1
        state.classes[c, LIMIT_COUNT + r] += count


@inlined()
def add_gap(state: State, slot: int, gap_s):
    """Record a gap that only this request has."""
    request = state.requests[slot]
    request.longest_gap_s = max(request.longest_gap_s, gap_s)
    request.late_gaps += _late(state, slot, gap_s)


@inlined()
def _late(state: State, slot: int, gap_s):
    if not _counts_late(state):
        return 0
    return int(gap_s > state.classes[state.requests[slot].request_class, Limit.TBT])


@inlined()
def start_gaps(state: State, r: int, slot: int):
    """Let a request have the gaps recorded from here on."""
    request = state.requests[slot]
    request.token_step = state.replicas[r].step
    if _counts_late(state):
        request.late_gaps -= int(state.classes[request.request_class, LIMIT_COUNT + r])


@inlined()
def end_gaps(state: State, r: int, slot: int):
    """Give a request the gaps recorded since ``start_gaps``."""
    request = state.requests[slot]
    gap_s = longest_gap_s(state, r, request.token_step)
    request.longest_gap_s = max(request.longest_gap_s, gap_s)
    if _counts_late(state):
        request.late_gaps += int(state.classes[request.request_class, LIMIT_COUNT + r])


@inlined()
def note_gaps(state: State, r: int, first_end_s, last_s, slope_s, n):
    """Record the gaps before the results of the next n iterations with decoding.

    The first ends at ``first_end_s``; each takes ``slope_s`` longer than the one
    before, the last ``last_s``. Requests whose last token came while the others sat out
    have a first gap of their own.
    """
    replica = state.replicas[r]
    gap_s = first_end_s - replica.decoded_s
    if _counts_late(state):
        _count_late(state, r, gap_s, 0.0, 1)
    if replica.resuming > 0:
        while replica.resuming > 0:
            replica.resuming -= 1
            slot = state.ends[r, _place(state, replica.resuming)]
            request = state.requests[slot]
            add_gap(state, slot, first_end_s - request.last_token_s)
            request.late_gaps -= _late(state, slot, gap_s)
            request.token_step = replica.step + 1
        note_gap(state, r, replica.step + 1, gap_s)
        gap_s = 0.0
    note_gap(state, r, replica.step + n, max(last_s, gap_s))
    if n > 1 and _counts_late(state):
        _count_late(state, r, last_s, slope_s, n - 1)


@inlined()
def enter_resuming(state: State, r: int, slot: int):
    """Note a decoding request whose last token is not from the last decode step."""
    replica = state.replicas[r]
    state.ends[r, _place(state, replica.resuming)] = slot
    replica.resuming += 1


@inlined()
def is_resuming(state: State, r: int, slot: int):
    """Return whether a request was noted so."""
    for k in range(state.replicas[r].resuming):
        if state.ends[r, _place(state, k)] == slot:
            return True
    return False


@inlined()
def leaves_resuming(state: State, r: int, slot: int):
    """Return whether a request was noted so; it is no longer."""
    replica = state.replicas[r]
    ends = state.ends[r]
    for k in range(replica.resuming - 1, -1, -1):
        if ends[_place(state, k)] == slot:
            replica.resuming -= 1
            ends[_place(state, k)] = ends[_place(state, replica.resuming)]
            return True
    return False


@inlined()
def longest_gap_s(state: State, r: int, step):
    """Return the longest gap recorded after iteration ``step``; 0 when none."""
    replica = state.replicas[r]
    low = 0
    high = replica.gap_count
    while low < high:
        middle = (low + high) >> 1
        if state.gaps[r, (replica.gap_first + middle) % GAPS].step > step:
            high = middle
        else:
            low = middle + 1
    if low == replica.gap_count:
        return 0.0
    return state.gaps[r, (replica.gap_first + low) % GAPS].gap_s
