"""What a router remembers of the prompts that it sent: the blocks of prefix groups.

A prompt is its group's first tokens, then tokens that only it has. What a replica was
sent of a group is thus known by lengths. A *run* is blocks low + 1 to high of a group
that were last sent together. A prompt of k blocks makes the run 1 to k and takes these
from older runs, so that the runs of a group lie over each other like steps, the newest
and shortest on top: one more prompt costs as many steps as it covers, not as many as
it has blocks.

A *holder* has a list of its runs, the oldest first; a replica has as many holders as
its router ``remembers`` (RULES), the first ones those of the replicas in their order.
The first ``Count.HOLDERS`` records are the heads of these circular lists, with the
blocks of all their runs in ``high``. The one behind them is the router's own.

A router has its own unit (a block of so many tokens), and its own limit: the oldest
blocks of a holder leave (``shrink``), or those of before a moment (``drop_before``).
"""

import numpy as np

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.memory.run_table import (
    clear_row,
    fill_table,
    newest_run,
    table_row,
)
from capplan.simulator.records import Request
from capplan.simulator.state import NONE, Count, State, grown_records

FIRST_RUNS = 1024
"""Runs that there is room for at first; doubled when they are short."""
_MOST_NEW_RUNS = 8
"""Of one arrival."""


@inlined()
def shared_blocks(request: Request, block_tokens):
    """Return how many full blocks of a prompt are its group's."""
    if request.prefix_group < 0:
        return 0
    return request.prefix_tokens // block_tokens


@inlined()
def shared_part(request: Request, block_tokens):
    """Return the tokens of a prompt that is its group's and fills no block last; or 0.

    Its last block is that of another prompt if both end there.
    """
    full = request.prompt_tokens % block_tokens == 0
    if (
        full
        or request.prefix_group < 0
        or request.prefix_tokens < request.prompt_tokens
    ):
        return 0
    return request.prompt_tokens


@inlined()
def runs_are_short(state: State):
    """Return whether an arrival may need more runs than there are."""
    return state.runs.shape[0] > 0 and state.counts[Count.UNUSED_RUNS] < _MOST_NEW_RUNS


@inlined()
def _take_run(state: State):
    index = state.counts[Count.UNUSED_RUN]
    state.counts[Count.UNUSED_RUN] = state.runs[index].next
    state.counts[Count.UNUSED_RUNS] -= 1
    return index


@inlined()
def leave_run(state: State, index):
    """Let a run be taken again."""
    run = state.runs[index]
    run.holder = NONE
    run.next = state.counts[Count.UNUSED_RUN]
    state.counts[Count.UNUSED_RUN] = index
    state.counts[Count.UNUSED_RUNS] += 1


@inlined()
def new_run(state: State, holder, group, part, high):
    """Return a run of the first ``high`` blocks of a group, in no list."""
    index = _take_run(state)
    run = state.runs[index]
    run.holder = holder
    run.group = group
    run.part = part
    run.low = 0
    run.high = high
    run.turn = state.counts[Count.ROUTED]
    run.since = run.turn
    run.count = 0
    run.above = NONE
    run.below = NONE
    return index


@inlined()
def _append(state: State, index, now_s):
    """Put a new run last in its holder's list."""
    run = state.runs[index]
    head = state.runs[run.holder]
    run.at_s = now_s
    run.next = run.holder
    run.previous = head.previous
    state.runs[head.previous].next = index
    head.previous = index
    head.high += run.high


@inlined()
def _remove(state: State, index):
    """Take a run out of its holder's list, and let it be taken again."""
    run = state.runs[index]
    state.runs[run.previous].next = run.next
    state.runs[run.next].previous = run.previous
    state.runs[run.holder].high -= run.high - run.low
    leave_run(state, index)


@compiled()
def remember(state: State, holder, group, part, blocks, now_s):
    """Note that a prompt with the group's first blocks was sent to a holder."""
    row = table_row(state, holder, group, part)
    top = state.runs[row].entry
    since = state.runs[top].since if top != NONE else state.counts[Count.ROUTED]
    while top != NONE and state.runs[top].high <= blocks:
        below = state.runs[top].below
        _remove(state, top)
        top = below
    index = new_run(state, holder, group, part, blocks)
    state.runs[index].since = since
    state.runs[index].below = top
    if top != NONE:
        run = state.runs[top]
        run.above = index
        if run.low < blocks:
            state.runs[holder].high -= blocks - run.low
            run.low = blocks
    state.runs[row].entry = index
    _append(state, index, now_s)


