"""A multi-level feedback queue: levels of requests, each with a quantum of time.

The requests that wait stand in order of level and turn (ordered.py). What runs goes
to the front of its level one by one when its iteration ends, so the order of running
requests turns round in each iteration. They keep their turns instead, and are read
from the other end after an odd number of iterations since ``turned_step``.

Settings, the first of its scheduler: ``base_quantum_s``, ``ratio``, ``levels``,
``starvation_s``, ``starvation_iterations`` and ``as_written``; see fastserve.py.
"""

import math

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.jump import ROUNDING_S
from capplan.simulator.ordered import (
    first_at,
    insert_ordered,
    next_ordered,
    remove_ordered,
)
from capplan.simulator.pausing import pause
from capplan.simulator.state import NONE, Setting
from capplan.simulator.swapping import next_arrival

_BASE_QUANTUM_S = Setting.OWN
_RATIO = Setting.OWN + 1
_LEVELS = Setting.OWN + 2
_STARVATION_S = Setting.OWN + 3
STARVATION_ITERATIONS = Setting.OWN + 4
_AS_WRITTEN = Setting.OWN + 5

BACK = 1
FRONT = -1


@inlined()
def quantum_s(state, level):
    """Return the time that a request may run at a level. [s]"""
    if level + 1 >= state.settings[_LEVELS]:
        return math.inf
    return state.settings[_BASE_QUANTUM_S] * state.settings[_RATIO] ** level


@compiled()
def _first_level(state, slot):
    """Return the level whose quantum holds the prompt alone."""
    tokens = state.requests[slot].prompt_tokens
    alone_s = state.fused_s[tokens] + state.by_batch[0].fused_decode_s
    alone_s += state.engine[0].attention_s * (tokens * (0.5 * tokens))
    level = 0
    while quantum_s(state, level) + ROUNDING_S < alone_s:
        level += 1
    return level


@inlined()
def push(state, r, slot, key, end):
    """Put a request first (FRONT) or last (BACK) of all with its key."""
    plan = state.plans[slot]
    if plan.ordered != 0:
        remove_ordered(state, r, slot)
    state.replicas[r].turns += 1
    plan.key = key
    plan.turn = end * state.replicas[r].turns
    insert_ordered(state, r, slot)


@compiled()
def file_arrivals(state, r):
    """Put arrivals at the end of the first level whose quantum holds their prompt."""
    slot = next_arrival(state, r)
    while slot != NONE:
        plan = state.plans[slot]
        plan.level = _first_level(state, slot)
        plan.offset_s = 0.0
        plan.since_s = state.requests[slot].arrival_s
        if state.settings[_AS_WRITTEN] != 0:
            plan.since_s = -math.inf
        push(state, r, slot, plan.level, BACK)
        slot = next_arrival(state, r)


@inlined()
def _last_end(state, r):
    """Return at which end of the turns the last of running requests stands."""
    replica = state.replicas[r]
    steps = replica.step - replica.turned_step
    return BACK if steps % 2 == 0 else FRONT


@inlined()
def stand_last(state, r, slot):
    """Give a request the last turn of those that run."""
    replica = state.replicas[r]
    replica.running_turns += 1
    state.plans[slot].turn = _last_end(state, r) * replica.running_turns


@inlined()
def _insert(state, first, slot, end):
    """Put a request into a list in order of turn; return the first of the list."""
    before = NONE
    after = first
    turn = end * state.plans[slot].turn
    while after != NONE and end * state.plans[after].turn < turn:
        before = after
        after = state.requests[after].next_joining
    state.requests[slot].next_joining = after
    if before == NONE:
        return slot
    state.requests[before].next_joining = slot
    return first


@compiled()
def demote(state, r):
    """Let those that ran longer than their quantum go down a level.

    There they are the last of those that ran, in the order they had.
    """
    replica = state.replicas[r]
    now_s = replica.now_s
    if now_s <= replica.change_s + ROUNDING_S:
        return
    end = _last_end(state, r)
    replica.change_s = math.inf
    demoted = NONE
    slot = replica.running_head
    while slot != NONE:
        if now_s > state.plans[slot].deadline_s + ROUNDING_S:
            demoted = _insert(state, demoted, slot, end)
        else:
            replica.change_s = min(replica.change_s, state.plans[slot].deadline_s)
        slot = state.requests[slot].next
    while demoted != NONE:
        plan = state.plans[demoted]
        plan.level += 1
        plan.offset_s = now_s
        plan.deadline_s = now_s + quantum_s(state, plan.level)
        replica.change_s = min(replica.change_s, plan.deadline_s)
        stand_last(state, r, demoted)
        demoted = state.requests[demoted].next_joining


@compiled()
def return_batch(state, r):
    """Put what ran in front of its queues, in order."""
    replica = state.replicas[r]
    end = _last_end(state, r)
    front = replica.turns + replica.running_turns + 1
    slot = replica.running_head
    while slot != NONE:
        plan = state.plans[slot]
        plan.key = plan.level
        plan.turn = end * plan.turn - front
        insert_ordered(state, r, slot)
        slot = state.requests[slot].next
    replica.turns = front + replica.running_turns
    replica.running_turns = 0
    replica.turned_step = replica.step


@compiled()
def pause_at_level(state, r, slot):
    """Let a running request wait at its level, with the time it ran there."""
    now_s = state.replicas[r].now_s
    plan = state.plans[slot]
    plan.offset_s = now_s - plan.offset_s
    plan.since_s = now_s
    pause(state, r, slot)


@compiled()
def promote_starving(state, r):
    """Put requests that wait too long in front of the highest level.

    They run from the next iteration on. Returns whether there are any.
    """
    replica = state.replicas[r]
    promoted = False
    if (replica.step + 1) % int(state.settings[STARVATION_ITERATIONS]) != 0:
        return promoted
    slot = first_at(state, r, 0.0)
    while slot != NONE:
        following = next_ordered(state, slot)
        waited_s = replica.now_s - state.plans[slot].since_s
        if waited_s + ROUNDING_S >= state.settings[_STARVATION_S]:
            state.plans[slot].level = 0
            push(state, r, slot, 0.0, FRONT)
            promoted = True
        slot = following
    return promoted
