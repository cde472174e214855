"""The whole deployment: arrivals in order, each routed, replicas advanced lazily."""

import math

import numpy as np
from numba import types

from capplan.simulator.jit import compiled
from capplan.simulator.kvcache import fill_free_blocks
from capplan.simulator.replica import advance, enqueue, log_has_room
from capplan.simulator.state import NONE, ROUTE, SCHEDULE, STATE, Count, Needs

_I = types.Array(types.int64, 1, "C", readonly=True)
_F = types.Array(types.float64, 1, "C", readonly=True)


@compiled(types.void(STATE))
def start(state):
    """Fill the KV pools of idle replicas."""
    for r in range(state.replicas.shape[0]):
        fill_free_blocks(state, r, state.engine[0].kv_blocks)


@compiled()
def _take_slot(state, row, arrival_s):
    state.counts[Count.FREE_SLOTS] -= 1
    slot = state.free_slots[state.counts[Count.FREE_SLOTS]]
    request = state.requests[slot]
    request.row = row
    request.arrival_s = arrival_s
    request.scheduled_s = math.nan
    request.first_token_s = math.nan
    request.last_token_s = math.nan
    request.longest_gap_s = 0.0
    request.computed_tokens = 0
    request.cached_tokens = 0
    request.hit_blocks = 0
    request.shared_blocks = 0
    request.shared_tail = NONE
    request.preemptions = 0
    return slot


@compiled(
    types.int64(
        STATE,
        _F,
        _I,
        _I,
        _I,
        _I,
        _I,
        _I,
        types.int64,
        types.int64,
        types.float64,
        types.int64,
        types.FunctionType(ROUTE),
        types.FunctionType(SCHEDULE),
    ),
)
def run(
    state,
    arrival_s,
    prompt_tokens,
    output_tokens,
    predicted_tokens,
    prefix_group,
    prefix_tokens,
    request_class,
    first,
    first_row,
    request_s,
    needs,
    route,
    schedule,
):
    """Serve the arrivals of a chunk from its row ``first`` on.

    Returns the row at which it stopped: the length of the chunk, or less when
    the slots, the results or the log are full and want to be emptied.
    """
    replicas = state.replicas
    for row in range(first, arrival_s.shape[0]):
        if (
            state.counts[Count.FREE_SLOTS] == 0
            or state.counts[Count.RESULTS] + replicas.shape[0]
            > state.results.shape[0] - state.requests.shape[0]
        ):
            return row
        now_s = arrival_s[row] + request_s
        if needs == Needs.COUNTS:
            for r in range(replicas.shape[0]):
                if replicas[r].wake_s < now_s:
                    advance(state, r, now_s, schedule)
        elif needs == Needs.ALL:
            for r in range(replicas.shape[0]):
                advance(state, r, now_s, schedule)
        if not log_has_room(state, 0):
            return row

        slot = _take_slot(state, first_row + row, arrival_s[row])
        request = state.requests[slot]
        request.prompt_tokens = prompt_tokens[row]
        request.output_tokens = output_tokens[row]
        request.predicted_tokens = predicted_tokens[row]
        request.prefix_group = prefix_group[row]
        request.prefix_tokens = min(prefix_tokens[row], prompt_tokens[row])
        request.request_class = request_class[row]
        request.known_tokens = prompt_tokens[row]
        state.counts[Count.DRAW] = row
        r = route(state, slot, now_s)
        advance(state, r, now_s, schedule)
        if not log_has_room(state, 0):
            state.free_slots[state.counts[Count.FREE_SLOTS]] = slot
            state.counts[Count.FREE_SLOTS] += 1
            return row
        enqueue(state, r, slot, now_s)
        state.counts[Count.ROUTED] += 1
        if state.counts[Count.STUCK] != 0:
            return row
    return arrival_s.shape[0]


@compiled(
    types.boolean(STATE, types.float64, types.FunctionType(SCHEDULE)),
)
def drain(state, until_s, schedule):
    """Advance every replica to ``until_s``; return whether the log had room."""
    for r in range(state.replicas.shape[0]):
        advance(state, r, until_s, schedule)
        if not log_has_room(state, 0):
            return False
    return True


def read_only(column: np.ndarray, dtype: type) -> np.ndarray:
    """Return a column as the core takes it: contiguous and never written to."""
    view: np.ndarray = np.ascontiguousarray(column, dtype).view()
    view.flags.writeable = False
    return view
