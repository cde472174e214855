"""Prefill and decode in pools of their own: a request is in a slot of each.

The first pool computes its prompt as a request of one output token, and keeps its KV
until a replica of the second has read it (``copies.py``). From its arrival, or from
when its prompt is done, the decode replica counts it as outstanding. Where ranks step
together a request belongs to one of them, whose row it names.
"""

import math

from capplan.simulator.engine.group_queue import choose_rank
from capplan.simulator.engine.queues import (
    count_outstanding,
    give_slot,
    push_waiting_back,
)
from capplan.simulator.engine.ranks import look_at_ranks, sum_up, wake_group
from capplan.simulator.fleet.migration import resume
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.copies import REPLICA, REQUEST
from capplan.simulator.kv.kvcache import return_blocks
from capplan.simulator.state import NONE, Phase, State


@inlined()
def engines_of(state: State):
    """Return the state whose replicas are engines: ranks where there are groups."""
    return state.by_rank if state.ranks.shape[0] > 0 else state


@inlined()
def replica_of(state: State, row):
    """Return the replica that an engine is, or of which it is a rank."""
    return row // max(1, state.engine[0].ranks)


@inlined()
def _look(state: State, r: int, now_s):
    """Note what a report before a moment says, which something is about to change."""
    if state.ranks.shape[0] > 0:
        look_at_ranks(state, r, now_s)


@inlined()
def _resume(state: State, row, now_s):
    """Let an engine look again that could run nothing before something came."""
    if state.ranks.shape[0] == 0:
        resume(state, row, now_s)
        return
    group = state.replicas[replica_of(state, row)]
    if group.now_s == math.inf:
        group.now_s = now_s
    wake_group(state, state.by_rank, replica_of(state, row))


@inlined()
def expect(second, slot, d, now_s):
    """Count a request as outstanding on the decode replica that will have it."""
    engines = engines_of(second)
    _look(second, d, now_s)
    row = choose_rank(second, d) if second.ranks.shape[0] > 0 else d
    request = second.requests[slot]
    request.phase = Phase.EXPECTED
    request.replica = row
    count_outstanding(engines, row, slot, 1)
    engines.replicas[row].awaited += 1
    if second.ranks.shape[0] > 0:
        sum_up(second, d)


@compiled()
def receive(first, second, source, at_first, now_s):
    """Put a request whose prompt is done into the queue of its decode replica."""
    prompt = first.requests[at_first]
    slot = prompt.partner
    engines = engines_of(second)
    request = second.requests[slot]
    row = request.replica
    _look(second, replica_of(second, row), now_s)
    engines.replicas[row].awaited -= 1
    _resume(second, row, now_s)
    replica = second.replicas[replica_of(second, row)]
    if replica.running_count + replica.waiting_count == 0:  # it has idled
        replica.now_s = max(replica.now_s, now_s)
    request.phase = Phase.WAITING
    request.scheduled_s = prompt.scheduled_s
    request.cached_tokens = prompt.cached_tokens
    request.preemptions = prompt.preemptions
    request.handed_s = prompt.handed_s
    second.request_memory[slot, REQUEST.source] = source + 1.0
    second.request_memory[slot, REQUEST.slot] = at_first
    second.replica_memory[row, REPLICA.wanting] += 1.0
    engines.replicas[row].prefill_tokens += 1
    push_waiting_back(engines, row, slot)
    _resume(second, row, now_s)


@compiled()
def note_read(first, motion, r, slot):
    """Note that a prompt's blocks have been read, of which its replica hears later.

    Its workers look when they start an iteration, and tell with its result: after as
    many calls of the scheduler as there are iterations in flight.
    """
    request = first.requests[slot]
    request.end_step = motion.reading[2, r] + 1 + first.engine[0].depth
    request.next_in_list = NONE
    last = motion.reading[1, r]
    if last == NONE:
        motion.reading[0, r] = slot
    else:
        first.requests[last].next_in_list = slot
    motion.reading[1, r] = slot


@compiled()
def release_heard(first, motion, r, now_s, all_read):
    """Free the blocks of prompts that have been read: all, or those heard of by now."""
    slot = motion.reading[0, r]
    if slot != NONE:
        _look(first, r, now_s)
    while slot != NONE:
        request = first.requests[slot]
        if not all_read and request.end_step > motion.reading[2, r]:
            break
        following = request.next_in_list
        held, row = request.prompt_tokens, request.replica
        engines = engines_of(first)
        return_blocks(engines, row, slot, held, held, False)
        request.phase = Phase.FREE
        give_slot(first, slot)
        engines.replicas[row].awaited -= 1
        _resume(first, row, now_s)
        slot = following
    motion.reading[0, r] = slot
    if slot == NONE:
        motion.reading[1, r] = NONE
