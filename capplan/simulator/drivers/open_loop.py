"""Arrivals that are known beforehand: route them in order, advance when needed."""

import math
from typing import NamedTuple

import numpy as np
from numba import types

from capplan.simulator.by_pointer import by_pointer, pointer_to
from capplan.simulator.engine.log import log_has_room
from capplan.simulator.engine.queues import give_slot
from capplan.simulator.engine.ranks import sum_up
from capplan.simulator.engine.wake import next_s
from capplan.simulator.fleet.looking import look_before
from capplan.simulator.fleet.serve import advance, bring_up, enqueue
from capplan.simulator.fleet.tournament import first_that_wakes, watch
from capplan.simulator.jit import compiled, direct, inlined
from capplan.simulator.kv.kvcache import bounded_blocks, fill_free_blocks
from capplan.simulator.memory.prefix_memory import runs_are_short
from capplan.simulator.state import (
    ADVANCE_FIRST,
    NONE,
    SIDE,
    STATE,
    Count,
    Needs,
    Side,
    State,
)
from capplan.simulator.v1.images import GIVEN_AT


@by_pointer
class Arrivals(NamedTuple):
    """Requests of a chunk in order of arrival: read-only columns, shape (n,)."""

    arrival_s: np.ndarray  # float64
    reaches_s: np.ndarray  # float64, when each has passed the front end; ascends
    prompt_tokens: np.ndarray  # int64, as all below
    output_tokens: np.ndarray
    predicted_tokens: np.ndarray  # predicted output
    most_output_tokens: np.ndarray  # that clients asked for
    prefix_group: np.ndarray
    prefix_tokens: np.ndarray
    request_class: np.ndarray
    priority: np.ndarray
    session: np.ndarray
    adapter: np.ndarray
    images: np.ndarray  # float64, (n, columns): of ``request_memory`` from GIVEN_AT on


def read_only(column: np.ndarray, dtype: type) -> np.ndarray:
    """Return a column as the core takes it: contiguous and read-only."""
    view: np.ndarray = np.ascontiguousarray(column, dtype).view()
    view.flags.writeable = False
    return view


NO_TIMES = read_only(np.zeros(0), np.float64)
NO_COLUMNS = read_only(np.zeros((0, 0)), np.float64)
NO_ARRIVALS = Arrivals(
    *2 * [NO_TIMES], *10 * [read_only(np.zeros(0), np.int64)], *[NO_COLUMNS]
)
ARRIVALS = pointer_to(NO_ARRIVALS)
NO_DRAIN = -math.inf


@compiled(types.void(STATE))
def start(state: State):
    """Make all KV blocks of idle replicas free."""
    if state.engine[0].ranks > 0:
        ranks = state.by_rank
        for r in range(state.ranks.shape[0]):
            fill_free_blocks(ranks, r, state.engine[0].kv_blocks)
        for g in range(state.replicas.shape[0]):
            sum_up(state, g)
        return
    for r in range(state.replicas.shape[0]):
        fill_free_blocks(state, r, state.engine[0].kv_blocks)


@compiled()
def take_slot(state: State, arrivals, row, first_row):
    """Return the slot of an arrival, with what is known of the request."""
    slot = state.counts[Count.FREE]
    request = state.requests[slot]
    state.counts[Count.FREE] = request.next
    request.row = first_row + row
    request.arrival_s = arrivals.arrival_s[row]
    request.scheduled_s = math.nan
    request.first_token_s = math.nan
    request.last_token_s = math.nan
    request.longest_gap_s = 0.0
    request.late_gaps = 0
    request.computed_tokens = 0
    request.cached_tokens = 0
    request.hit_blocks = 0
    request.shared_blocks = 0
    request.unhashed_tokens = 0
    request.preemptions = 0
    request.migrations = 0
    request.joined_tokens = 0
    request.partner = NONE
    request.handed_s = 0.0
    if state.orders.shape[0] > 0:
        state.orders[slot].ordered = 0
        state.orders[slot].tie_break = request.row
    if state.pauses.shape[0] > 0:
        request.room_tokens = 0
        state.pauses[slot].since_s = math.nan
        state.pauses[slot].paused_s = 0.0
    if state.swaps.shape[0] > 0:
        state.swaps[slot].host_blocks = 0
        state.swaps[slot].swaps = 0
    for column in range(state.request_memory.shape[1]):
        state.request_memory[slot, column] = 0.0
    for column in range(arrivals.images.shape[1]):
        state.request_memory[slot, GIVEN_AT + column] = arrivals.images[row, column]
    request.prompt_tokens = arrivals.prompt_tokens[row]
    request.output_tokens = arrivals.output_tokens[row]
    request.run_tokens = arrivals.output_tokens[row]
    request.predicted_tokens = arrivals.predicted_tokens[row]
    request.most_output_tokens = arrivals.most_output_tokens[row]
    request.prefix_group = arrivals.prefix_group[row]
    request.prefix_tokens = min(arrivals.prefix_tokens[row], request.prompt_tokens)
    request.request_class = arrivals.request_class[row]
    request.priority = arrivals.priority[row]
    request.session = arrivals.session[row]
    request.adapter = arrivals.adapter[row]
    request.known_tokens = request.prompt_tokens
    request.bounded_blocks = bounded_blocks(state, request)
    return slot


