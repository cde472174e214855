"""The order in which AccelGen looks at requests: prompts by slack, and decodes.

Decodes, running or paused, stand before all prompts, the one with the strictest limit
first. Prompts stand by ``latest_start_s``, which changes only when they get a chunk.
"""

import math

from capplan.simulator.engine.ordered import (
    first_at,
    first_ordered,
    next_ordered,
    place,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.schedulers.slack import (
    REQUEST,
    SETTING,
    latest_start_s,
    limit_s,
    longest_s,
)
from capplan.simulator.state import NONE, Phase, State

_DECODES = -1e100
"""Keys of decodes are below, those of prompts above."""


@compiled()
def file_request(state: State, r: int, slot: int):
    """Put a request where it stands now: its limit or slack has changed."""
    request = state.requests[slot]
    if request.phase == Phase.DECODING:
        key = _DECODES * 1e100 / limit_s(state, slot, 1)
    else:
        state.request_memory[slot, REQUEST.deadline_s] = latest_start_s(state, r, slot)
        key = _rank(state, slot)
    place(state, r, slot, key, request.row)


@inlined()
def _rank(state: State, slot: int):
    """Return what requests are ordered by: slack, or arrival without ``ordering``."""
    if state.settings[SETTING.ordering] != 0:
        return state.request_memory[slot, REQUEST.deadline_s]
    return float(state.requests[slot].row)


@inlined()
def is_decode(state: State, slot: int):
    """Return whether a request in the order decodes, if it runs."""
    return state.orders[slot].key < _DECODES


@inlined()
def first_prompt(state: State, r: int):
    """Return the first prompt, or NONE."""
    return first_at(state, r, _DECODES)


@inlined()
def is_long(state: State, slot: int):
    """Return whether a prompt is one that ERA serves alone."""
    return state.requests[slot].prompt_tokens >= state.settings[SETTING.long_tokens]


@inlined()
def urgent_s(state: State, slot: int):
    """Return when a prompt turns urgent. [s]"""
    return state.request_memory[slot, REQUEST.deadline_s] - longest_s(state)


@inlined()
def is_urgent(state: State, r: int, slot: int):
    """Return whether a prompt has slack of T_max at most, or is late."""
    return urgent_s(state, slot) <= state.replicas[r].now_s


@inlined()
def is_past(state: State, r: int, slot: int):
    """Return whether no urgent prompt follows."""
    return state.settings[SETTING.ordering] != 0 and not is_urgent(state, r, slot)


@inlined()
def has_urgent(state: State, r: int):
    """Return whether a prompt is urgent."""
    slot = first_prompt(state, r)
    while slot != NONE and not is_past(state, r, slot):
        if is_urgent(state, r, slot):
            return True
        slot = next_ordered(state, slot)
    return False


@inlined()
def first_calm(state: State, r: int):
    """Return the first prompt that is not urgent, or NONE."""
    slot = first_prompt(state, r)
    while slot != NONE and is_urgent(state, r, slot):
        slot = next_ordered(state, slot)
    return slot


@inlined()
def next_urgent_s(state: State, r: int):
    """Return when the next calm prompt turns urgent; infinite without. [s]"""
    slot = first_calm(state, r)
    soonest_s = math.inf
    while slot != NONE:
        if not is_urgent(state, r, slot):
            soonest_s = min(soonest_s, urgent_s(state, slot))
        if state.settings[SETTING.ordering] != 0:
            break
        slot = next_ordered(state, slot)
    return soonest_s


@compiled()
def decodes_by_slack(state: State, r: int):
    """Return the first of all decodes by slack; ``next_in_list`` leads to the next."""
    head = NONE
    slot = first_ordered(state, r)
    while slot != NONE and is_decode(state, slot):
        state.request_memory[slot, REQUEST.deadline_s] = latest_start_s(state, r, slot)
        state.requests[slot].next_in_list = head
        head = slot
        slot = next_ordered(state, slot)
    width = 1
    while True:  # merge sort: runs of ``width`` are in order
        runs = 0
        one = head
        head = NONE
        last = NONE
        while one != NONE:
            runs += 1
            other = one
            ones = 0
            while ones < width and other != NONE:
                other = state.requests[other].next_in_list
                ones += 1
            others = width
            while ones > 0 or (others > 0 and other != NONE):
                if ones > 0 and (
                    others == 0 or other == NONE or runs_before(state, one, other)
                ):
                    taken = one
                    one = state.requests[one].next_in_list
                    ones -= 1
                else:
                    taken = other
                    other = state.requests[other].next_in_list
                    others -= 1
                if last == NONE:
                    head = taken
                else:
                    state.requests[last].next_in_list = taken
                last = taken
            one = other
        if last != NONE:
            state.requests[last].next_in_list = NONE
        if runs <= 1:
            return head
        width *= 2


@inlined()
def runs_before(state: State, one, other):
    """Return whether a request has less slack than another."""
    a = _rank(state, one)
    b = _rank(state, other)
    return a < b or (a == b and state.requests[one].row < state.requests[other].row)
