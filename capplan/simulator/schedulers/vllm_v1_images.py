"""vLLM V1's scheduler with images, which no user names.

vLLM 0.32, v1/core/sched/scheduler.py, ``Scheduler.schedule``: a chunk ends before an
image that cannot be encoded yet, and requests behind it go on. So several prompts may
be unfinished, and one of them may take the token budget of a request behind it that
decodes, which sits the iteration out.

It runs its iterations itself and returns -1: images are encoded before the forward.
"""

from capplan.simulator.engine.batch import (
    add_chunk,
    continue_running,
    may_start,
    preempt,
    same_batch,
    start_waiting,
)
from capplan.simulator.engine.decoding import computed_tokens, end_sitting, sit_out
from capplan.simulator.engine.images import (
    MEMORY,
    REQUEST,
    SETTING,
    encode_images,
    fit_images,
    leave_collected,
    leave_images,
    look_from,
    note_run,
)
from capplan.simulator.engine.images import RULES as RULES
from capplan.simulator.engine.jump import jump_length
from capplan.simulator.engine.log import log_entry
from capplan.simulator.engine.replica import batch_of, iteration_time_s, run_batch
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import ceil_div, count_hits, take_blocks
from capplan.simulator.state import NONE, SCHEDULE, Phase


@compiled()
def _make_room_for(state, r, slot, blocks):
    """Preempt the newest requests until so many blocks are free; take them.

    Return False where the request itself is preempted.
    """
    replica = state.replicas[r]
    while replica.free_blocks < blocks:
        victim = replica.running_tail
        request = state.requests[victim]
        if request.phase == Phase.PREFILLING:
            state.replica_memory[r, MEMORY.unfinished] -= 1.0
        leave_images(state, r, victim, request.prompt_tokens)
        preempt(state, r, victim)
        if victim == slot:
            return False
    take_blocks(state, r, blocks)
    return True


@inlined()
def _run_chunk(state, r, slot, chunk, first):
    """Note a chunk of the iteration, and encode its images from ``first`` on."""
    encode_images(state, r, slot, first)
    note_run(state, r, slot)
    request = state.requests[slot]
    memory = state.replica_memory[r]
    if request.computed_tokens < request.known_tokens:
        return
    memory[MEMORY.unfinished] -= 1.0
    images = state.request_memory[slot]
    fresh = request.known_tokens == request.prompt_tokens
    images[REQUEST.ended] = images[REQUEST.newest] if fresh else 0.0


@compiled()
def _continue_prompt(state, r, slot, budget):
    """Schedule the next chunk of a prompt; return its tokens, NONE if preempted."""
    request = state.requests[slot]
    start = request.computed_tokens
    first = int(state.request_memory[slot, REQUEST.end])
    chunk = min(request.known_tokens - start, budget)
    chunk = fit_images(state, r, slot, start, chunk)
    if chunk == 0:
        return 0
    block_size = state.engine[0].block_size
    blocks = ceil_div(start + chunk, block_size) - ceil_div(start, block_size)
    if not _make_room_for(state, r, slot, blocks):
        return NONE
    add_chunk(state, r, slot, chunk)
    _run_chunk(state, r, slot, chunk, first)
    return chunk


@inlined()
def _sit_out(state, r, slot):
    """Let the decoding requests from one on sit the iteration out; return how many."""
    count = 0
    while slot != NONE:
        request = state.requests[slot]
        if request.phase == Phase.DECODING:
            sit_out(state, r, slot)
            count += 1
        slot = request.next
    return count


@compiled()
def _go_on(state, r):
    """Give running requests their tokens; return those left and how many sit out."""
    replica = state.replicas[r]
    budget = state.engine[0].max_num_batched_tokens
    slot = replica.running_head
    while slot != NONE and budget > 0:
        request = state.requests[slot]
        if request.phase == Phase.DECODING:
            held = computed_tokens(state, slot, replica.step + 1)
            needed = int(held % state.engine[0].block_size == 0)
            if not _make_room_for(state, r, slot, needed):
                return budget, 0
            log_entry(state, request.row, held, 1)
            note_run(state, r, slot)
            budget -= 1
        elif request.phase == Phase.PREFILLING:
            chunk = _continue_prompt(state, r, slot, budget)
            if chunk == NONE:
                return budget, 0
            budget -= chunk
        slot = request.next
    return budget, _sit_out(state, r, slot)