@inlined()
def routed(state: State, slot: int, now_s, route, schedule):
    """Return the replica of an arrival, advanced to it: but where the log is full.

    A router that was asked keeps account of its answer, so it is not asked again.
    """
    r = state.counts[Count.CHOSEN]
    if r == NONE:
        r = route(state, slot, now_s)
    while r <= ADVANCE_FIRST:
        asked = ADVANCE_FIRST - r
        advance(state, asked, now_s, schedule)
        # Where it did not come there the log is full, or it is stuck.
        if next_s(state, asked) < now_s:
            return asked
        r = route(state, slot, now_s)
    advance(state, r, now_s, schedule)
    state.counts[Count.CHOSEN] = NONE if log_has_room(state) else r
    return r


@compiled(types.int64(SIDE, ARRIVALS, types.int64, types.int64, types.float64))
def run(side, arrivals, first, first_row, drain_s):
    """Serve the arrivals of a chunk from its row ``first`` on.

    Returns the row at which it stopped: the length of the chunk, or less when
    the caller must first make room for requests, results or the log. Where ``drain_s``
    is a time, every replica is then advanced to it; NONE when the log had no room.
    """
    state, needs, route, schedule = side
    replicas = state.replicas
    n = arrivals.arrival_s.shape[0]
    if needs == Needs.COUNTS:
        for r in range(replicas.shape[0]):
            watch(state, r)
    for row in range(first, n):
        if (
            state.counts[Count.FREE] == NONE
            or state.counts[Count.RESULTS] + replicas.shape[0]
            > state.results.shape[0] - state.requests.shape[0]
            or runs_are_short(state)
        ):
            return row
        now_s = arrivals.reaches_s[row]
        if needs == Needs.COUNTS:
            # No request can finish before wake_s, so the counts are up to date.
            r = first_that_wakes(state, now_s)
            while r != NONE:
                advance(state, r, now_s, schedule)
                watch(state, r)
                if replicas[r].wake_s < now_s:
                    break  # the log is full, or it is stuck
                r = first_that_wakes(state, now_s)
        elif needs == Needs.ALL:
            bring_up(state, now_s, schedule)
        elif needs == Needs.SEEN:
            look_before(state, now_s, schedule)
        if not log_has_room(state):
            return row

        slot = take_slot(state, arrivals, row, first_row)
        state.counts[Count.DRAW] = row
        r = routed(state, slot, now_s, route, schedule)
        if not log_has_room(state):
            # The replica may not have reached now_s: give the slot back and
            # route this arrival again once the log is empty.
            give_slot(state, slot)
            return row
        enqueue(state, r, slot, now_s)
        if needs == Needs.COUNTS:
            watch(state, r)
        state.counts[Count.ROUTED] += 1
        if state.counts[Count.STUCK] != 0:
            return row
    if drain_s > NO_DRAIN:
        for r in range(replicas.shape[0]):
            advance(state, r, drain_s, schedule)
            if not log_has_room(state):
                return NONE
    return n


def drain(side: Side, until_s: float) -> bool:
    """Advance every replica to ``until_s``; return whether the log had room."""
    idle = side._replace(needs=int(Needs.NOTHING))
    return bool(direct(run)(idle, NO_ARRIVALS, 0, 0, until_s) != NONE)