@compiled()
def remember_own(state: State, holder, blocks, now_s):
    """Note blocks that no other prompt has: they only take room."""
    if blocks > 0:
        _append(state, new_run(state, holder, NONE, 0, blocks), now_s)


@compiled()
def _drop_oldest(state: State, holder):
    """Forget a holder's oldest run, which is the lowest of its group."""
    index = state.runs[holder].next
    run = state.runs[index]
    if run.group != NONE:
        if run.above != NONE:
            state.runs[run.above].below = NONE
        else:
            clear_row(state, table_row(state, holder, run.group, run.part))
    _remove(state, index)


@inlined()
def drop_before(state: State, holder, moment_s):
    """Forget the runs that were last sent before a moment."""
    while (
        state.runs[holder].next != holder
        and state.runs[state.runs[holder].next].at_s < moment_s
    ):
        _drop_oldest(state, holder)


@inlined()
def drop_above(state: State, holder, most):
    """Forget the oldest runs, each whole, until at most so many blocks are left."""
    while state.runs[holder].high > most:
        _drop_oldest(state, holder)


@compiled()
def shrink_oldest(state: State, holder, excess, from_start):
    """Forget up to ``excess`` blocks of the oldest run; return how many.

    ``from_start`` of the run, whose blocks were sent in that order, or from its end.
    """
    run = state.runs[state.runs[holder].next]
    blocks = run.high - run.low
    if blocks <= excess:
        _drop_oldest(state, holder)
        return blocks
    if from_start:
        run.low += excess
    else:
        run.high -= excess
    state.runs[holder].high -= excess
    return excess


@compiled()
def forget(state: State, holder):
    """Forget all that a holder was sent: a new replica takes its place."""
    while state.runs[holder].next != holder:
        _drop_oldest(state, holder)


@inlined()
def known_blocks(state: State, holder, group, part, blocks):
    """Return how many of the group's first blocks a holder has, one after the other."""
    known = 0
    index = newest_run(state, holder, group, part)
    while index != NONE and known < blocks and state.runs[index].low <= known:
        known = state.runs[index].high
        index = state.runs[index].below
    return min(known, blocks)


def room_for_runs(used: int, points: int) -> int:
    """Return how many runs to make: a power of two, of which half may be in use.

    ``points`` of a ring of hashes have room too.
    """
    return 1 << (max(2 * used, points) - 1).bit_length()


def empty_memory(state: State, holders: int) -> State:
    """Return the state with so many holders, of which nothing is known."""
    state.counts[Count.HOLDERS] = holders
    state.counts[Count.UNUSED_RUN] = NONE
    runs = state.runs
    runs["holder"] = NONE
    runs["entry"] = NONE
    heads = slice(holders + 1)
    runs["next"][heads] = runs["previous"][heads] = np.arange(holders + 1)
    link_unused(state, holders + 1)
    return state


def link_unused(state: State, first: int) -> None:
    """Let the runs from ``first`` to half of all be unused, before those that were."""
    runs = state.runs
    end = len(runs) // 2
    runs["next"][first:end] = np.arange(first + 1, end + 1)
    runs["next"][end - 1] = state.counts[Count.UNUSED_RUN]
    state.counts[Count.UNUSED_RUN] = first
    state.counts[Count.UNUSED_RUNS] += end - first


def with_enough_runs(state: State) -> State:
    """Return the state, with twice the room for runs where an arrival may need more."""
    before = len(state.runs)
    if before == 0 or state.counts[Count.UNUSED_RUNS] >= _MOST_NEW_RUNS:
        return state
    state = state._replace(runs=grown_records(state.runs, 2 * before))
    state.runs["entry"] = NONE
    state.runs["holder"][before:] = NONE
    link_unused(state, before // 2)
    fill_table(state)
    return state
