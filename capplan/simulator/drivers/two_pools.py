"""Disaggregated prefill and decode: known events in order, replicas in between.

As ``one_pool.py``; known are also the ends of prompts, which hand their requests over,
and of copies, which release their blocks. A prefill replica may make an event at the
end of any iteration; a decode replica at its next scheduling while a request waits on
it for blocks, since its copy may begin then. Only in these states, and where users wait
for answers, do replicas go on step by step.
"""

import math

from numba import types

from capplan.simulator.drivers.deliver import (
    deliver_disaggregated,
    hand_over,
    look_on,
    read,
    side_look_s,
)
from capplan.simulator.drivers.stepping import (
    DONE,
    KNOWN,
    ROOM,
    TIME,
    first_to_wake,
    has_room,
    step_one,
)
from capplan.simulator.drivers.users import Index as User
from capplan.simulator.drivers.users import ask, next_asked_s
from capplan.simulator.engine.wake import next_s
from capplan.simulator.fleet.disaggregated import release_heard
from capplan.simulator.fleet.motion import (
    ANSWERS,
    HAND_OFF,
    READ,
    Setting,
    next_event_s,
    push_event,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.copies import REPLICA, REQUEST
from capplan.simulator.state import NONE, SIDE, WHERE, Count


@inlined()
def _decode_wake_s(second, motion, r):
    """Return before when nothing for anyone else can come from a decode replica."""
    replica = second.replicas[r]
    count = max(1, second.engine[0].ranks)
    wants = False
    for row in range(r * count, (r + 1) * count):
        wants = wants or second.replica_memory[row, REPLICA.wanting] > 0
    if wants and replica.in_flight > 0:
        return next_s(second, r)
    if wants or motion.settings[Setting.COUPLES] == ANSWERS:
        return replica.wake_s
    return math.inf


@inlined()
def _note_wakes(first, second, motion):
    prefills = first.replicas.shape[0]
    for r in range(prefills):
        motion.wake_s[r] = next_s(first, r)
    for r in range(second.replicas.shape[0]):
        motion.wake_s[prefills + r] = _decode_wake_s(second, motion, r)


@inlined()
def _step_prefill(side, motion, r, until_s, users, think_s):
    """Let a prefill replica do one thing; note the prompts that it hands over."""
    state = side.state
    replica = state.replicas[r]
    at_s = replica.now_s
    calls = replica.in_flight < state.engine[0].depth and replica.stalled == 0
    if calls:
        motion.reading[2, r] += 1
        release_heard(state, motion, r, at_s, False)
    step_one(side, r, until_s, users, think_s)
    slot = state.counts[Count.NEWS_FIRST]
    while slot != NONE:
        request = state.requests[slot]
        following = request.next_in_list
        own_s = motion.settings[Setting.HOP_TOKEN_S] * request.prompt_tokens
        time_s = request.handed_s + motion.settings[Setting.HOP_S] + own_s
        push_event(motion, time_s, HAND_OFF, request.replica, slot)
        slot = following
    state.counts[Count.NEWS_FIRST] = NONE
    state.counts[Count.NEWS_LAST] = NONE
    if next_s(state, r) == math.inf:
        idle_s = at_s if replica.now_s == math.inf else replica.now_s
        release_heard(state, motion, r, idle_s, True)
    motion.wake_s[r] = next_s(state, r)


@inlined()
def _step_decode(side, motion, r, until_s, users, think_s, prefills):
    """Let a decode replica do one thing; note the copies that begin."""
    state = side.state
    step_one(side, r, until_s, users, think_s)
    slot = state.counts[Count.NEWS_FIRST]
    while slot != NONE:
        following = state.requests[slot].next_in_list
        memory = state.request_memory[slot]
        source = int(memory[REQUEST.source]) - 1
        at_first = int(memory[REQUEST.slot])
        push_event(motion, memory[REQUEST.ready_s], READ, source, at_first)
        slot = following
    state.counts[Count.NEWS_FIRST] = NONE
    state.counts[Count.NEWS_LAST] = NONE
    motion.wake_s[prefills + r] = _decode_wake_s(state, motion, r)


@compiled(types.int64(SIDE, SIDE, *KNOWN, types.FunctionType(WHERE)))
def run(prefill, decode, motion, users, requests, think_s, until, where):
    """Deliver what is known, and let replicas work in between; return why it stopped.

    See ``one_pool.driver``.
    """
    first, second = prefill.state, decode.state
    prefills = first.replicas.shape[0]
    while first.counts[Count.STUCK] == 0 and second.counts[Count.STUCK] == 0:
        if (
            users.counts[User.DELIVERED] == until.row
            or not has_room(first)
            or not has_room(second)
        ):
            return ROOM
        asks_s, reaches_s = next_asked_s(users, requests, until.asked_s)
        event_s = next_event_s(motion)
        known_s = min(min(asks_s, reaches_s), event_s)
        place, wake_s, others_s = first_to_wake(motion.wake_s)
        idles = min(known_s, wake_s) == math.inf
        rests = idles or (known_s >= until.known_s and wake_s >= until.s)
        look_s = min(side_look_s(prefill), side_look_s(decode))
        if rests and look_s < until.s < math.inf:
            look_on(prefill, until.s)
            look_on(decode, until.s)
        elif rests:
            return DONE if idles else TIME
        elif look_s < known_s and look_s <= wake_s:
            before_s = min(known_s, math.nextafter(wake_s, math.inf))
            look_on(prefill, before_s)
            look_on(decode, before_s)
        elif known_s > wake_s:
            until_step_s = min(min(known_s, others_s), min(look_s, until.s))
            r = place - prefills
            if r < 0:
                _step_prefill(prefill, motion, place, until_step_s, users, think_s)
            else:
                _step_decode(decode, motion, r, until_step_s, users, think_s, prefills)
            continue
        elif asks_s < reaches_s and asks_s == known_s:
            ask(users)
            continue
        elif reaches_s == known_s:
            deliver_disaggregated(
                prefill, decode, motion, users, requests, known_s, where
            )
        elif motion.events[motion.heap[0]].kind == HAND_OFF:
            hand_over(prefill, decode, motion, users, known_s)
        else:
            read(prefill, motion, known_s)
        _note_wakes(first, second, motion)
    return DONE
