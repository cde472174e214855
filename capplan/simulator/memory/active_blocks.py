"""Blocks of the prompts that a replica has and has not finished, shared ones once.

A router that charges replicas for what it sends (``charge``) counts a prompt's blocks
from then to its last token, and its tokens to prefill to its first. Blocks of an owner
that several prompts have count once: ``runs`` has the lengths that occur of each owner
on each replica, the longest first, each with its ``count`` of prompts. The head
of a holder has the sum of blocks in ``high``. A request that comes to another replica
with part of its answer, since the first one died, is charged for that part too: it is
a prompt there. Where prompts are computed in another pool, blocks are not shared.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.memory.prefix_memory import (
    common_blocks,
    last_owner,
    leave_run,
    new_run,
    owner_before,
    tokens_before,
)
from capplan.simulator.memory.run_table import clear_row, newest_run, table_row
from capplan.simulator.records import Request
from capplan.simulator.state import NONE, Setting, State


@inlined()
def _shared_blocks(state: State, request: Request, blocks):
    """Return how many blocks of a prompt count once with those of other prompts."""
    if state.settings[Setting.PULLS] != 0.0:
        return 0
    return common_blocks(state, request, state.engine[0].block_size, blocks)


@compiled()
def blocks_with(state: State, holder, slot: int):
    """Return the blocks that a holder would have with a request's prompt."""
    request = state.requests[slot]
    block_size = state.engine[0].block_size
    known = request.known_tokens // block_size
    blocks = state.runs[holder].high + known
    owner, high = last_owner(state, request), _shared_blocks(state, request, known)
    while high > 0:
        low = min(high, tokens_before(state, owner) // block_size)
        longest = newest_run(state, holder, owner, 0) if low < high else NONE
        if longest != NONE:
            blocks -= min(high, state.runs[longest].high) - low
        owner, high = owner_before(state, owner), low
    return blocks


@compiled()
def charge(state: State, r: int, holder, slot: int, prefill_tokens):
    """Charge a replica, and the holder of its blocks, for a request."""
    request = state.requests[slot]
    state.runs[holder].high = blocks_with(state, holder, slot)
    state.replicas[r].charged_tokens += prefill_tokens
    request.charged_tokens = prefill_tokens
    request.charged_blocks = request.known_tokens // state.engine[0].block_size
    request.charged_holder = holder
    _count_shared(state, request, 1)


@compiled()
def _count_shared(state: State, request: Request, more):
    """Count a charged prompt once more or less; return how many blocks none has now."""
    block_size = state.engine[0].block_size
    owner, gone = last_owner(state, request), 0
    high = _shared_blocks(state, request, request.charged_blocks)
    while high > 0:
        low = min(high, tokens_before(state, owner) // block_size)
        if low < high:
            index = _run_of(state, request.charged_holder, owner, low, high)
            state.runs[index].count += more
            if state.runs[index].count == 0:
                gone += _without(state, index)
        owner, high = owner_before(state, owner), low
    return gone


@inlined()
def _run_of(state: State, holder, group, low, blocks):
    """Return the run of prompts with so many blocks of an owner, made if none has."""
    row = table_row(state, holder, group, 0)
    longer = NONE
    index = state.runs[row].entry
    while index != NONE and state.runs[index].high > blocks:
        longer = index
        index = state.runs[index].below
    if index != NONE and state.runs[index].high == blocks:
        return index
    made = new_run(state, holder, group, 0, low, blocks)
    state.runs[made].above = longer
    state.runs[made].below = index
    if index != NONE:
        state.runs[index].above = made
    if longer != NONE:
        state.runs[longer].below = made
    else:
        state.runs[row].entry = made
    return made


@compiled()
def discharge(state: State, slot: int):
    """Give back the blocks of a request that has finished, or has left its replica."""
    request = state.requests[slot]
    holder = request.charged_holder
    blocks = request.charged_blocks
    blocks -= _shared_blocks(state, request, blocks)
    state.runs[holder].high -= blocks + _count_shared(state, request, -1)
    request.charged_holder = NONE


@compiled()
def recharge(state: State, r: int, slot: int):
    """Charge another replica for a request that decodes."""
    request = state.requests[slot]
    if request.charged_holder != NONE:
        moved = r - request.replica
        holder = request.charged_holder
        discharge(state, slot)
        charge(state, r, holder + moved, slot, 0)


@inlined()
def _without(state: State, index):
    """Leave a run; return the blocks of its owner that no prompt has any more."""
    run = state.runs[index]
    gone = 0
    if run.below != NONE:
        state.runs[run.below].above = run.above
    if run.above != NONE:
        state.runs[run.above].below = run.below
    else:
        row = table_row(state, run.holder, run.group, 0)
        gone = run.high - run.low
        if run.below != NONE:
            gone -= state.runs[run.below].high - run.low
            state.runs[row].entry = run.below
        else:
            clear_row(state, row)
    leave_run(state, index)
    return gone
