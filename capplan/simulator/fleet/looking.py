"""What a router sees that asks the replicas for their metrics now and then.

A look at k times the period comes after the arrivals of that instant and before the
replicas' own work, so an arrival sees the newest look before it.
"""

import math

from capplan.simulator.engine.log import log_has_room
from capplan.simulator.engine.queues import has_high_priority, waiting_tokens
from capplan.simulator.fleet.serve import bring_up
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import Count, Setting, State


@inlined()
def next_look_s(state: State):
    """Return when the router looks next; infinite where it looks at each arrival."""
    period_s = state.settings[Setting.REFRESH_S]
    if period_s == 0.0:
        return math.inf
    return (state.counts[Count.LOOKED] + 1) * period_s


@compiled()
def look(state: State, look_s, schedule):
    """Note the metrics of a moment, unless the log is full."""
    bring_up(state, look_s, schedule)
    if not log_has_room(state):
        return
    for r in range(state.replicas.shape[0]):
        replica = state.replicas[r]
        free = replica.free_blocks / state.engine[0].kv_blocks
        replica.seen_waiting = replica.waiting_count
        replica.seen_kv_use = 1.0 - free
        replica.seen_running = replica.running_count
        replica.seen_tokens = waiting_tokens(state, r)
        replica.seen_high = has_high_priority(state, r, state.settings[Setting.HIGH])


@compiled()
def look_before(state: State, now_s, schedule):
    """Take the newest look before a moment; without a period, one at that moment."""
    if next_look_s(state) == math.inf:
        look(state, now_s, schedule)
    elif next_look_s(state) < now_s:
        period_s = state.settings[Setting.REFRESH_S]
        newest = math.ceil(now_s / period_s) - 1
        if newest * period_s >= now_s:  # the quotient was rounded up
            newest -= 1
        elif (newest + 1) * period_s < now_s:  # or down
            newest += 1
        look(state, newest * period_s, schedule)
        if log_has_room(state):
            state.counts[Count.LOOKED] = newest
