"""vLLM V1's scheduler with ``--scheduling-policy priority``.

vLLM 0.32, v1/core/sched/scheduler.py and request_queue.py. The queue stands in order
of the requests' ``priority``, lower first, then of arrival. Where KV is short, the
running request that would stand last in that order is preempted, also one that has
its place in the iteration already. When that is the request that lacks a block, those
behind it in the order of admission sit the iteration out.
"""

from capplan.simulator.engine.batch import (
    add_chunk,
    admit,
    log_decodes,
    next_block,
    preempt,
    same_batch,
    take_free_decode_blocks,
)
from capplan.simulator.engine.decoding import decode_again, stop_decoding
from capplan.simulator.engine.ordered import next_ordered, place, remove_ordered
from capplan.simulator.engine.queues import insert_waiting_before, remove_waiting
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import ceil_div, take_blocks
from capplan.simulator.schedulers import Rules
from capplan.simulator.state import NONE, SCHEDULE, Phase

RULES = Rules(async_scheduling=True, prefix_caching=True, orders=True)


@compiled()
def _place(state, r, slot, unplaced):
    """Let a waiting request stand where its priority puts it, before ``unplaced``."""
    request = state.requests[slot]
    remove_waiting(state, r, slot)
    place(state, r, slot, request.priority, request.row)
    following = next_ordered(state, slot)
    insert_waiting_before(state, r, slot, unplaced if following == NONE else following)


@inlined()
def _place_arrivals(state, r):
    """Place the arrivals, which stand last; none is in the order yet."""
    first = NONE
    slot = state.replicas[r].waiting_tail
    while slot != NONE and state.orders[slot].ordered == 0:
        first = slot
        slot = state.requests[slot].previous
    while first != NONE:
        following = state.requests[first].next
        _place(state, r, first, following)
        first = following


@compiled()
def _last_of_all(state, r):
    """Return the running request of the lowest priority, the latest of equals."""
    last = state.replicas[r].running_head
    slot = state.requests[last].next
    while slot != NONE:
        request = state.requests[slot]
        other = state.requests[last]
        if request.priority > other.priority or (
            request.priority == other.priority and request.row > other.row
        ):
            last = slot
        slot = request.next
    return last


@compiled()
def _preempt_last(state, r, admission):
    """Preempt the last of all; return it.

    Decodes admitted before ``admission`` have their place in the iteration.
    """
    slot = _last_of_all(state, r)
    request = state.requests[slot]
    taken = request.phase == Phase.DECODING and request.admission < admission
    preempt(state, r, slot, int(taken))
    _place(state, r, slot, NONE)
    return slot


@inlined()
def _return_those_that_sat_out(state, r):
    """Let decodes that sat the last iteration out decode again."""
    slot = state.replicas[r].running_tail
    while state.replicas[r].paused > 0:
        if state.requests[slot].phase == Phase.PAUSED:
            state.replicas[r].paused -= 1
            decode_again(state, r, slot)
        slot = state.requests[slot].previous


@compiled()
def _make_room(state, r):
    """Take the blocks of decodes in order of admission; return whether all run."""
    replica = state.replicas[r]
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        if request.phase == Phase.DECODING:
            needed = next_block(state, slot)
            admission = request.admission
            while replica.free_blocks < needed:
                victim = _preempt_last(state, r, admission)
                if victim == slot:
                    _sit_out_from(state, r, admission)
                    return False
            take_blocks(state, r, needed)
        slot = request.next
    return True


@compiled()
def _sit_out_from(state, r, admission):
    """Keep decodes admitted after ``admission`` out of the iteration, with their KV."""
    slot = state.replicas[r].running_tail
    while slot != NONE and state.requests[slot].admission > admission:
        request = state.requests[slot]
        if request.phase == Phase.DECODING:
            request.computed_tokens = stop_decoding(state, r, slot)
            state.replicas[r].paused += 1
            request.phase = Phase.PAUSED
        slot = request.previous


@compiled()
def _room_for_chunk(state, r, budget_tokens):
    """Take the blocks of the next chunk of the unfinished prompt; return its tokens."""
    replica = state.replicas[r]
    slot = replica.prefilling
    request = state.requests[slot]
    chunk = min(request.known_tokens - request.computed_tokens, budget_tokens)
    if chunk <= 0:
        return 0
    block_size = state.engine[0].block_size
    blocks = ceil_div(request.computed_tokens + chunk, block_size)
    blocks -= ceil_div(request.computed_tokens, block_size)
    while blocks > replica.free_blocks:
        if _preempt_last(state, r, request.admission) == slot:
            return 0
    take_blocks(state, r, blocks)
    return chunk


@compiled(SCHEDULE)
def schedule(state, r):
    """Give each running request its tokens, then admit while budget is left."""
    replica = state.replicas[r]
    _return_those_that_sat_out(state, r)
    _place_arrivals(state, r)
    all_run = take_free_decode_blocks(state, r, 0) or _make_room(state, r)
    budget = state.engine[0].max_num_batched_tokens - replica.decode_count
    chunk = 0
    if replica.prefilling != NONE and all_run:
        chunk = _room_for_chunk(state, r, budget)
        budget -= chunk
    log_decodes(state, r)
    if chunk > 0:
        add_chunk(state, r, replica.prefilling, chunk)
    while replica.preempted == 0 and budget > 0:
        slot = replica.waiting_head
        chunk = admit(state, r, budget)
        if chunk == 0:
            break
        remove_ordered(state, r, slot)
        budget -= chunk
    ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    return same_batch(state, r, 0, replica.preempted > 0 or ends)
