"""Steps of a scheduler that lets requests sit out: pause, resume, evict, swap.

For schedulers that let requests sit out (``RULES.pauses``) and have one
iteration in flight. A request that does not run is PAUSED. It may hold KV, on the GPU
or on the host; ``computed_tokens`` is how many tokens of it.
"""

import math

from capplan.simulator.engine.batch import join
from capplan.simulator.engine.decoding import decode_again, stop_decoding
from capplan.simulator.engine.queues import (
    push_running,
    push_waiting_front,
    remove_running,
    remove_waiting,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import ceil_div, return_blocks, take_blocks
from capplan.simulator.state import NONE, Phase, State


@inlined()
def first_arrival(state: State, r: int):
    """Return the oldest arrival that is not PAUSED yet, or NONE.

    Those after it follow in the waiting list.
    """
    first = NONE
    slot = state.replicas[r].waiting_tail
    while slot != NONE and state.requests[slot].phase == Phase.WAITING:
        first = slot
        slot = state.requests[slot].previous
    return first


@inlined()
def take_arrival(state: State, r: int, slot: int):
    """Let an arrival be PAUSED; return the next arrival or NONE."""
    following = state.requests[slot].next
    remove_waiting(state, r, slot)
    push_waiting_front(state, r, slot)
    state.requests[slot].phase = Phase.PAUSED
    return following


@inlined()
def left_tokens(state: State, slot: int):
    """Return the tokens that a PAUSED request computes before its next token."""
    request = state.requests[slot]
    return request.known_tokens - request.computed_tokens


@inlined()
def decodes_next(state: State, slot: int):
    """Return whether a PAUSED request only has its newest token to compute."""
    request = state.requests[slot]
    return (
        request.computed_tokens >= request.prompt_tokens
        and left_tokens(state, slot) == 1
    )


@compiled()
def pause(state: State, r: int, slot: int):
    """Let a running request sit out with its KV."""
    replica = state.replicas[r]
    request = state.requests[slot]
    if request.phase == Phase.DECODING:
        request.computed_tokens = stop_decoding(state, r, slot)
        replica.prefill_tokens += 1
    elif replica.prefilling == slot:
        replica.prefilling = NONE
    remove_running(state, r, slot)
    push_waiting_front(state, r, slot)
    request.phase = Phase.PAUSED
    state.pauses[slot].since_s = replica.now_s
    state.replicas[r].paused += 1


@inlined()
def _end_pause(state: State, r: int, slot: int):
    sat_out = state.pauses[slot]
    if not math.isnan(sat_out.since_s):
        sat_out.paused_s += state.replicas[r].now_s - sat_out.since_s
        sat_out.since_s = math.nan
        state.replicas[r].paused -= 1


@inlined()
def _leave_queue(state: State, r: int, slot: int):
    remove_waiting(state, r, slot)
    _end_pause(state, r, slot)


@compiled()
def resume(state: State, r: int, slot: int):
    """Let a PAUSED request decode again: it ``decodes_next``."""
    replica = state.replicas[r]
    _leave_queue(state, r, slot)
    push_running(state, r, slot)
    state.requests[slot].admission = replica.admissions
    replica.admissions += 1
    replica.prefill_tokens -= 1
    decode_again(state, r, slot)


@compiled()
def run_chunk(state: State, r: int, slot: int, chunk, room_tokens):
    """Let a PAUSED request compute ``chunk`` tokens of its prompt.

    It takes the blocks of ``room_tokens`` that it does not hold yet.
    """
    request = state.requests[slot]
    take_blocks(state, r, missing_blocks(state, slot, room_tokens))
    request.room_tokens = max(request.room_tokens, room_tokens)
    _leave_queue(state, r, slot)
    join(state, r, slot, chunk)


@inlined()
def blocks_on_host(state: State, slot: int):
    """Return the blocks of a request's KV on the host."""
    return state.swaps[slot].host_blocks if state.swaps.shape[0] > 0 else 0


@inlined()
def held_blocks(state: State, slot: int):
    """Return the blocks that a PAUSED request holds on the GPU."""
    request = state.requests[slot]
    if request.computed_tokens == 0 or blocks_on_host(state, slot) > 0:
        return 0
    tokens = max(request.computed_tokens, request.room_tokens)
    return ceil_div(tokens, state.engine[0].block_size) + request.bounded_blocks


@inlined()
def missing_blocks(state: State, slot: int, room_tokens):
    """Return the blocks that a PAUSED request lacks for ``room_tokens``."""
    request = state.requests[slot]
    blocks = ceil_div(room_tokens, state.engine[0].block_size)
    blocks += request.bounded_blocks
    return max(0, blocks - held_blocks(state, slot))


@compiled()
def evict(state: State, r: int, slot: int):
    """Free the KV of a request; it computes all that it knows again."""
    replica = state.replicas[r]
    request = state.requests[slot]
    if request.phase != Phase.PAUSED:
        pause(state, r, slot)
    held = request.computed_tokens
    return_blocks(state, r, slot, held, held, True)
    replica.prefill_tokens += held
    request.computed_tokens = 0
    request.room_tokens = 0
    request.preemptions += 1
    replica.preempted += 1
    _end_pause(state, r, slot)


@compiled()
def swap_out(state: State, r: int, slot: int):
    """Move the KV of a request to the host; return the blocks to copy."""
    request = state.requests[slot]
    swap = state.swaps[slot]
    if request.phase != Phase.PAUSED:
        pause(state, r, slot)
    blocks = held_blocks(state, slot)
    held = request.computed_tokens
    return_blocks(state, r, slot, held, held, True)
    swap.host_blocks = blocks
    swap.swaps += 1
    state.replicas[r].preempted += 1
    state.replicas[r].host_free_blocks -= blocks
    return blocks


@compiled()
def swap_in(state: State, r: int, slot: int):
    """Move the KV of a PAUSED request back from the host; return the blocks to copy."""
    swap = state.swaps[slot]
    blocks = swap.host_blocks
    take_blocks(state, r, blocks)
    swap.host_blocks = 0
    state.replicas[r].host_free_blocks += blocks
    return blocks
