"""What a router sees that asks the replicas for their metrics now and then.

A look at k times the period comes after the arrivals of that instant and before the
replicas' own work, so an arrival sees the newest look before it.
"""

import math

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.log import log_has_room
from capplan.simulator.replica import advance
from capplan.simulator.state import LOOKED, SEEN_KV_USE, SEEN_WAITING, Setting
from capplan.simulator.wake import next_s


@inlined()
def next_look_s(state):
    """Return when the router looks next; infinite where it looks at each arrival."""
    period_s = state.settings[Setting.REFRESH_S]
    if period_s == 0.0:
        return math.inf
    return (state.scratch[LOOKED, 0] + 1.0) * period_s


@compiled()
def look(state, look_s, schedule):
    """Note the metrics of a moment, unless the log is full."""
    for r in range(state.replicas.shape[0]):
        if next_s(state, r) < look_s:
            advance(state, r, look_s, schedule)
    if not log_has_room(state):
        return
    for r in range(state.replicas.shape[0]):
        replica = state.replicas[r]
        free = replica.free_blocks / state.engine[0].kv_blocks
        state.scratch[SEEN_WAITING, r] = replica.waiting_count
        state.scratch[SEEN_KV_USE, r] = 1.0 - free


@compiled()
def look_before(state, now_s, schedule):
    """Take the newest look before a moment; without a period, one at that moment."""
    if next_look_s(state) == math.inf:
        look(state, now_s, schedule)
    elif next_look_s(state) < now_s:
        period_s = state.settings[Setting.REFRESH_S]
        newest = math.ceil(now_s / period_s) - 1.0
        if newest * period_s >= now_s:  # the quotient was rounded up
            newest -= 1.0
        look(state, newest * period_s, schedule)
        if log_has_room(state):
            state.scratch[LOOKED, 0] = newest
