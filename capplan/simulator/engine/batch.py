"""Steps of a scheduler: admit a request, continue a prompt, preempt.

A scheduler calls these to put together the next iteration; ``replica.py`` then
runs it. ``admit`` and ``continue_prefill`` are rules of vLLM V1's
``Scheduler.schedule`` (0.32, v1/core/sched/scheduler.py), which takes blocks as KV
grows; ``admit_with_room`` is for schedulers that take them in advance.
"""

import math

from capplan.simulator.engine.decoding import (
    computed_tokens,
    decode_line,
    stop_decoding,
)
from capplan.simulator.engine.jump import iterations_before
from capplan.simulator.engine.log import log_entry
from capplan.simulator.engine.queues import (
    is_flying,
    push_running,
    push_waiting_front,
    remove_running,
    remove_waiting,
)
from capplan.simulator.engine.speculation import findable_tokens
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import (
    adopt_hits,
    blocks_in_iteration,
    ceil_div,
    count_hits,
    iterations_that_fit,
    return_blocks,
    share_full_blocks,
    take_blocks,
)
from capplan.simulator.kv.states import return_states
from capplan.simulator.state import NONE, Caching, Count, Phase, State


@inlined()
def next_block(state: State, slot: int):
    """Return the blocks that the next token of a decode takes, also while PAUSED."""
    request = state.requests[slot]
    held = request.computed_tokens
    if request.phase == Phase.DECODING:
        step = state.replicas[request.replica].step + 1
        held = computed_tokens(state, slot, step)
    return int(held % state.engine[0].block_size == 0)


@inlined()
def log_decodes(state: State, r: int):
    """Log all decoding requests of the next iteration, in order of admission."""
    if state.engine[0].recording == 0:
        return
    step = state.replicas[r].step + 1
    slot = state.replicas[r].running_head
    while slot != NONE:
        request = state.requests[slot]
        if request.phase == Phase.DECODING:
            log_entry(state, request.row, computed_tokens(state, slot, step), 1)
        slot = request.next


@compiled()
def preempt(state: State, r: int, slot: int, taken=0):
    """Free a running request's KV and put it first in the queue.

    When readmitted it computes its prompt and generated tokens again
    (vLLM's "recompute"). ``taken`` is 1 where it is a decode that has its place, and
    its block, in the iteration already.
    """
    replica = state.replicas[r]
    request = state.requests[slot]
    verifies = state.engine[0].verifies != 0
    phase = Phase.WAITING
    if request.phase == Phase.PREFILLING:
        held = hashed = request.computed_tokens
        replica.prefilling = NONE
        replica.prefill_tokens += held
        request.token_step = NONE
    else:
        admitted_tokens = request.known_tokens
        if verifies:
            hashed = findable_tokens(state, r, slot, replica.in_flight > 0, taken)
        if request.phase == Phase.DECODING:
            held = stop_decoding(state, r, slot)
            replica.prefill_tokens += held + 1
            # The iteration before may have a token of it in flight, see failing.py.
            ran = verifies or held + 1 > admitted_tokens
            request.token_step = replica.step + 1 if ran else NONE
        else:
            held = request.prompt_tokens + request.output_tokens - 1
            request.known_tokens = held + 1
            phase = Phase.PREEMPTED_DRAINING
            replica.preempted_draining += 1
        held += taken
        if not verifies:
            hashed = _hashed_tokens(state, r, held, admitted_tokens, taken)
    if verifies:
        held = request.room_tokens
        request.room_tokens = 0
    return_to_queue(state, r, slot, held, hashed, phase)


@inlined()
def _hashed_tokens(state: State, r: int, held, admitted_tokens, taken):
    """Return how many tokens of a preempted decode, which holds so many, can be found.

    The engine hashes a token when it collects it; while the iteration of the newest is
    in flight, the block that it fills cannot be found.
    """
    hashed = held - int(is_flying(state.replicas[r]) and held > admitted_tokens)
    if state.engine[0].prefix_caching == Caching.LATE:
        hashed = min(hashed, admitted_tokens + taken)
    return hashed


@inlined()
def return_to_queue(state: State, r: int, slot: int, held, hashed, phase):
    """Free the KV of a running request, ``held`` tokens, and put it first in the queue.

    Those ``hashed`` can be found.
    """
    request = state.requests[slot]
    if state.engine[0].state_groups > 0:
        return_states(state, r, slot, hashed)
    return_blocks(state, r, slot, held, hashed, True)
    remove_running(state, r, slot)
    request.phase = phase
    request.preemptions += 1
    request.computed_tokens = 0
    state.replicas[r].preempted += 1
    push_waiting_front(state, r, slot)


@inlined()
def take_free_decode_blocks(state: State, r: int, spare_blocks):
    """Take the blocks of decodes if they leave ``spare_blocks``; return whether."""
    replica = state.replicas[r]
    needed = blocks_in_iteration(state, r, replica.step + 1)
    if needed + spare_blocks > replica.free_blocks:
        return False
    take_blocks(state, r, needed)
    return True


