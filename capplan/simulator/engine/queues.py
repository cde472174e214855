"""Linked lists of waiting and running requests, and the order in which they finish.

Decoding requests also stand in a binary heap by ``end_step``; each knows its position
there, so that it leaves without a search.
"""

import math

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.linked_list import linked, unlinked
from capplan.simulator.records import Replica
from capplan.simulator.state import NONE, Count, State


@inlined()
def give_slot(state: State, slot: int):
    """Let a slot be taken again."""
    state.requests[slot].next = state.counts[Count.FREE]
    state.counts[Count.FREE] = slot


@inlined()
def tell(state: State, slot: int):
    """Let the driver hear of a request, after those of which it has not heard yet."""
    state.requests[slot].next_in_list = NONE
    last = state.counts[Count.NEWS_LAST]
    if last == NONE:
        state.counts[Count.NEWS_FIRST] = slot
    else:
        state.requests[last].next_in_list = slot
    state.counts[Count.NEWS_LAST] = slot


@inlined()
def push_waiting_back(state: State, r: int, slot: int):
    """Put an arrival at the end of the queue."""
    insert_waiting_before(state, r, slot, NONE)


@inlined()
def push_waiting_front(state: State, r: int, slot: int):
    """Put a preempted request before all others."""
    insert_waiting_before(state, r, slot, state.replicas[r].waiting_head)


@inlined()
def insert_waiting_before(state: State, r: int, slot: int, following):
    """Put a request before another that waits, or last where that is NONE."""
    replica = state.replicas[r]
    replica.waiting_head, replica.waiting_tail = linked(
        state.requests, replica.waiting_head, replica.waiting_tail, slot, following
    )
    replica.waiting_count += 1


@inlined()
def remove_waiting(state: State, r: int, slot: int):
    """Take a request out of the queue."""
    replica = state.replicas[r]
    replica.waiting_head, replica.waiting_tail = unlinked(
        state.requests, replica.waiting_head, replica.waiting_tail, slot
    )
    replica.waiting_count -= 1


@inlined()
def count_outstanding(state: State, r: int, slot: int, change):
    """Count a request among those outstanding on a replica, or with -1 no longer."""
    replica = state.replicas[r]
    request = state.requests[slot]
    replica.outstanding += change
    replica.outstanding_prompt_tokens += change * request.prompt_tokens
    replica.outstanding_output_tokens += change * request.predicted_tokens


@inlined()
def push_running(state: State, r: int, slot: int, following=NONE):
    """Put an admitted request last: it is the first to be preempted."""
    replica = state.replicas[r]
    replica.running_head, replica.running_tail = linked(
        state.requests, replica.running_head, replica.running_tail, slot, following
    )
    replica.running_count += 1


@inlined()
def join_running(state: State, r: int, slot: int, unfinished):
    """Put a request last, or in front of an unfinished prompt, as if admitted so."""
    replica = state.replicas[r]
    request = state.requests[slot]
    push_running(state, r, slot, unfinished)
    request.admission = replica.admissions
    replica.admissions += 1
    if unfinished != NONE:
        last = state.requests[unfinished]
        request.admission, last.admission = last.admission, request.admission


@inlined()
def remove_running(state: State, r: int, slot: int):
    """Take a request that finished or was preempted out of the batch."""
    replica = state.replicas[r]
    replica.running_head, replica.running_tail = unlinked(
        state.requests, replica.running_head, replica.running_tail, slot
    )
    replica.running_count -= 1


@compiled()
def move_by_arrival(state: State, r: int, slot: int):
    """Put the newest running request before those that arrived after it."""
    row = state.requests[slot].row
    following = NONE
    before = state.requests[slot].previous
    while before != NONE and state.requests[before].row > row:
        following = before
        before = state.requests[before].previous
    if following != NONE:
        remove_running(state, r, slot)
        push_running(state, r, slot, following)


@inlined()
def _rise(state: State, r: int, position, slot: int):
    ends = state.ends[r]
    end_step = state.requests[slot].end_step
    while position > 0:
        parent = (position - 1) >> 1
        above = ends[parent]
        if state.requests[above].end_step <= end_step:
            break
        ends[position] = above
        state.requests[above].heap_position = position
        position = parent
    ends[position] = slot
    state.requests[slot].heap_position = position


@inlined()
def _sink(state: State, r: int, position, slot: int):
    ends = state.ends[r]
    count = state.replicas[r].heap_count
    end_step = state.requests[slot].end_step
    while True:
        child = 2 * position + 1
        if child >= count:
            break
        below = ends[child]
        if child + 1 < count:
            other = ends[child + 1]
            if state.requests[other].end_step < state.requests[below].end_step:
                child += 1
                below = other
        if end_step <= state.requests[below].end_step:
            break
        ends[position] = below
        state.requests[below].heap_position = position
        position = child
    ends[position] = slot
    state.requests[slot].heap_position = position


@inlined()
def push_end(state: State, r: int, slot: int):
    """Add a decoding request to the heap."""
    replica = state.replicas[r]
    replica.heap_count += 1
    _rise(state, r, replica.heap_count - 1, slot)


@inlined()
def remove_end(state: State, r: int, slot: int):
    """Take a request out of the heap."""
    replica = state.replicas[r]
    position = state.requests[slot].heap_position
    replica.heap_count -= 1
    last = state.ends[r, replica.heap_count]
    if last == slot:
        return
    if state.requests[last].end_step < state.requests[slot].end_step:
        _rise(state, r, position, last)
    else:
        _sink(state, r, position, last)


@inlined()
def has_high_priority(state: State, r: int, below):
    """Return whether a request of a priority below is on a replica."""
    if below == -math.inf:
        return False
    for head in (state.replicas[r].running_head, state.replicas[r].waiting_head):
        slot = head
        while slot != NONE:
            if state.requests[slot].priority < below:
                return True
            slot = state.requests[slot].next
    return False


@inlined()
def waiting_tokens(state: State, r: int):
    """Return the tokens that the requests in a queue are to compute."""
    replica = state.replicas[r]
    tokens = replica.prefill_tokens
    if replica.prefilling != NONE:
        request = state.requests[replica.prefilling]
        tokens -= request.known_tokens - request.computed_tokens
    return tokens


@inlined()
def is_flying(replica: Replica):
    """Return whether its last iteration with requests is in flight, no rank's dummy."""
    return (
        replica.in_flight > 0 and replica.ran > replica.iterations - replica.in_flight
    )
