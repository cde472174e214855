"""vLLM V1's ``--scheduling-policy priority``.

vLLM 0.32, v1/core/sched/scheduler.py and request_queue.py. The queue stands in order
of the requests' ``priority``, lower first, then of arrival. Where KV is short, the
running request that would stand last in that order is preempted, also one that has
its place in the iteration already. When that is the request that lacks a block, those
behind it in the order of admission sit the iteration out.
"""

from capplan.simulator.capable import Capability
from capplan.simulator.engine.batch import take_chunk_back
from capplan.simulator.engine.log import unlog_entry
from capplan.simulator.engine.ordered import next_ordered, place
from capplan.simulator.engine.queues import insert_waiting_before, remove_waiting
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase, State

CAPABILITY = Capability(orders=True)
"""Of the scheduler with this name, whatever its engine."""


@compiled()
def place_waiting(state: State, r: int, slot: int, unplaced, ahead=0.0):
    """Let a waiting request stand where its priority puts it, before ``unplaced``.

    It stands as one of a priority that is lower by ``ahead``.
    """
    priority = state.requests[slot].priority - ahead
    remove_waiting(state, r, slot)
    place(state, r, slot, priority, state.orders[slot].tie_break)
    following = next_ordered(state, slot)
    insert_waiting_before(state, r, slot, unplaced if following == NONE else following)


@inlined()
def place_arrivals(state: State, r: int, turn):
    """Place the arrivals, which stand last; return how many there are.

    None is in the order yet. Of equals the first that reached the router goes first, or
    by its turn here, from ``turn`` on unless that is NONE.
    """
    first = NONE
    slot = state.replicas[r].waiting_tail
    while slot != NONE and state.orders[slot].ordered == 0:
        first = slot
        slot = state.requests[slot].previous
    count = 0
    while first != NONE:
        following = state.requests[first].next
        if turn != NONE:
            state.orders[first].tie_break = turn + count
        place_waiting(state, r, first, following)
        first = following
        count += 1
    return count


@compiled()
def last_of_all(state: State, r: int):
    """Return the running request of the lowest priority, the latest of equals."""
    last = state.replicas[r].running_head
    slot = state.requests[last].next
    while slot != NONE:
        priority = state.requests[slot].priority
        lowest = state.requests[last].priority
        later = state.orders[slot].tie_break > state.orders[last].tie_break
        if priority > lowest or (priority == lowest and later):
            last = slot
        slot = state.requests[slot].next
    return last


@compiled()
def leave_iteration(state: State, r: int, slot: int):
    """Take a request that is to be preempted out of the iteration, if it has a place.

    Return the tokens of the budget that this gives back.
    """
    replica = state.replicas[r]
    request = state.requests[slot]
    tokens = 0
    if request.phase == Phase.DECODING:
        tokens = 1
    elif request.phase == Phase.PREFILLING and request.chunk_step == replica.step + 1:
        tokens = take_chunk_back(state, r, slot)
    if tokens > 0:
        unlog_entry(state, request.row)
    return tokens