@inlined()
def take_decode_blocks(state: State, r: int, spare_blocks):
    """Take the blocks that decoding needs, preempting the newest requests for them.

    ``spare_blocks`` is 1 where each request wants a block to be free at its turn
    even if it needs none, else 0.
    """
    if not take_free_decode_blocks(state, r, spare_blocks):
        _make_room_for_decodes(state, r, spare_blocks)


@compiled()
def _make_room_for_decodes(state: State, r: int, spare_blocks):
    """Take blocks for decoding requests one by one, preempting the newest request.

    Called only when they do not all fit. Stops when a request preempts itself:
    it was the last.
    """
    replica = state.replicas[r]
    block_size = state.engine[0].block_size
    step = replica.step + 1
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        needed = 0
        if request.phase == Phase.DECODING:
            needed = int(computed_tokens(state, slot, step) % block_size == 0)
        if request.phase == Phase.DECODING and needed + spare_blocks > 0:
            while replica.free_blocks == 0:
                victim = replica.running_tail
                preempt(state, r, victim)
                if victim == slot:
                    return
            take_blocks(state, r, needed)
        slot = request.next


@inlined()
def iterations_to_completion(state: State, r: int):
    """Return in how many iterations the first decoding request gets its last token."""
    return state.requests[state.ends[r, 0]].end_step - state.replicas[r].step


@inlined()
def decode_horizon(state: State, r: int, spare_blocks):
    """Return for how many iterations all decode, the next one's blocks being taken.

    Until the first has its last token, or fewer than ``spare_blocks`` are free.
    """
    replica = state.replicas[r]
    more = iterations_to_completion(state, r) - 1
    free = replica.free_blocks - spare_blocks
    return 1 + iterations_that_fit(state, r, replica.step + 2, more, free)


@inlined()
def same_batch(state: State, r: int, spare_blocks, changes):
    """Return for how many iterations the batch that was put together runs.

    0 where there is none, 1 where it has prompts or the scheduler ``changes`` it, else
    as ``decode_horizon``.
    """
    replica = state.replicas[r]
    if replica.batch_tokens + replica.batch_extra_count > 0:
        return 1
    if replica.decode_count == 0:
        return 0
    return 1 if changes else decode_horizon(state, r, spare_blocks)


@inlined()
def iterations_until(state: State, r: int, moment_s, most):
    """Return the fewest iterations of the decodes that end at a moment, or ``most``."""
    replica = state.replicas[r]
    first_s, slope_s = decode_line(state, r)
    span_s = moment_s - max(replica.now_s, replica.gpu_s)
    return iterations_before(first_s, slope_s, span_s, most)


@inlined()
def add_chunk(state: State, r: int, slot: int, chunk):
    """Add ``chunk`` tokens of a prompt to the iteration; their blocks are taken."""
    replica = state.replicas[r]
    request = state.requests[slot]
    start = request.computed_tokens
    request.computed_tokens = start + chunk
    request.chunk_step = replica.step + 1
    request.chunk_tokens = chunk
    replica.prefill_tokens -= chunk
    log_entry(state, request.row, start, chunk)
    # One new token behind the prompt is computed like a decode, and costs as one.
    if chunk == 1 and start >= request.prompt_tokens:
        replica.batch_extra_count += 1
        replica.batch_extra_tokens += start + 1
    else:
        replica.batch_tokens += chunk
        replica.batch_attention += chunk * (start + 0.5 * chunk)
    if state.engine[0].prefix_caching == Caching.AT_ONCE:
        share_full_blocks(state, r, slot, request.computed_tokens)
    if request.computed_tokens == request.known_tokens:
        request.next_in_list = replica.joining
        replica.joining = slot
        if replica.prefilling == slot:
            replica.prefilling = NONE
    else:
        replica.prefilling = slot


@compiled()
def take_chunk_back(state: State, r: int, slot: int):
    """Take a prompt's chunk out of the iteration, not its blocks; return its tokens."""
    replica = state.replicas[r]
    request = state.requests[slot]
    chunk = request.chunk_tokens
    start = request.computed_tokens - chunk
    if chunk == 1 and start >= request.prompt_tokens:
        replica.batch_extra_count -= 1
        replica.batch_extra_tokens -= start + 1
    else:
        replica.batch_tokens -= chunk
        replica.batch_attention -= chunk * (start + 0.5 * chunk)
    if replica.joining == slot:
        replica.joining = request.next_in_list
    elif request.computed_tokens == request.known_tokens:
        other = replica.joining
        while state.requests[other].next_in_list != slot:
            other = state.requests[other].next_in_list
        state.requests[other].next_in_list = request.next_in_list
    return chunk


