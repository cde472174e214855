"""What event loops share: whose turn it is, one step, and whether there is room."""

import math
from typing import NamedTuple

from numba import types

from capplan.simulator.drivers.open_loop import ARRIVALS
from capplan.simulator.drivers.users import USERS, note_answers
from capplan.simulator.engine.log import log_has_room
from capplan.simulator.fleet.motion import MOTION
from capplan.simulator.fleet.serve import step
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.memory.prefix_memory import runs_are_short
from capplan.simulator.state import NONE, Count, State

ROOM, TIME, DONE = range(3)
"""Why an event loop stopped."""


class Until(NamedTuple):
    """Until when an event loop goes on."""

    row: int  # of the next request; -1: none
    s: float  # nothing is done that comes from here on [s]
    known_s: float  # nor what is known to come from here on [s]
    asked_s: float  # users ask nothing more from here on [s]


UNTIL = types.NamedTuple((types.int64, *3 * (types.float64,)), Until)
KNOWN = (
    MOTION,
    USERS,
    ARRIVALS,
    types.Array(types.float64, 1, "C", readonly=True),
    UNTIL,
)
"""Types of what event loops know of requests and of the time between replicas."""


@inlined()
def has_room(state: State):
    """Return whether a request, results, an iteration and a router have room."""
    return (
        state.counts[Count.FREE] != NONE
        and state.counts[Count.RESULTS] + state.replicas.shape[0]
        <= state.results.shape[0] - state.requests.shape[0]
        and log_has_room(state)
        and not runs_are_short(state)
    )


@inlined()
def first_to_wake(wake_s):
    """Return whose time comes first, when that is, and when the next one's is."""
    place = 0
    first_s = math.inf
    others_s = math.inf
    for other in range(wake_s.shape[0]):
        if wake_s[other] < first_s:
            others_s = first_s
            first_s = wake_s[other]
            place = other
        elif wake_s[other] < others_s:
            others_s = wake_s[other]
    return place, first_s, others_s


@compiled()
def step_one(side, r, until_s, users, think_s):
    """Let a replica do one thing; what it is about to give bounds its jump."""
    state = side.state
    done = state.counts[Count.RESULTS]
    replica = state.replicas[r]
    if replica.oldest_finishing != NONE:
        until_s = min(until_s, replica.oldest_end_s)
    elif replica.newest_finishing != NONE:
        until_s = min(until_s, replica.newest_end_s)
    before_s = replica.now_s
    step(state, r, until_s, side.schedule)
    note_answers(state, users, think_s, done)
    idles = replica.in_flight == 0 and replica.now_s == before_s
    if idles and replica.idle_until_s > replica.now_s:
        replica.wake_s = replica.idle_until_s  # nothing comes from it before
