"""Which running requests a scheduler that keeps states looks at in an iteration.

A decode enters a block of KV once in ``block_size`` iterations; it stands in a list
with those that do so in the same ones, as ``residues`` counts them. Those whose states
may have to be freed, and unfinished prompts, stand in another list until an iteration.
Both are in order of admission. Links are slots + 1; 0 is none.
"""

from capplan.simulator.engine import speculation
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase

FIRST_COLUMN = len(speculation.RULES.request_columns)
"""Of what is kept for states in ``request_memory``, behind what drafts need."""
REQUEST_FIELDS = (
    "until",  # the last iteration in which it is visited; 0: it is not
    "next_visited",
    "previous_visited",
    "entering",  # its list of those that enter a block together, + 1; 0: none
    "next_entering",
    "previous_entering",
)
_UNTIL, _NEXT, _PREVIOUS, _ENTERING, _NEXT_ENTERING, _PREVIOUS_ENTERING = range(
    FIRST_COLUMN, FIRST_COLUMN + len(REQUEST_FIELDS)
)
REPLICA_FIELDS = ("first_visited", "last_visited")
_FIRST, _LAST, _LISTS = 0, 1, 2


def replica_columns(block_size: int) -> tuple[str, ...]:
    """Return the columns of a replica: heads of the lists of those that enter."""
    return (*REPLICA_FIELDS, *(f"entering_{k}" for k in range(block_size)))


@inlined()
def first_visited(state, r):
    """Return the oldest request to be visited, or NONE."""
    return int(state.replica_memory[r, _FIRST]) - 1


@inlined()
def next_visited(state, slot):
    """Return the request to be visited after another, or NONE."""
    return int(state.request_memory[slot, _NEXT]) - 1


@compiled()
def visit_until(state, r, slot, step):
    """Visit a running request up to an iteration."""
    memory = state.request_memory
    lists = state.replica_memory[r]
    if memory[slot, _UNTIL] == 0:
        before = int(lists[_LAST]) - 1
        admission = state.requests[slot].admission
        while before != NONE and state.requests[before].admission > admission:
            before = int(memory[before, _PREVIOUS]) - 1
        after = int(lists[_FIRST]) - 1
        if before != NONE:
            after = int(memory[before, _NEXT]) - 1
        _link(state, r, before, slot)
        _link(state, r, slot, after)
    memory[slot, _UNTIL] = step


@inlined()
def _link(state, r, before, after):
    if before == NONE:
        state.replica_memory[r, _FIRST] = after + 1
    else:
        state.request_memory[before, _NEXT] = after + 1
    if after == NONE:
        state.replica_memory[r, _LAST] = before + 1
    else:
        state.request_memory[after, _PREVIOUS] = before + 1


@compiled()
def visit_no_more(state, r, slot):
    """Take a request out of those to be visited."""
    memory = state.request_memory[slot]
    if memory[_UNTIL] != 0:
        _link(state, r, int(memory[_PREVIOUS]) - 1, int(memory[_NEXT]) - 1)
        memory[_UNTIL] = 0


@compiled()
def end_visits(state, r, step):
    """Visit no more those whose last iteration is ``step``; return a prompt or NONE.

    The newest of the prompts that stay unfinished.
    """
    unfinished = NONE
    slot = first_visited(state, r)
    while slot != NONE:
        request = state.requests[slot]
        following = next_visited(state, slot)
        if request.phase == Phase.PREFILLING:
            if request.computed_tokens < request.known_tokens:
                unfinished = slot
        elif state.request_memory[slot, _UNTIL] <= step:
            visit_no_more(state, r, slot)
        slot = following
    return unfinished


@inlined()
def visit_later(state, slot):
    """Visit one iteration longer a request that sits out; it enters blocks later."""
    memory = state.request_memory[slot]
    if memory[_UNTIL] != 0:
        memory[_UNTIL] += 1


@inlined()
def first_entering(state, r, step):
    """Return the oldest request that would enter a block in an iteration, or NONE."""
    size = state.engine[0].block_size
    return int(state.replica_memory[r, _LISTS + (-step) % size]) - 1


@inlined()
def next_entering(state, slot):
    """Return the next one that enters a block in the same iteration, or NONE."""
    return int(state.request_memory[slot, _NEXT_ENTERING]) - 1


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
    memory[slot, _ENTERING] = column + 1
    memory[slot, _NEXT_ENTERING] = after + 1
    memory[slot, _PREVIOUS_ENTERING] = before + 1
    if after != NONE:
        memory[after, _PREVIOUS_ENTERING] = slot + 1
    if before != NONE:
        memory[before, _NEXT_ENTERING] = slot + 1
    else:
        lists[_LISTS + column] = slot + 1


@compiled()
def enter_no_more(state, r, slot):
    """Take a request out of those that enter blocks."""
    memory = state.request_memory
    column = int(memory[slot, _ENTERING]) - 1
    if column == NONE:
        return
    before = int(memory[slot, _PREVIOUS_ENTERING]) - 1
    after = next_entering(state, slot)
    if after != NONE:
        memory[after, _PREVIOUS_ENTERING] = before + 1
    if before != NONE:
        memory[before, _NEXT_ENTERING] = after + 1
    else:
        state.replica_memory[r, _LISTS + column] = after + 1
    memory[slot, _ENTERING] = 0