@inlined()
def _admit(state, r, budget):
    """Admit the head of the queue if it and its images fit; return its tokens."""
    replica = state.replicas[r]
    engine = state.engine[0]
    memory = state.replica_memory[r]
    slot = replica.waiting_head
    if not may_start(state, r, slot):
        return 0
    request = state.requests[slot]
    hits = 0
    hits_free = 0
    if engine.prefix_caching != 0:
        hits, hits_free = count_hits(state, r, slot)
    start = hits * engine.block_size
    look_from(state, slot, start)
    first = int(state.request_memory[slot, REQUEST.end])
    chunk = min(request.known_tokens - start, budget)
    chunk = fit_images(state, r, slot, start, chunk)
    if chunk == 0:
        return 0
    if not start_waiting(state, r, slot, hits, hits_free, chunk):
        # Each try evicts images for those of its chunk: another chunk's, where blocks
        # that it finds have been taken.
        if hits_free > 0 and state.request_memory[slot, REQUEST.count] > 0.0:
            memory[MEMORY.may_lose] = 1.0
        leave_images(state, r, slot, request.prompt_tokens)
        return 0
    memory[MEMORY.unfinished] += 1.0
    _run_chunk(state, r, slot, chunk, first)
    return chunk


@inlined()
def _run(state, r, horizon):
    """Run the iteration and those after it, up to ``horizon`` in all."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    b, context = batch_of(state, r)
    first_s, slope_s = iteration_time_s(state, r, b, context)
    if memory[MEMORY.budget] < state.settings[SETTING.cache_tokens]:
        shared_s = memory[MEMORY.encode_s] / state.settings[SETTING.encoders]
        shared_s = max(shared_s, memory[MEMORY.longest_s])
        shared_s += state.settings[SETTING.call_s]
        first_s += max(shared_s, state.settings[SETTING.least_s])
    start_s = max(replica.now_s, replica.gpu_s)
    n = 1
    if replica.batch_tokens == 0:
        span_s = replica.until_s - start_s
        n = jump_length(state.engine[0].depth, first_s, slope_s, span_s, horizon)
    memory[MEMORY.runs] += 1.0
    run_batch(state, r, b, context, start_s, first_s, slope_s, n)


@inlined()
def _horizon(state, r, one_by_one):
    """Return for how many iterations the batch runs; 0 where there is none."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    changes = one_by_one or replica.preempted > 0 or ends
    changes = changes or memory[MEMORY.held_tokens] + memory[MEMORY.unfinished] > 0.0
    return same_batch(state, r, 0, changes or memory[MEMORY.may_lose] != 0.0)


@compiled(SCHEDULE)
def schedule(state, r):
    """Give each running request its tokens, admit those that fit, encode, and run."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    memory[MEMORY.budget] = state.settings[SETTING.cache_tokens]
    memory[MEMORY.encode_s] = 0.0
    memory[MEMORY.longest_s] = 0.0
    memory[MEMORY.may_lose] = 0.0
    sitting = 0
    one_by_one = memory[MEMORY.unfinished] + memory[MEMORY.held_tokens] > 0.0
    if one_by_one:
        budget, sitting = _go_on(state, r)
    else:
        budget = continue_running(state, r, 0)
    if replica.preempted == 0:
        while budget > 0:
            chunk = _admit(state, r, budget)
            if chunk == 0:
                break
            budget -= chunk
    horizon = _horizon(state, r, one_by_one)
    if horizon > 0:
        _run(state, r, min(horizon, state.engine[0].longest_jump))
    if sitting > 0:
        end_sitting(state, r)
    full = replica.in_flight == state.engine[0].depth
    if full or (horizon == 0 and replica.in_flight > 0):
        leave_collected(state, r)
    return -1 if horizon > 0 else 0
