"""Known events in the order of their times; replicas do their own work in between.

Known are the requests that arrive or are asked, the ends of copies, and the ticks of a
rebalancer. The next of them is delivered where it is not after any replica's
``Motion.wake_s``, the time before which nothing for anyone else can come from it; else
the replica that may be first takes one step. A replica whose work matters to nobody
before it is asked has an infinite one and is brought up when an event touches it. A
step's jump is bounded by the next known event, by the others' ``wake_s``, and by what
the replica itself is about to give: that may come back to it.

See README.md for the order at one instant, and why this is exact.
"""

import math

from numba import types

from capplan.simulator.drivers.deliver import (
    Side,
    deliver,
    deliver_apart,
    hand_over,
    look_on,
    migrate,
    next_tick_s,
    release_read,
    side_look_s,
    tick,
)
from capplan.simulator.drivers.open_loop import ARRIVALS
from capplan.simulator.drivers.users import USERS, ask, next_asked_s, note_answers
from capplan.simulator.drivers.users import Index as User
from capplan.simulator.hand_offs import WHERE
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.log import log_has_room
from capplan.simulator.motion import (
    HAND_OFF,
    MOTION,
    REBALANCE,
    RELEASE,
    Index,
    Setting,
    next_event_s,
    push_event,
)
from capplan.simulator.replica import step
from capplan.simulator.schedulers.vllm_v1_pulling import REPLICA, REQUEST
from capplan.simulator.state import NONE, ROUTE, SCHEDULE, STATE, Count
from capplan.simulator.wake import next_s, set_wake

ROOM, TIME, DONE = range(3)
"""Why ``run`` stopped."""


@inlined()
def _has_room(state):
    """Return whether a request, results and an iteration have room."""
    return (
        state.counts[Count.FREE] != NONE
        and state.counts[Count.RESULTS] + state.replicas.shape[0]
        <= state.results.shape[0] - state.requests.shape[0]
        and log_has_room(state)
    )


@inlined()
def _have_room(first, second, motion):
    moved = motion.counts[Index.MOVED] + motion.moves.shape[0]
    return _has_room(first) and _has_room(second) and moved <= motion.moved.shape[0]


@compiled()
def _note_wake(first, second, motion, place):
    """Note before when nothing for anyone else can come from a replica.

    From one that answers users, its first answer; from a prefill replica, the end of
    any iteration; from a decode replica on which a request waits for blocks to copy to,
    the next scheduling.
    """
    wake_s = math.inf
    if motion.settings[Setting.COUPLES] != 0:
        prefills = first.replicas.shape[0]
        apart = second.replicas.shape[0] > 0
        if place >= prefills:
            r = place - prefills
            wants = second.replica_memory[r, REPLICA.wanting] > 0
            if wants and second.replicas[r].in_flight > 0:
                wake_s = next_s(second, r)
            elif wants or motion.settings[Setting.COUPLES] > 1:
                wake_s = second.replicas[r].wake_s
        elif apart:
            wake_s = next_s(first, place)
        else:
            wake_s = first.replicas[place].wake_s
    motion.wake_s[place] = wake_s


@inlined()
def _note_wakes(first, second, motion):
    if motion.settings[Setting.COUPLES] != 0:
        for place in range(motion.wake_s.shape[0]):
            _note_wake(first, second, motion, place)


@compiled()
def _step(side, r, until_s, users, think_s):
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
    set_wake(state, r)
    note_answers(state, users, think_s, done)
    idles = replica.in_flight == 0 and replica.now_s == before_s
    if idles and replica.idle_until_s > replica.now_s:
        replica.wake_s = replica.idle_until_s  # nothing comes from it before


@compiled()
def _take_news(first, second, motion, of_decode):
    """Note when prompts that are done are handed over, and when copies end."""
    state = second if of_decode else first
    slot = state.counts[Count.NEWS_FIRST]
    while slot != NONE:
        request = state.requests[slot]
        following = request.next_in_list
        if of_decode:
            memory = state.request_memory[slot]
            source = int(memory[REQUEST.source]) - 1
            at_first = int(memory[REQUEST.slot])
            push_event(motion, memory[REQUEST.ready_s], RELEASE, source, at_first)
        else:
            own_s = motion.settings[Setting.HOP_TOKEN_S] * request.prompt_tokens
            time_s = request.handed_s + motion.settings[Setting.HOP_S] + own_s
            push_event(motion, time_s, HAND_OFF, request.replica, slot)
        slot = following
    state.counts[Count.NEWS_FIRST] = NONE
    state.counts[Count.NEWS_LAST] = NONE


