"""Deliver an event to the replicas that it touches: bring them up to it, then do it.

Each function returns without a change where the log of iterations is full: then the
event is still the next one when there is room.
"""

import math

from capplan.simulator.drivers.open_loop import routed, take_slot
from capplan.simulator.drivers.users import Index as User
from capplan.simulator.drivers.users import asked_s, delivered_row
from capplan.simulator.engine.log import log_has_room
from capplan.simulator.engine.queues import give_slot
from capplan.simulator.engine.wake import next_s
from capplan.simulator.fleet.beats import note_finished
from capplan.simulator.fleet.disaggregated import (
    expect,
    note_read,
    receive,
    release_heard,
    replica_of,
)
from capplan.simulator.fleet.looking import look_before, next_look_s
from capplan.simulator.fleet.migration import begin, end_stage, join, turn_back
from capplan.simulator.fleet.motion import JOIN, Index, Setting, drop_event
from capplan.simulator.fleet.serve import advance, bring_up, enqueue
from capplan.simulator.hand_offs import BOTH, DECODE_ALONE, PREFILL_ALONE
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import bounded_blocks
from capplan.simulator.memory.active_blocks import discharge
from capplan.simulator.memory.prefix_memory import runs_are_short
from capplan.simulator.state import NONE, Count, Needs, Phase, State


@inlined()
def side_look_s(side):
    """Return when the router of a pool looks next; infinite where it does not. [s]"""
    return next_look_s(side.state) if side.needs == Needs.SEEN else math.inf


@compiled()
def look_on(side, now_s):
    """Take the newest look before a moment, where the router of a pool looks."""
    if side_look_s(side) < now_s:
        look_before(side.state, now_s, side.schedule)


@compiled()
def _choose(side, slot, draw, now_s):
    """Return the replica of a request, come to ``now_s``; NONE: the log is full."""
    state = side.state
    if side.needs == Needs.COUNTS:
        for r in range(state.replicas.shape[0]):
            if state.replicas[r].wake_s < now_s:
                advance(state, r, now_s, side.schedule)
    elif side.needs == Needs.ALL:
        bring_up(state, now_s, side.schedule)
    elif side.needs == Needs.SEEN:
        look_before(state, now_s, side.schedule)
    if not log_has_room(state):
        return NONE
    state.counts[Count.DRAW] = draw
    r = routed(state, slot, now_s, side.route, side.schedule)
    return r if log_has_room(state) else NONE


@compiled()
def _enqueue(state: State, r: int, slot: int, now_s):
    enqueue(state, r, slot, now_s)
    state.counts[Count.ROUTED] += 1


@inlined()
def _hold(state: State, motion, slot: int):
    """Let a request wait for a replica, behind others that do."""
    state.requests[slot].phase = Phase.EXPECTED
    state.requests[slot].next_in_list = NONE
    last = motion.counts[Index.HELD_LAST]
    if last == NONE:
        motion.counts[Index.HELD_FIRST] = slot
    else:
        state.requests[last].next_in_list = slot
    motion.counts[Index.HELD_LAST] = slot


@inlined()
def _tick_from(motion, setting, count, moment_s):
    """Let what ticks each ``setting`` do so from a moment on, unless it does before.

    ``count`` is that of its next tick.
    """
    period_s = motion.settings[setting]
    tick = int(moment_s / period_s)
    if tick * period_s < moment_s:
        tick += 1
    if motion.counts[count] == NONE or tick < motion.counts[count]:
        motion.counts[count] = tick


@inlined()
def _rebalance_from(motion, now_s):
    """Let the rebalancer, if there is one, tick for what was held and is placed now."""
    if motion.settings[Setting.PERIOD_S] > 0:
        _tick_from(motion, Setting.PERIOD_S, Index.TICK, now_s)


@compiled()
def place_held(side, motion, now_s):
    """Bring the requests that wait for a replica to one."""
    state = side.state
    slot = motion.counts[Index.HELD_FIRST]
    _rebalance_from(motion, now_s)
    while slot != NONE:
        following = state.requests[slot].next_in_list
        if runs_are_short(state):
            break
        draw = state.requests[slot].row % state.draws.shape[0]
        r = _choose(side, slot, draw, now_s)
        if r == NONE:
            break
        _enqueue(state, r, slot, now_s)
        slot = following
    motion.counts[Index.HELD_FIRST] = slot
    if slot == NONE:
        motion.counts[Index.HELD_LAST] = NONE


@compiled()
def deliver(side, motion, users, requests, now_s):
    """Bring the next request to a replica of the only pool."""
    state = side.state
    draw = delivered_row(users)
    slot = take_slot(state, requests, draw, users.counts[User.FIRST])
    state.requests[slot].arrival_s = asked_s(users, requests)
    if state.orders.shape[0] > 0:
        state.orders[slot].tie_break = users.counts[User.DELIVERED]
    if state.counts[Count.OPEN] == 0 or motion.settings[Setting.BEAT_S] > 0:
        _hold(state, motion, slot)
    else:
        r = _choose(side, slot, draw, now_s)
        if r == NONE:
            give_slot(state, slot)
            return
        _enqueue(state, r, slot, now_s)
    users.counts[User.DELIVERED] += 1


