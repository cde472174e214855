"""Shortest remaining first with the true output lengths: a ceiling for predictions.

Schrage, "A Proof of the Optimality of the Shortest Remaining Processing Time
Discipline", Operations Research 16(3), 1968, for one seat; ours for a batch. What
remains of a request is counted in iterations that it would need alone: the chunks of
its prompt and one for each later token. Of equals the newest runs.

The requests with least left have the seats. One that is displaced sits out with its
KV. Where KV is short, the holder with most left computes again, running or not, but
never for one that has more left than itself. A prompt starts only if all of it fits,
as in vLLM V1; the first in the queue that cannot run holds up those after it.
"""

from capplan.simulator.engine.batch import (
    log_decodes,
    next_block,
    same_batch,
    take_free_decode_blocks,
)
from capplan.simulator.engine.decoding import computed_tokens
from capplan.simulator.engine.ordered import (
    first_ordered,
    last_ordered,
    place,
    previous_ordered,
    remove_ordered,
)
from capplan.simulator.engine.pausing import (
    decodes_next,
    evict,
    first_arrival,
    held_blocks,
    left_tokens,
    missing_blocks,
    pause,
    resume,
    run_chunk,
    take_arrival,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import ceil_div, take_blocks
from capplan.simulator.schedulers import Rules
from capplan.simulator.state import NONE, SCHEDULE, Phase, State

RULES = Rules(orders=True, pauses=True)


@compiled()
def _queue(state: State, r: int, slot: int):
    """Put a PAUSED request into the order of the iterations that it has left."""
    request = state.requests[slot]
    generated = request.known_tokens - request.prompt_tokens
    chunks = ceil_div(left_tokens(state, slot), state.engine[0].max_num_batched_tokens)
    left = chunks - 1 + request.output_tokens - generated
    place(state, r, slot, left, -request.row)


@compiled()
def _file(state: State, r: int):
    """Queue the unfinished prompts and the arrivals."""
    slot = state.replicas[r].running_tail
    if state.replicas[r].prefilling == NONE:
        slot = NONE
    while slot != NONE:
        before = state.requests[slot].previous
        if state.requests[slot].phase == Phase.PREFILLING:
            pause(state, r, slot)
            _queue(state, r, slot)
        slot = before
    slot = first_arrival(state, r)
    while slot != NONE:
        following = take_arrival(state, r, slot)
        _queue(state, r, slot)
        slot = following


@inlined()
def _stands_after(state: State, slot: int, left, row):
    """Return whether a decoding request has more left, or as much and is older."""
    request = state.requests[slot]
    own = request.end_step - state.replicas[request.replica].step
    return own > left or (own == left and request.row < row)


@compiled()
def _last_running(state: State, r: int, left, row):
    """Return the last decoding request behind one with ``left`` iterations, or NONE."""
    last = NONE
    slot = state.replicas[r].running_head
    while slot != NONE:
        request = state.requests[slot]
        if request.phase == Phase.DECODING and _stands_after(state, slot, left, row):
            last = slot
            left = request.end_step - state.replicas[r].step
            row = request.row
        slot = request.next
    return last


@compiled()
def _last_paused(state: State, r: int, left, row):
    """Return the last PAUSED request with KV behind one with ``left``, or NONE."""
    if state.replicas[r].paused == 0:
        return NONE
    slot = last_ordered(state, r)
    while slot != NONE:
        order = state.orders[slot]
        if order.key < left or (order.key == left and -order.tie_break >= row):
            return NONE
        if state.requests[slot].computed_tokens > 0:
            return slot
        slot = previous_ordered(state, slot)
    return NONE


@compiled()
def _last_holder(state: State, r: int, left, row):
    """Return the last request with KV behind one with ``left``, or NONE."""
    slot = _last_paused(state, r, left, row)
    if slot != NONE:
        left = state.orders[slot].key
        row = state.requests[slot].row
    running = _last_running(state, r, left, row)
    return running if running != NONE else slot


@compiled()
def _sit_out(state: State, r: int, slot: int, taken):
    """Pause a decode; ``taken``: it has its block for the next iteration, freed now."""
    pause(state, r, slot)
    if taken:
        state.replicas[r].free_blocks += next_block(state, slot)


@compiled()
def _evict(state: State, r: int, slot: int, taken):
    """Let a holder of KV compute again."""
    if state.orders[slot].ordered != 0:
        remove_ordered(state, r, slot)
    else:
        _sit_out(state, r, slot, taken)
    evict(state, r, slot)
    _queue(state, r, slot)


@compiled()
def _free_if_all_went(state: State, r: int, left, row):
    """Return the blocks free if all holders behind one with ``left`` were evicted."""
    replica = state.replicas[r]
    block_size = state.engine[0].block_size
    free = replica.free_blocks
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        if request.phase == Phase.DECODING and _stands_after(state, slot, left, row):
            tokens = computed_tokens(state, slot, replica.step + 1) + 1
            free += ceil_div(tokens, block_size) + request.bounded_blocks
        slot = request.next
    slot = last_ordered(state, r) if state.replicas[r].paused > 0 else NONE
    while slot != NONE:
        order = state.orders[slot]
        if order.key < left or (order.key == left and -order.tie_break >= row):
            break
        free += held_blocks(state, slot)
        slot = previous_ordered(state, slot)
    return free


@compiled()
def _run_first(state: State, r: int):
    """Let the first of the queue run, if it may; return whether it does."""
    replica = state.replicas[r]
    engine = state.engine[0]
    slot = first_ordered(state, r)
    if slot == NONE:
        return False
    request = state.requests[slot]
    left = state.orders[slot].key
    seated = NONE
    if replica.running_count >= engine.max_num_seqs:
        seated = _last_running(state, r, left, request.row)
        if seated == NONE:
            return False
    used = replica.batch_tokens + replica.batch_extra_count + replica.decode_count
    budget = engine.max_num_batched_tokens - used + int(seated != NONE)
    missing = missing_blocks(state, slot, request.known_tokens)
    if budget <= 0 or missing > _free_if_all_went(state, r, left, request.row):
        return False
    remove_ordered(state, r, slot)
    if seated != NONE:
        _sit_out(state, r, seated, True)
        _queue(state, r, seated)
    while missing > replica.free_blocks:
        _evict(state, r, _last_holder(state, r, left, request.row), True)
    if decodes_next(state, slot):
        take_blocks(state, r, missing)
        resume(state, r, slot)
    else:
        chunk = min(left_tokens(state, slot), budget)
        run_chunk(state, r, slot, chunk, request.computed_tokens + chunk)
    return True


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Let decodes go on, then the queue in order while seats, budget and KV last."""
    replica = state.replicas[r]
    _file(state, r)
    while not take_free_decode_blocks(state, r, 0):
        _evict(state, r, _last_holder(state, r, -1, 0), False)
    moved = replica.preempted > 0
    while _run_first(state, r):
        moved = True
    log_decodes(state, r)
    return same_batch(state, r, 0, moved)
