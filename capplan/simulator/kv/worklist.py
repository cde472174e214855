"""Worklist: the running requests that a scheduler with states looks at each time.

A decode enters a block of KV once in ``block_size`` iterations; it stands in a list
with those that do so in the same ones, as ``residues`` counts them. Those whose states
may have to be freed, and unfinished prompts, stand in another list until an iteration.
Both are in order of admission. Links are slots + 1; 0 is none.
"""

from capplan.deployment.engine import EngineSettings
from capplan.simulator.columns import REPLICA_COLUMNS, REQUEST_COLUMNS, end_of, places
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase

_REQUEST = places(REQUEST_COLUMNS, "worklist")
_REPLICA = places(REPLICA_COLUMNS, "states")
_LISTS = end_of(REPLICA_COLUMNS, "states")


def list_columns(engine: EngineSettings) -> tuple[str, ...]:
    """Return the columns of a replica: heads of the lists of those that enter."""
    return tuple(f"entering_{k}" for k in range(engine.block_size))


@inlined()
def first_listed(state, r):
    """Return the oldest request of the worklist, or NONE."""
    return int(state.replica_memory[r, _REPLICA.first_listed]) - 1


@inlined()
def next_listed(state, slot):
    """Return the request of the worklist after another, or NONE."""
    return int(state.request_memory[slot, _REQUEST.next_listed]) - 1


@compiled()
def list_until(state, r, slot, step):
    """Keep a running request in the worklist up to an iteration."""
    memory = state.request_memory
    lists = state.replica_memory[r]
    if memory[slot, _REQUEST.until] == 0:
        before = int(lists[_REPLICA.last_listed]) - 1
        admission = state.requests[slot].admission
        while before != NONE and state.requests[before].admission > admission:
            before = int(memory[before, _REQUEST.previous_listed]) - 1
        after = int(lists[_REPLICA.first_listed]) - 1
        if before != NONE:
            after = int(memory[before, _REQUEST.next_listed]) - 1
        _link(state, r, before, slot)
        _link(state, r, slot, after)
    memory[slot, _REQUEST.until] = step


@inlined()
def _link(state, r, before, after):
    if before == NONE:
        state.replica_memory[r, _REPLICA.first_listed] = after + 1
    else:
        state.request_memory[before, _REQUEST.next_listed] = after + 1
    if after == NONE:
        state.replica_memory[r, _REPLICA.last_listed] = before + 1
    else:
        state.request_memory[after, _REQUEST.previous_listed] = before + 1


@compiled()
def unlist(state, r, slot):
    """Take a request out of the worklist."""
    memory = state.request_memory[slot]
    if memory[_REQUEST.until] != 0:
        _link(
            state,
            r,
            int(memory[_REQUEST.previous_listed]) - 1,
            int(memory[_REQUEST.next_listed]) - 1,
        )
        memory[_REQUEST.until] = 0


@compiled()
def unlist_ended(state, r, step):
    """Take out those whose last iteration is ``step``; return a prompt or NONE.

    The newest of the prompts that stay unfinished.
    """
    unfinished = NONE
    slot = first_listed(state, r)
    while slot != NONE:
        request = state.requests[slot]
        following = next_listed(state, slot)
        if request.phase == Phase.PREFILLING:
            if request.computed_tokens < request.known_tokens:
                unfinished = slot
        elif state.request_memory[slot, _REQUEST.until] <= step:
            unlist(state, r, slot)
        slot = following
    return unfinished


@inlined()
def list_one_longer(state, slot):
    """Keep a request that sits out one iteration longer; it enters blocks later."""
    memory = state.request_memory[slot]
    if memory[_REQUEST.until] != 0:
        memory[_REQUEST.until] += 1


@inlined()
def first_entering(state, r, step):
    """Return the oldest request that would enter a block in an iteration, or NONE."""
    size = state.engine[0].block_size
    return int(state.replica_memory[r, _LISTS + (-step) % size]) - 1


@inlined()
def next_entering(state, slot):
    """Return the next one that enters a block in the same iteration, or NONE."""
    return int(state.request_memory[slot, _REQUEST.next_entering]) - 1


@compiled()
def enter_with(state, r, slot, computed, step):
    """Put a request with those that enter blocks as it will: it decodes from ``step``.

    It then has ``computed`` tokens.
    """
    enter_no_more(state, r, slot)
    memory = state.request_memory
    column = (computed - step) % state.engine[0].block_size
    lists = state.replica_memory[r]
    admission = state.requests[slot].admission
    before = NONE
    after = int(lists[_LISTS + column]) - 1
    while after != NONE and state.requests[after].admission < admission:
        before = after
        after = next_entering(state, after)
    memory[slot, _REQUEST.entering] = column + 1
    memory[slot, _REQUEST.next_entering] = after + 1
    memory[slot, _REQUEST.previous_entering] = before + 1
    if after != NONE:
        memory[after, _REQUEST.previous_entering] = slot + 1
    if before != NONE:
        memory[before, _REQUEST.next_entering] = slot + 1
    else:
        lists[_LISTS + column] = slot + 1


@compiled()
def enter_no_more(state, r, slot):
    """Take a request out of those that enter blocks."""
    memory = state.request_memory
    column = int(memory[slot, _REQUEST.entering]) - 1
    if column == NONE:
        return
    before = int(memory[slot, _REQUEST.previous_entering]) - 1
    after = next_entering(state, slot)
    if after != NONE:
        memory[after, _REQUEST.previous_entering] = before + 1
    if before != NONE:
        memory[before, _REQUEST.next_entering] = after + 1
    else:
        state.replica_memory[r, _LISTS + column] = after + 1
    memory[slot, _REQUEST.entering] = 0