@compiled()
def deliver_disaggregated(prefill, decode, motion, users, requests, now_s, where):
    """Bring the next request to both pools, or to one that serves it alone."""
    first, second = prefill.state, decode.state
    draw = delivered_row(users)
    slot = take_slot(second, requests, draw, users.counts[User.FIRST])
    second.requests[slot].arrival_s = asked_s(users, requests)
    at_arrival = motion.settings[Setting.AT_ARRIVAL] != 0
    d = NONE
    place = BOTH
    if at_arrival:
        d = _choose(decode, slot, draw, now_s)
        if d == NONE:
            give_slot(second, slot)
            return
        place = where(first, second, slot, d)
    if place == DECODE_ALONE:
        _enqueue(second, d, slot, now_s)
        users.counts[User.DELIVERED] += 1
        return
    gives_one = second.requests[slot].output_tokens == 1
    if gives_one and motion.settings[Setting.RECOMPUTES] == 0:
        place = PREFILL_ALONE
    at_first = take_slot(first, requests, draw, users.counts[User.FIRST])
    request = first.requests[at_first]
    request.arrival_s = second.requests[slot].arrival_s
    request.predicted_tokens = 1
    if place == BOTH:
        request.output_tokens = 1
        request.run_tokens = 1
        request.bounded_blocks = bounded_blocks(first, request)
        request.partner = slot
    p = _choose(prefill, at_first, draw, now_s)
    if p == NONE:
        give_slot(first, at_first)
        give_slot(second, slot)
        return
    _enqueue(first, p, at_first, now_s)
    if place == PREFILL_ALONE:
        if second.requests[slot].charged_holder != NONE:
            discharge(second, slot)
        give_slot(second, slot)
    elif at_arrival:
        expect(second, slot, d, now_s)
        second.counts[Count.ROUTED] += 1
    users.counts[User.DELIVERED] += 1


@compiled()
def hand_over(prefill, decode, motion, users, now_s):
    """Bring a request whose prompt is done to its decode replica."""
    first, second = prefill.state, decode.state
    event = motion.events[motion.heap[0]]
    at_first, source = event.slot, event.source
    slot = first.requests[at_first].partner
    if motion.settings[Setting.AT_ARRIVAL] != 0:
        d = replica_of(second, second.requests[slot].replica)
        advance(second, d, now_s, decode.schedule)
        if not log_has_room(second):
            return
    else:
        row = second.requests[slot].row - users.counts[User.FIRST]
        d = _choose(decode, slot, row % second.draws.shape[0], now_s)
        if d == NONE:
            return
        expect(second, slot, d, now_s)
        second.counts[Count.ROUTED] += 1
    drop_event(motion)
    receive(first, second, source, at_first, now_s)
    if motion.settings[Setting.RECOMPUTES] == 0:
        request = second.requests[slot]
        request.first_token_s = first.requests[at_first].first_token_s
        request.last_token_s = request.first_token_s


@compiled()
def read(prefill, motion, now_s):
    """Note that a decode replica has read the blocks of a prompt.

    The prefill replica frees them when it hears of that.
    """
    state = prefill.state
    event = motion.events[motion.heap[0]]
    r, slot = replica_of(state, event.source), event.slot
    advance(state, r, now_s, prefill.schedule)
    if not log_has_room(state):
        return
    drop_event(motion)
    note_read(state, motion, r, slot)
    if motion.settings[Setting.LAUNCHES] == 0 or next_s(state, r) == math.inf:
        release_heard(state, motion, r, now_s, True)


@compiled()
def migrate(side, motion, now_s):
    """End a stage of a migration, or let the request join."""
    state = side.state
    event = motion.events[motion.heap[0]]
    source, kind = event.source, event.kind
    move = motion.moves[source]
    if move.slot == NONE or move.event != event.sequence:  # a replica died
        drop_event(motion)
        return
    advance(state, source, now_s, side.schedule)
    if move.destination != NONE:
        advance(state, move.destination, now_s, side.schedule)
    if not log_has_room(state):
        return
    drop_event(motion)
    if move.destination == NONE:
        turn_back(state, motion, source, now_s)
    elif kind == JOIN:
        join(state, motion, source, now_s)
    else:
        end_stage(state, motion, source, now_s)


@inlined()
def next_period_s(motion, setting, count, asked_s):
    """Return when what ticks does so next, at or after the next request. [s]"""
    period_s = motion.settings[setting]
    if period_s == 0.0:
        return math.inf
    if motion.counts[count] == NONE:
        if asked_s == math.inf:
            return math.inf
        _tick_from(motion, setting, count, asked_s)
    return motion.counts[count] * period_s


@inlined()
def _is_idle(state: State):
    for r in range(state.replicas.shape[0]):
        if state.replicas[r].outstanding > 0:
            return False
    return True


@compiled()
def tick(side, motion, now_s, rebalance):
    """Let the rebalancer move requests; it sleeps while there is none."""
    state = side.state
    bring_up(state, now_s, side.schedule)
    if not log_has_room(state):
        return
    if _is_idle(state):
        motion.counts[Index.TICK] = NONE
        return
    motion.counts[Index.TICK] += 1
    for k in range(rebalance(state, motion, now_s)):
        source, target, slot = motion.pairs[k]
        begin(state, motion, source, target, slot, now_s)


@compiled()
def beat(side, motion, now_s, dispatch):
    """Let the dispatcher place what is held; it sleeps while there is nothing."""
    state = side.state
    bring_up(state, now_s, side.schedule)
    if not log_has_room(state):
        return
    note_finished(state, motion)
    if state.counts[Count.OPEN] > 0:
        _rebalance_from(motion, now_s)
        for _ in range(dispatch(state, motion, now_s)):
            slot = motion.counts[Index.HELD_FIRST]
            motion.counts[Index.HELD_FIRST] = state.requests[slot].next_in_list
        if motion.counts[Index.HELD_FIRST] == NONE:
            motion.counts[Index.HELD_LAST] = NONE
    motion.counts[Index.BEAT] += 1
    if motion.counts[Index.HELD_FIRST] == NONE and _is_idle(state):
        motion.counts[Index.BEAT] = NONE
