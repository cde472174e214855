"""Linked lists of waiting and running requests, and the order in which they finish.

Waiting and running requests are in doubly linked lists through their slots, so
that a request leaves from anywhere without a search. Decoding requests also stand
in a binary heap by ``end_step``; each knows its position there, for the same
reason.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Count


@inlined()
def give_slot(state, slot):
    """Let a slot be taken again."""
    state.requests[slot].next = state.counts[Count.FREE]
    state.counts[Count.FREE] = slot


@inlined()
def push_waiting_back(state, r, slot):
    """Put an arrival at the end of the queue."""
    replica = state.replicas[r]
    request = state.requests[slot]
    request.next = NONE
    request.previous = replica.waiting_tail
    if replica.waiting_tail == NONE:
        replica.waiting_head = slot
    else:
        state.requests[replica.waiting_tail].next = slot
    replica.waiting_tail = slot
    replica.waiting_count += 1


@compiled()
def push_waiting_front(state, r, slot):
    """Put a preempted request before all others."""
    replica = state.replicas[r]
    request = state.requests[slot]
    request.previous = NONE
    request.next = replica.waiting_head
    if replica.waiting_head == NONE:
        replica.waiting_tail = slot
    else:
        state.requests[replica.waiting_head].previous = slot
    replica.waiting_head = slot
    replica.waiting_count += 1


@compiled()
def insert_waiting_before(state, r, slot, following):
    """Put a request before another that waits, or last where that is NONE."""
    if following == NONE:
        push_waiting_back(state, r, slot)
        return
    request = state.requests[slot]
    before = state.requests[following].previous
    request.previous = before
    request.next = following
    state.requests[following].previous = slot
    if before == NONE:
        state.replicas[r].waiting_head = slot
    else:
        state.requests[before].next = slot
    state.replicas[r].waiting_count += 1


@inlined()
def remove_waiting(state, r, slot):
    """Take a request out of the queue."""
    replica = state.replicas[r]
    request = state.requests[slot]
    if request.previous == NONE:
        replica.waiting_head = request.next
    else:
        state.requests[request.previous].next = request.next
    if request.next == NONE:
        replica.waiting_tail = request.previous
    else:
        state.requests[request.next].previous = request.previous
    replica.waiting_count -= 1


@inlined()
def push_running(state, r, slot):
    """Put an admitted request last: it is the first to be preempted."""
    replica = state.replicas[r]
    request = state.requests[slot]
    request.next = NONE
    request.previous = replica.running_tail
    if replica.running_tail == NONE:
        replica.running_head = slot
    else:
        state.requests[replica.running_tail].next = slot
    replica.running_tail = slot
    replica.running_count += 1


@inlined()
def remove_running(state, r, slot):
    """Take a request that finished or was preempted out of the batch."""
    replica = state.replicas[r]
    request = state.requests[slot]
    if request.previous == NONE:
        replica.running_head = request.next
    else:
        state.requests[request.previous].next = request.next
    if request.next == NONE:
        replica.running_tail = request.previous
    else:
        state.requests[request.next].previous = request.previous
    replica.running_count -= 1


@compiled()
def move_by_arrival(state, r, slot):
    """Put the newest running request before those that arrived after it."""
    row = state.requests[slot].row
    following = NONE
    before = state.requests[slot].previous
    while before != NONE and state.requests[before].row > row:
        following = before
        before = state.requests[before].previous
    if following == NONE:
        return
    remove_running(state, r, slot)
    state.replicas[r].running_count += 1
    request = state.requests[slot]
    request.previous = before
    request.next = following
    state.requests[following].previous = slot
    if before == NONE:
        state.replicas[r].running_head = slot
    else:
        state.requests[before].next = slot


@inlined()
def _rise(state, r, position, slot):
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
def _sink(state, r, position, slot):
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
def push_end(state, r, slot):
    """Add a decoding request to the heap."""
    replica = state.replicas[r]
    replica.heap_count += 1
    _rise(state, r, replica.heap_count - 1, slot)


@inlined()
def remove_end(state, r, slot):
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