@inlined()
def _first_to_wake(wake_s):
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
def _deliver_event(one, other, motion, users, now_s):
    """Deliver the first of the known events."""
    kind = motion.events[motion.heap[0]].kind
    if kind == HAND_OFF:
        hand_over(one, other, motion, users, now_s)
    elif kind == RELEASE:
        release_read(one, motion, now_s)
    else:
        migrate(one, motion, now_s)


@compiled(
    types.int64(
        STATE,
        STATE,
        MOTION,
        USERS,
        ARRIVALS,
        types.Array(types.float64, 1, "C", readonly=True),
        types.float64,
        types.int64,
        types.float64,
        types.float64,
        types.int64,
        types.FunctionType(ROUTE),
        types.FunctionType(SCHEDULE),
        types.int64,
        types.FunctionType(ROUTE),
        types.FunctionType(SCHEDULE),
        types.FunctionType(REBALANCE),
        types.FunctionType(WHERE),
    )
)
def run(
    first,
    second,
    motion,
    users,
    requests,
    think_s,
    asked_until_s,
    until_row,
    until_s,
    known_until_s,
    needs,
    route,
    schedule,
    decode_needs,
    decode_route,
    decode_schedule,
    rebalance,
    where,
):
    """Deliver what is known, and let replicas work in between; return why it stopped.

    ``second`` has no replica where one pool serves all. ``requests`` are in the order
    in which they arrive or are asked; the k-th time that a user starts to think takes
    ``think_s[k]``. DONE: nothing is known, and no replica's work matters to another.
    TIME: all that is known before ``known_until_s`` has been delivered, and no work of
    a replica that matters is left before ``until_s``. ROOM: row ``until_row`` is next,
    or the caller must make room for requests, results or the log.
    """
    one = Side(first, needs, route, schedule)
    other = Side(second, decode_needs, decode_route, decode_schedule)
    apart = second.replicas.shape[0] > 0
    while first.counts[Count.STUCK] == 0 and second.counts[Count.STUCK] == 0:
        if not _have_room(first, second, motion) or (
            users.counts[User.DELIVERED] == until_row
        ):
            return ROOM
        asks_s, reaches_s = next_asked_s(users, requests, asked_until_s)
        asked_s = min(asks_s, reaches_s)
        event_s = next_event_s(motion)
        known_s = min(min(asked_s, event_s), next_tick_s(motion, asked_s))
        place, wake_s, others_s = _first_to_wake(motion.wake_s)
        if min(known_s, wake_s) == math.inf:
            return DONE
        if known_s >= known_until_s and wake_s >= until_s:
            return TIME
        look_s = side_look_s(one)
        if apart:
            look_s = min(look_s, side_look_s(other))
        if look_s < known_s and look_s <= wake_s:
            before_s = min(known_s, math.nextafter(wake_s, math.inf))
            look_on(one, before_s)
            if apart:
                look_on(other, before_s)
        elif known_s > wake_s:
            until_step_s = min(min(known_s, others_s), min(look_s, until_s))
            of_decode = place >= first.replicas.shape[0]
            if of_decode:
                r = place - first.replicas.shape[0]
                _step(other, r, until_step_s, users, think_s)
            else:
                _step(one, place, until_step_s, users, think_s)
            _take_news(first, second, motion, of_decode)
            _note_wake(first, second, motion, place)
            continue
        elif asks_s < reaches_s and asks_s == known_s:
            ask(users)
            continue
        elif reaches_s == known_s and apart:
            deliver_apart(one, other, motion, users, requests, known_s, where)
        elif reaches_s == known_s:
            deliver(one, motion, users, requests, known_s)
        elif event_s == known_s:
            _deliver_event(one, other, motion, users, known_s)
        else:
            tick(one, motion, known_s, rebalance)
        _note_wakes(first, second, motion)
    return DONE
