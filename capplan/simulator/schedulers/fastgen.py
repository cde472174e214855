"""DeepSpeed-FastGen: decodes first, prompts split and fused (Dynamic SplitFuse).

Holmes et al., "DeepSpeed-FastGen", arXiv 2401.08671, section 3; as in DeepSpeed-MII,
mii/batching/ragged_batching.py, ``_schedule_token_gen`` and ``_schedule_prompts``. A
decode that needs a block when none is free is skipped and keeps its KV; those that
ran go behind those that did not. A prompt joins only if all that is left of it fits
the blocks that the decodes leave, and if any block was free before them; what needs
no new block joins when they took the last. When nothing can run, the last request
that holds KV is flushed: it computes its prompt and its answer so far again, behind
all others. The blocks of a finished request are free at once; in the source one
iteration later at the earliest, which a race decides.

The engine's ``max_num_batched_tokens`` is the budget (768 there).
"""

import numpy as np

from capplan.simulator.engine.batch import (
    decode_horizon,
    log_decodes,
    next_block,
    take_free_decode_blocks,
)
from capplan.simulator.engine.ordered import (
    first_at,
    first_ordered,
    next_ordered,
    place,
)
from capplan.simulator.engine.pausing import (
    evict,
    first_arrival,
    left_tokens,
    missing_blocks,
    pause,
    resume,
    run_chunk,
    take_arrival,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import take_blocks
from capplan.simulator.schedulers import Rules, indices
from capplan.simulator.state import NONE, SCHEDULE, Phase, State

RULES = Rules(orders=True, pauses=True, in_order=True, replica_columns=("placed",))
REPLICA = indices(RULES.replica_columns)
"""``placed``: requests put last so far."""

_DECODE = 0.0
_PROMPT = 1.0


def refused(trace, engine, settings):
    """Return the requests that would be flushed for ever, and the reason.

    Those whose chunks take the last block: none is free before the next chunk.
    """
    tokens = trace.prompt_tokens + trace.output_tokens - 1
    blocks, budget = engine.kv_blocks - 1, engine.max_num_batched_tokens
    whole = np.asarray(engine.request_blocks(tokens) >= blocks)
    reason = f"in chunks of {budget} tokens it needs more than all {blocks} KV blocks"
    return whole & np.asarray(tokens > budget), reason


@compiled()
def _put_last(state: State, r: int, slot: int, key):
    """Put a request behind all others of its kind."""
    state.replica_memory[r, REPLICA.placed] += 1
    place(state, r, slot, key, int(state.replica_memory[r, REPLICA.placed]))


@compiled()
def _order_arrivals(state: State, r: int):
    """Put new decodes and arrivals in order, and the unfinished prompt first."""
    new = NONE
    slot = state.replicas[r].running_tail
    while slot != NONE and state.orders[slot].key == _PROMPT:
        new = slot
        slot = state.requests[slot].previous
    while new != NONE:
        following = state.requests[new].next
        if state.requests[new].phase == Phase.DECODING:
            _put_last(state, r, new, _DECODE)
        else:
            pause(state, r, new)
            place(state, r, new, _PROMPT, -1)
        new = following
    slot = first_arrival(state, r)
    while slot != NONE:
        following = take_arrival(state, r, slot)
        _put_last(state, r, slot, _PROMPT)
        slot = following


@inlined()
def _first_decode_waits(state: State, r: int):
    """Return whether a decode was skipped: such ones stand first."""
    slot = first_ordered(state, r)
    if slot == NONE or state.orders[slot].key != _DECODE:
        return False
    return state.requests[slot].phase == Phase.PAUSED


@compiled()
def _run_decodes_that_fit(state: State, r: int):
    """Let each decode run whose KV has room or gets a block; return if one does not.

    Those that run go behind those that do not.
    """
    replica = state.replicas[r]
    skipped = False
    last = state.replica_memory[r, REPLICA.placed]
    slot = first_ordered(state, r)
    while slot != NONE and state.orders[slot].key == _DECODE:
        if state.orders[slot].tie_break > last:  # ran already
            break
        following = next_ordered(state, slot)
        request = state.requests[slot]
        needed = next_block(state, slot)
        if needed <= replica.free_blocks:
            take_blocks(state, r, needed)
            if request.phase == Phase.PAUSED:
                resume(state, r, slot)
            _put_last(state, r, slot, _DECODE)
        else:
            skipped = True
            if request.phase == Phase.DECODING:
                pause(state, r, slot)
        slot = following
    return skipped


@compiled()
def _run_prompts(state: State, r: int):
    """Let prompts run, in order, each up to the budget."""
    replica = state.replicas[r]
    engine = state.engine[0]
    budget = engine.max_num_batched_tokens - replica.decode_count
    slot = first_at(state, r, _PROMPT)
    while slot != NONE and budget > 0 and replica.running_count < engine.max_num_seqs:
        request = state.requests[slot]
        following = next_ordered(state, slot)
        left = left_tokens(state, slot)
        if missing_blocks(state, slot, request.known_tokens) <= replica.free_blocks:
            chunk = min(left, budget)
            run_chunk(state, r, slot, chunk, request.computed_tokens + chunk)
            budget -= chunk
        elif left > 1:
            break
        slot = following


@inlined()
def _last_with_kv(state: State, r: int):
    """Return the last decode, or else the unfinished prompt, or NONE."""
    slot = first_at(state, r, _PROMPT)
    if slot != NONE and state.requests[slot].computed_tokens == 0:
        slot = NONE
    other = first_ordered(state, r)
    while other != NONE and state.orders[other].key == _DECODE:
        slot = other
        other = next_ordered(state, other)
    return slot


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Let decodes run, then prompts up to the budget; flush when nothing can."""
    replica = state.replicas[r]
    _order_arrivals(state, r)
    while True:
        skipped = False
        free_blocks = replica.free_blocks  # before the decodes take theirs
        waits = _first_decode_waits(state, r)
        if waits or not take_free_decode_blocks(state, r, 0):
            skipped = _run_decodes_that_fit(state, r)
        log_decodes(state, r)
        if free_blocks > 0:
            _run_prompts(state, r)
        if replica.batch_tokens + replica.batch_extra_count > 0:
            return 1
        if replica.decode_count > 0:
            return 1 if skipped else decode_horizon(state, r, 0)
        slot = _last_with_kv(state, r)
        if slot == NONE:
            return 0
        evict(state, r, slot)
        _put_last(state, r, slot, _PROMPT)
