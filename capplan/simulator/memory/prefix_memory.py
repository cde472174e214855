"""What a router remembers of the prompts that it sent: the blocks of their owners.

A prompt is its group's first tokens, then tokens that only it has. Of conversations it
is tokens of each row, or text, on its path, as far as it goes on with those: each of
these is the *owner* of a stretch of blocks. What a replica was sent of an owner is thus
known by lengths. A *run* is blocks low + 1 to high of an owner, its ``group``, that
were last sent together. A prompt makes a run of each stretch and takes its blocks from
older runs, so that the runs of an owner lie over each other like steps, the newest and
shortest on top: one more prompt costs as many steps as it covers, not as many as it has
blocks.

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
from capplan.simulator.state import NONE, Count, Lineage, State, grown_records

FIRST_RUNS = 1024
"""Runs that there is room for at first; doubled when they are short."""
_MOST_NEW_RUNS = 8
"""Of one arrival without turns."""


@inlined()
def common_blocks(state: State, request: Request, block_tokens, blocks):
    """Return how many of a prompt's first ``blocks`` other prompts may have too."""
    if state.lineage.shape[0] > 0:
        return blocks
    if request.prefix_group < 0:
        return 0
    return min(blocks, request.prefix_tokens // block_tokens)


@inlined()
def last_owner(state: State, request: Request):
    """Return whose the last of these blocks are."""
    return request.row if state.lineage.shape[0] > 0 else request.prefix_group


@inlined()
def tokens_before(state: State, owner):
    """Return how many tokens of a prompt come before those of one of its owners."""
    return state.lineage[owner, Lineage.TOKENS] if state.lineage.shape[0] > 0 else 0


@inlined()
def owner_before(state: State, owner):
    """Return whose the tokens before those of an owner are."""
    return state.lineage[owner, Lineage.NEAREST] if state.lineage.shape[0] > 0 else NONE


@inlined()
def owner_at(state: State, request: Request, tokens):
    """Return whose the last of a prompt's first ``tokens`` is; NONE: nobody else's."""
    owner = last_owner(state, request)
    if state.lineage.shape[0] == 0:
        return owner if tokens <= request.prefix_tokens else NONE
    while tokens <= tokens_before(state, owner):
        owner = owner_before(state, owner)
    return owner


@inlined()
def part_owner(state: State, request: Request, block_tokens):
    """Return whose a prompt's last block is, if it is not full; NONE: nobody's.

    It is that of another prompt if both end there.
    """
    if request.prompt_tokens % block_tokens == 0:
        return NONE
    return owner_at(state, request, request.prompt_tokens)


@inlined()
def runs_are_short(state: State):
    """Return whether an arrival may need more runs than there are."""
    return state.counts[Count.UNUSED_RUNS] < state.counts[Count.NEW_RUNS]


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
def new_run(state: State, holder, group, part, low, high):
    """Return a run of blocks ``low`` + 1 to ``high`` of an owner, in no list."""
    index = _take_run(state)
    run = state.runs[index]
    run.holder = holder
    run.group = group
    run.part = part
    run.low = low
    run.high = high
    run.turn = state.counts[Count.ROUTED]
    run.since = run.turn
    run.count = 0
    run.above = NONE
    run.below = NONE
    return index


@inlined()
def _put_before(state: State, index, following, now_s):
    """Put a new run before another of its holder's list, or last before the head."""
    run = state.runs[index]
    run.at_s = now_s
    run.next = following
    run.previous = state.runs[following].previous
    state.runs[run.previous].next = index
    state.runs[following].previous = index
    state.runs[run.holder].high += run.high - run.low


@inlined()
def _remove(state: State, index):
    """Take a run out of its holder's list, and let it be taken again."""
    run = state.runs[index]
    state.runs[run.previous].next = run.next
    state.runs[run.next].previous = run.previous
    state.runs[run.holder].high -= run.high - run.low
    leave_run(state, index)


@compiled()
def _remember_run(state: State, holder, group, low, blocks, now_s, following, part=0):
    """Note blocks of an owner before a run of a holder; return theirs."""
    row = table_row(state, holder, group, part)
    top = state.runs[row].entry
    since = state.runs[top].since if top != NONE else state.counts[Count.ROUTED]
    while top != NONE and state.runs[top].high <= blocks:
        below = state.runs[top].below
        _remove(state, top)
        top = below
    index = new_run(state, holder, group, part, low, blocks)
    state.runs[index].since = since
    state.runs[index].below = top
    if top != NONE:
        run = state.runs[top]
        run.above = index
        if run.low < blocks:
            state.runs[holder].high -= blocks - run.low
            run.low = blocks
    state.runs[row].entry = index
    _put_before(state, index, following, now_s)
    return index


@compiled()
def remember(
    state: State, holder, request: Request, block_tokens, blocks, now_s, from_start
):
    """Note that a prompt's first ``blocks`` were sent to a holder.

    Its first ones are the oldest then, or where not ``from_start`` the youngest.
    """
    high = common_blocks(state, request, block_tokens, blocks)
    owner, following = last_owner(state, request), holder
    if high < blocks:
        remember_own(state, holder, blocks - high, now_s)
        following = state.runs[holder].previous if from_start else holder
    while high > 0:
        low = min(high, tokens_before(state, owner) // block_tokens)
        if low < high:
            index = _remember_run(state, holder, owner, low, high, now_s, following)
            following = index if from_start else holder
        owner, high = owner_before(state, owner), low


@inlined()
def remember_part(state: State, holder, owner, tokens, now_s):
    """Note the last block of a prompt of so many tokens, which is not full."""
    _remember_run(state, holder, owner, 0, 1, now_s, holder, tokens)


@inlined()
def knows_part(state: State, holder, owner, tokens):
    """Return whether a holder was sent a prompt of so many tokens that ends alike."""
    return int(newest_run(state, holder, owner, tokens) != NONE)


@compiled()
def remember_own(state: State, holder, blocks, now_s):
    """Note blocks that no other prompt has: they only take room."""
    if blocks > 0:
        _put_before(state, new_run(state, holder, NONE, 0, 0, blocks), holder, now_s)


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
def _known_of(state: State, holder, owner, low, high):
    """Return up to which block of a stretch a holder has all."""
    known = low
    index = newest_run(state, holder, owner, 0)
    while index != NONE and known < high and state.runs[index].low <= known:
        known = state.runs[index].high
        index = state.runs[index].below
    return min(known, high)


@compiled()
def known_blocks(state: State, holder, request: Request, block_tokens, blocks):
    """Return how many of a prompt's first ``blocks`` a holder has, up to a gap."""
    high = known = common_blocks(state, request, block_tokens, blocks)
    owner = last_owner(state, request)
    while high > 0:
        low = min(high, tokens_before(state, owner) // block_tokens)
        if low < high:
            has = _known_of(state, holder, owner, low, high)
            known = has if has < high else known
        owner, high = owner_before(state, owner), low
    return known


def room_for_runs(used: int, points: int) -> int:
    """Return how many runs to make: a power of two, of which half may be in use.

    ``points`` of a ring of hashes have room too.
    """
    return 1 << (max(2 * used, points) - 1).bit_length()


def empty_memory(state: State, holders: int) -> State:
    """Return the state with so many holders, of which nothing is known."""
    state.counts[Count.HOLDERS] = holders
    state.counts[Count.NEW_RUNS] = _MOST_NEW_RUNS
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
    if state.counts[Count.UNUSED_RUNS] >= state.counts[Count.NEW_RUNS]:
        return state
    state = state._replace(runs=grown_records(state.runs, 2 * before))
    state.runs["entry"] = NONE
    state.runs["holder"][before:] = NONE
    link_unused(state, before // 2)
    fill_table(state)
    return state
