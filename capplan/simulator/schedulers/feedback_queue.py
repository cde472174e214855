"""A multi-level feedback queue: levels of requests, each with a quantum of time.

The requests that wait stand in order of level and turn (ordered.py). What runs goes
to the front of its level one by one when its iteration ends, so the order of running
requests turns round in each iteration. They keep their turns instead, and are read
from the other end after an odd number of iterations since ``turned_step``.

Settings: see fastserve.py.
"""

import math

from capplan.simulator.engine.jump import ROUNDING_S
from capplan.simulator.engine.ordered import first_at, next_ordered, place
from capplan.simulator.engine.pausing import pause
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.swapping import next_arrival
from capplan.simulator.schedulers import Knob, indices
from capplan.simulator.state import NONE, State

SETTINGS = {
    "base_quantum_s": Knob(0.01, 1e-6),
    "ratio": Knob(2.0, 1.0, 1e3),
    "levels": Knob(1000, 1, 1000),
    "starvation_s": Knob(3.0, 0.0),
    "starvation_iterations": Knob(1000),
    "as_written": Knob(0, 0, 1),
}
SETTING = indices(SETTINGS)
REQUEST_COLUMNS = (
    "level",
    "offset_s",  # now_s less the time it ran at its level, or that
    "since_s",  # when it last ran, or was promoted
    "deadline_s",  # of its time at its level
)
REQUEST = indices(REQUEST_COLUMNS)
REPLICA_COLUMNS = (
    "turns",  # given out so far
    "running_turns",  # and to running requests
    "turned_step",  # when these stood in their order
    "change_s",  # no request leaves its level before
)
REPLICA = indices(REPLICA_COLUMNS)

BACK = 1
FRONT = -1


@inlined()
def quantum_s(state: State, level):
    """Return the time that a request may run at a level. [s]"""
    if level + 1 >= state.settings[SETTING.levels]:
        return math.inf
    settings = state.settings
    return settings[SETTING.base_quantum_s] * settings[SETTING.ratio] ** level


@compiled()
def _first_level(state: State, slot: int):
    """Return the level whose quantum holds the prompt alone."""
    tokens = state.requests[slot].prompt_tokens
    alone_s = state.fused_s[tokens] + state.by_batch[0].fused_decode_s
    alone_s += state.engine[0].attention_s * (tokens * (0.5 * tokens))
    level = 0
    while quantum_s(state, level) + ROUNDING_S < alone_s:
        level += 1
    return level


@inlined()
def push(state: State, r: int, slot: int, key, end):
    """Put a request first (FRONT) or last (BACK) of all with its key."""
    state.replica_memory[r, REPLICA.turns] += 1
    place(state, r, slot, key, end * int(state.replica_memory[r, REPLICA.turns]))


@compiled()
def file_arrivals(state: State, r: int):
    """Put arrivals at the end of the first level whose quantum holds their prompt."""
    slot = next_arrival(state, r)
    while slot != NONE:
        memory = state.request_memory[slot]
        memory[REQUEST.level] = _first_level(state, slot)
        memory[REQUEST.offset_s] = 0.0
        memory[REQUEST.since_s] = state.requests[slot].arrival_s
        if state.settings[SETTING.as_written] != 0:
            memory[REQUEST.since_s] = -math.inf
        push(state, r, slot, memory[REQUEST.level], BACK)
        slot = next_arrival(state, r)


@inlined()
def _last_end(state: State, r: int):
    """Return at which end of the turns the last of running requests stands."""
    steps = state.replicas[r].step - int(state.replica_memory[r, REPLICA.turned_step])
    return BACK if steps % 2 == 0 else FRONT


@inlined()
def stand_last(state: State, r: int, slot: int):
    """Give a request the last turn of those that run."""
    memory = state.replica_memory[r]
    memory[REPLICA.running_turns] += 1
    state.orders[slot].tie_break = _last_end(state, r) * int(
        memory[REPLICA.running_turns]
    )


@inlined()
def _insert(state: State, first, slot: int, end):
    """Put a request into a list in order of turn; return the first of the list."""
    before = NONE
    after = first
    turn = end * state.orders[slot].tie_break
    while after != NONE and end * state.orders[after].tie_break < turn:
        before = after
        after = state.requests[after].next_in_list
    state.requests[slot].next_in_list = after
    if before == NONE:
        return slot
    state.requests[before].next_in_list = slot
    return first


@compiled()
def demote(state: State, r: int):
    """Let those that ran longer than their quantum go down a level.

    There they are the last of those that ran, in the order they had.
    """
    replica = state.replicas[r]
    now_s = replica.now_s
    turns = state.replica_memory[r]
    if now_s <= turns[REPLICA.change_s] + ROUNDING_S:
        return
    end = _last_end(state, r)
    turns[REPLICA.change_s] = math.inf
    demoted = NONE
    slot = replica.running_head
    while slot != NONE:
        deadline_s = state.request_memory[slot, REQUEST.deadline_s]
        if now_s > deadline_s + ROUNDING_S:
            demoted = _insert(state, demoted, slot, end)
        else:
            turns[REPLICA.change_s] = min(turns[REPLICA.change_s], deadline_s)
        slot = state.requests[slot].next
    while demoted != NONE:
        memory = state.request_memory[demoted]
        memory[REQUEST.level] += 1
        memory[REQUEST.offset_s] = now_s
        deadline_s = now_s + quantum_s(state, int(memory[REQUEST.level]))
        memory[REQUEST.deadline_s] = deadline_s
        turns[REPLICA.change_s] = min(turns[REPLICA.change_s], deadline_s)
        stand_last(state, r, demoted)
        demoted = state.requests[demoted].next_in_list


@compiled()
def return_batch(state: State, r: int):
    """Put what ran in front of its queues, in order."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    running = int(memory[REPLICA.running_turns])
    end = _last_end(state, r)
    front = int(memory[REPLICA.turns]) + running + 1
    slot = replica.running_head
    while slot != NONE:
        level = state.request_memory[slot, REQUEST.level]
        place(state, r, slot, level, end * state.orders[slot].tie_break - front)
        slot = state.requests[slot].next
    memory[REPLICA.turns] = front + running
    memory[REPLICA.running_turns] = 0
    memory[REPLICA.turned_step] = replica.step


@compiled()
def pause_at_level(state: State, r: int, slot: int):
    """Let a running request wait at its level, with the time it ran there."""
    now_s = state.replicas[r].now_s
    memory = state.request_memory[slot]
    memory[REQUEST.offset_s] = now_s - memory[REQUEST.offset_s]
    memory[REQUEST.since_s] = now_s
    pause(state, r, slot)


@compiled()
def promote_starving(state: State, r: int):
    """Put requests that wait too long in front of the highest level.

    They run from the next iteration on. Returns whether there are any.
    """
    replica = state.replicas[r]
    promoted = False
    if (replica.step + 1) % int(state.settings[SETTING.starvation_iterations]) != 0:
        return promoted
    slot = first_at(state, r, 0.0)
    while slot != NONE:
        following = next_ordered(state, slot)
        waited_s = replica.now_s - state.request_memory[slot, REQUEST.since_s]
        if waited_s + ROUNDING_S >= state.settings[SETTING.starvation_s]:
            state.request_memory[slot, REQUEST.level] = 0
            push(state, r, slot, 0.0, FRONT)
            promoted = True
        slot = following
    return promoted
