"""Prefill and decode in pools of their own: a request is in a slot of each.

The first pool computes its prompt as a request of one output token, and keeps its KV
until a replica of the second has read it (``copies.py``). From its
arrival, or from when its prompt is done, the decode replica counts it as outstanding.
"""

from capplan.simulator.copies import REPLICA, REQUEST
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kvcache import return_blocks
from capplan.simulator.migration import resume
from capplan.simulator.queues import (
    count_outstanding,
    give_slot,
    push_waiting_back,
)
from capplan.simulator.state import NONE, Phase
from capplan.simulator.wake import set_wake


@inlined()
def expect(second, slot, d):
    """Count a request as outstanding on the decode replica that will have it."""
    replica = second.replicas[d]
    request = second.requests[slot]
    request.phase = Phase.EXPECTED
    request.replica = d
    count_outstanding(second, d, slot, 1)
    replica.awaited += 1


@compiled()
def receive(first, second, source, at_first, now_s):
    """Put a request whose prompt is done into the queue of its decode replica."""
    prompt = first.requests[at_first]
    slot = prompt.partner
    request = second.requests[slot]
    r = request.replica
    replica = second.replicas[r]
    replica.awaited -= 1
    resume(second, r, now_s)
    if replica.running_count + replica.waiting_count == 0:  # it has idled
        replica.now_s = max(replica.now_s, now_s)
    request.phase = Phase.WAITING
    request.scheduled_s = prompt.scheduled_s
    request.cached_tokens = prompt.cached_tokens
    request.preemptions = prompt.preemptions
    request.handed_s = prompt.handed_s
    second.request_memory[slot, REQUEST.source] = source + 1.0
    second.request_memory[slot, REQUEST.slot] = at_first
    second.replica_memory[r, REPLICA.wanting] += 1.0
    replica.prefill_tokens += 1
    push_waiting_back(second, r, slot)
    set_wake(second, r)


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
    while slot != NONE:
        request = first.requests[slot]
        if not all_read and request.end_step > motion.reading[2, r]:
            break
        following = request.next_in_list
        held = request.prompt_tokens
        return_blocks(first, r, slot, held, held, False)
        request.phase = Phase.FREE
        give_slot(first, slot)
        first.replicas[r].awaited -= 1
        resume(first, r, now_s)
        slot = following
    motion.reading[0, r] = slot
    if slot == NONE:
        motion.reading[1, r] = NONE