@inlined()
def continue_prefill(state: State, r: int, budget_tokens):
    """Schedule the next chunk of the unfinished prompt; return its tokens.

    It is the newest request, so it preempts itself when its blocks do not fit.
    """
    replica = state.replicas[r]
    slot = replica.prefilling
    request = state.requests[slot]
    chunk = min(request.known_tokens - request.computed_tokens, budget_tokens)
    if chunk <= 0:
        return 0
    block_size = state.engine[0].block_size
    after = request.computed_tokens + chunk
    blocks = 0
    if after > request.room_tokens:
        blocks = ceil_div(after, block_size)
        blocks -= ceil_div(request.computed_tokens, block_size)
    if blocks > replica.free_blocks:
        preempt(state, r, slot)
        return 0
    take_blocks(state, r, blocks)
    add_chunk(state, r, slot, chunk)
    return chunk


@inlined()
def continue_running(state: State, r: int, spare_blocks):
    """Let all decode and the unfinished prompt go on; return the budget that is left.

    ``spare_blocks`` as in ``take_decode_blocks``.
    """
    replica = state.replicas[r]
    take_decode_blocks(state, r, spare_blocks)
    log_decodes(state, r)
    budget = state.engine[0].max_num_batched_tokens - replica.decode_count
    if replica.prefilling != NONE:
        budget -= continue_prefill(state, r, budget)
    return budget


@inlined()
def may_start(state: State, r: int, slot: int):
    """Return whether there is a waiting request, a seat for it, and tokens to compute.

    ``slot`` is the request or NONE.
    """
    if slot == NONE or state.replicas[r].running_count >= state.engine[0].max_num_seqs:
        return False
    return state.requests[slot].phase != Phase.PREEMPTED_DRAINING


@inlined()
def admit(state: State, r: int, budget_tokens):
    """Admit the head of the queue if it fits; return the tokens scheduled.

    Its whole prompt, and the tokens generated before a preemption, must fit the
    free blocks, although only the blocks of its first chunk are taken, and those of
    bounded groups.
    """
    slot = state.replicas[r].waiting_head
    if not may_start(state, r, slot):
        return 0
    engine = state.engine[0]
    request = state.requests[slot]
    hits = 0
    hits_free = 0  # that nobody holds: free blocks too, which cannot serve twice
    if engine.prefix_caching != 0:
        hits, hits_free = count_hits(state, r, slot)
    needed = ceil_div(request.known_tokens, engine.block_size) - hits + hits_free
    if needed + request.bounded_blocks > state.replicas[r].free_blocks:
        return 0
    start = hits * engine.block_size
    chunk = min(request.known_tokens - start, budget_tokens)
    if engine.prefix_caching != 0:
        adopt_hits(state, r, slot, hits)
    blocks = ceil_div(start + chunk, engine.block_size) - hits
    take_blocks(state, r, blocks + request.bounded_blocks)
    start_prefill(state, r, slot, start, chunk)
    return chunk


@inlined()
def admit_with_room(
    state: State, r: int, slot: int, budget_tokens, room_tokens, spare_blocks
):
    """Admit a waiting request, or NONE, if it fits; return the tokens scheduled.

    It takes the blocks of ``room_tokens`` at once, and leaves ``spare_blocks`` free.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    if slot == NONE or replica.running_count >= engine.max_num_seqs:
        return 0
    request = state.requests[slot]
    chunk = min(request.known_tokens, budget_tokens)
    blocks = ceil_div(room_tokens, engine.block_size) + request.bounded_blocks
    if chunk <= 0 or replica.free_blocks - blocks < spare_blocks:
        return 0
    take_blocks(state, r, blocks)
    request.room_tokens = room_tokens
    start_prefill(state, r, slot, 0, chunk)
    tokens = replica.batch_tokens + replica.decode_count
    state.counts[Count.MOST_TOKENS] = max(state.counts[Count.MOST_TOKENS], tokens)
    return chunk


@inlined()
def admit_head_with_room(
    state: State, r: int, budget_tokens, room_tokens, spare_blocks
):
    """Do the same with the head of the queue."""
    slot = state.replicas[r].waiting_head
    return admit_with_room(state, r, slot, budget_tokens, room_tokens, spare_blocks)


@inlined()
def watermark_blocks(state: State):
    """Return the blocks to stay free at an admission, 1 % as in vLLM V0. [blocks]"""
    return state.engine[0].kv_blocks // 100


@inlined()
def start_prefill(state: State, r: int, slot: int, start, chunk):
    """Let a waiting request run: ``start`` tokens are cached, a chunk follows."""
    replica = state.replicas[r]
    request = state.requests[slot]
    request.computed_tokens = start
    replica.prefill_tokens -= start
    remove_waiting(state, r, slot)
    if math.isnan(request.scheduled_s):
        request.cached_tokens = start
    join(state, r, slot, chunk)


@inlined()
def join(state: State, r: int, slot: int, chunk):
    """Let a request run that stands in no list; a chunk of its prompt follows."""
    replica = state.replicas[r]
    request = state.requests[slot]
    push_running(state, r, slot)
    if math.isnan(request.scheduled_s):
        request.scheduled_s = replica.now_s
    request.phase = Phase.PREFILLING
    request.admission = replica.admissions
    replica.admissions += 1
    add_chunk(state, r, slot, chunk)
