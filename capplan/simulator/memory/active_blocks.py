"""Blocks of the prompts that a replica has and has not finished, shared ones once.

A router that charges replicas for what it sends (``charge``) counts a prompt's blocks
from then to its last token, and its tokens to prefill to its first. A group's blocks
that several prompts begin with count once: ``runs`` has the lengths that occur in each
group on each replica, the longest first, each with its ``count`` of prompts. The head
of a holder has the sum of blocks in ``high``. A request that comes to another replica
with part of its answer, since the first one died, is charged for that part too: it is
a prompt there. Where prompts are computed in another pool, blocks are not shared.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.memory.prefix_memory import leave_run, new_run, shared_blocks
from capplan.simulator.memory.run_table import clear_row, newest_run, table_row
from capplan.simulator.records import Request
from capplan.simulator.state import NONE, Setting, State


@inlined()
def _shared_blocks(state: State, request: Request):
    """Return how many blocks of a prompt count once with those of its group."""
    if state.settings[Setting.PULLS] != 0.0:
        return 0
    return shared_blocks(request, state.engine[0].block_size)


@inlined()
def blocks_with(state: State, holder, slot: int):
    """Return the blocks that a holder would have with a request's prompt."""
    request = state.requests[slot]
    block_size = state.engine[0].block_size
    blocks = state.runs[holder].high + request.known_tokens // block_size
    shared = _shared_blocks(state, request)
    if shared > 0:
        longest = newest_run(state, holder, request.prefix_group, 0)
        if longest != NONE:
            blocks -= min(shared, state.runs[longest].high)
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
    shared = _shared_blocks(state, request)
    if shared > 0:
        request.charged_run = _with_one_more(
            state, holder, request.prefix_group, shared
        )
        state.runs[request.charged_run].count += 1


@inlined()
def _with_one_more(state: State, holder, group, blocks):
    """Return the run of prompts with so many blocks of a group, made if none has."""
    row = table_row(state, holder, group, 0)
    longer = NONE
    index = state.runs[row].entry
    while index != NONE and state.runs[index].high > blocks:
        longer = index
        index = state.runs[index].below
    if index != NONE and state.runs[index].high == blocks:
        return index
    made = new_run(state, holder, group, 0, blocks)
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
    if request.charged_run != NONE:
        blocks -= state.runs[request.charged_run].high
        blocks += _with_one_less(state, request.charged_run)
    state.runs[holder].high -= blocks
    request.charged_holder = NONE
    request.charged_run = NONE


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
def _with_one_less(state: State, index):
    """Return the blocks of a group that no prompt has any more."""
    run = state.runs[index]
    run.count -= 1
    if run.count > 0:
        return 0
    gone = 0
    if run.below != NONE:
        state.runs[run.below].above = run.above
    if run.above != NONE:
        state.runs[run.above].below = run.below
    else:
        row = table_row(state, run.holder, run.group, 0)
        gone = run.high
        if run.below != NONE:
            gone -= state.runs[run.below].high
            state.runs[row].entry = run.below
        else:
            clear_row(state, row)
    leave_run(state, index)
    return gone
