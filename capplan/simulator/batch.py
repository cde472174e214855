"""Steps of a scheduler: admit a request, continue a prompt, preempt.

A scheduler calls these to put together the next iteration; ``replica.py`` then
runs it. Each is one rule of vLLM V1's ``Scheduler.schedule`` (0.32,
v1/core/sched/scheduler.py).
"""

import math

from capplan.simulator.gaps import longest_gap_s
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kvcache import (
    adopt_hits,
    ceil_div,
    count_hits,
    return_blocks,
    share_full_blocks,
    take_blocks,
)
from capplan.simulator.queues import (
    push_running,
    push_waiting_front,
    remove_end,
    remove_running,
    remove_waiting,
)
from capplan.simulator.state import NONE, Count, Phase


@inlined()
def residue(state, slot):
    """Return the column of ``residues`` that counts a decoding request.

    Its KV length less the iteration number, which stays the same while it
    decodes: both grow by one.
    """
    request = state.requests[slot]
    block_size = state.residues.shape[1]
    return (
        request.prompt_tokens + request.output_tokens - request.end_step - 2
    ) % block_size


@inlined()
def computed_tokens(state, slot, step):
    """Return the KV tokens that a decoding request holds before iteration ``step``."""
    request = state.requests[slot]
    last = request.prompt_tokens + request.output_tokens - 1
    return last - (request.end_step - step) - 1


@inlined()
def log_entry(state, row, computed, scheduled):
    """Log one request of the iteration, if iterations are recorded."""
    if state.engine[0].recording == 0:
        return
    entry = state.entries[state.counts[Count.ENTRIES]]
    state.counts[Count.ENTRIES] += 1
    entry.row = row
    entry.computed = computed
    entry.scheduled = scheduled


@inlined()
def log_decodes(state, r):
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


@inlined()
def leave_decoding(state, r, slot):
    """Take a request out of the counts of decoding requests."""
    replica = state.replicas[r]
    state.residues[r, residue(state, slot)] -= 1
    context = computed_tokens(state, slot, replica.step + 1) + 1
    replica.context_tokens -= context
    replica.decode_count -= 1


@compiled()
def preempt(state, r, slot):
    """Free a running request's KV and put it first in the queue.

    When readmitted it computes its prompt and generated tokens again
    (vLLM's "recompute").
    """
    replica = state.replicas[r]
    request = state.requests[slot]
    if request.phase == Phase.PREFILLING:
        held = hashed = request.computed_tokens
        replica.prefilling = NONE
        replica.prefill_tokens += held
        phase = Phase.WAITING
    else:
        step = replica.step + 1
        held = computed_tokens(state, slot, step)
        if request.phase == Phase.DECODING:
            remove_end(state, r, slot)
            leave_decoding(state, r, slot)
            gap_s = longest_gap_s(state, r, request.token_step)
            request.longest_gap_s = max(request.longest_gap_s, gap_s)
            replica.prefill_tokens += held + 1
            phase = Phase.WAITING
        else:
            held = request.prompt_tokens + request.output_tokens - 1
            phase = Phase.PREEMPTED_DRAINING
            replica.preempted_draining += 1
        # The engine hashes a token when it collects it; while the iteration of
        # the newest is in flight, the block that it fills cannot be found.
        hashed = held
        if replica.in_flight > 0 and held > request.known_tokens:
            hashed -= 1
        request.known_tokens = held + 1
        request.last_token_s = replica.gpu_s
    return_blocks(state, r, slot, held, hashed, True)
    remove_running(state, r, slot)
    request.phase = phase
    request.preemptions += 1
    request.computed_tokens = 0
    replica.preempted += 1
    push_waiting_front(state, r, slot)


@compiled()
def make_room_for_decodes(state, r):
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
        if (
            request.phase == Phase.DECODING
            and computed_tokens(state, slot, step) % block_size == 0
        ):
            while replica.free_blocks == 0:
                victim = replica.running_tail
                preempt(state, r, victim)
                if victim == slot:
                    return
            take_blocks(state, r, 1)
        slot = request.next


@inlined()
def add_chunk(state, r, slot, chunk):
    """Add ``chunk`` tokens of a prompt to the iteration; their blocks are taken."""
    replica = state.replicas[r]
    request = state.requests[slot]
    start = request.computed_tokens
    request.computed_tokens = start + chunk
    replica.prefill_tokens -= chunk
    log_entry(state, request.row, start, chunk)
    # One new token behind the prompt is computed like a decode, and costs as one.
    if chunk == 1 and start >= request.prompt_tokens:
        replica.batch_extra_count += 1
        replica.batch_extra_tokens += start + 1
    else:
        replica.batch_tokens += chunk
        replica.batch_attention += chunk * (start + 0.5 * chunk)
    if state.engine[0].prefix_caching != 0:
        share_full_blocks(state, r, slot, request.computed_tokens)
    if request.computed_tokens == request.known_tokens:
        request.next_joining = replica.joining
        replica.joining = slot
        replica.prefilling = NONE
    else:
        replica.prefilling = slot


@inlined()
def continue_prefill(state, r, budget_tokens):
    """Schedule the next chunk of the unfinished prompt; return its tokens.

    It is the newest request, so it preempts itself when its blocks do not fit.
    """
    replica = state.replicas[r]
    slot = replica.prefilling
    request = state.requests[slot]
    chunk = min(request.known_tokens - request.computed_tokens, budget_tokens)
    if chunk == 0:
        return 0
    block_size = state.engine[0].block_size
    blocks = ceil_div(request.computed_tokens + chunk, block_size) - ceil_div(
        request.computed_tokens, block_size
    )
    if blocks > replica.free_blocks:
        preempt(state, r, slot)
        return 0
    take_blocks(state, r, blocks)
    add_chunk(state, r, slot, chunk)
    return chunk


@inlined()
def admit(state, r, budget_tokens):
    """Admit the head of the queue if it fits; return the tokens scheduled.

    Its whole prompt, and the tokens generated before a preemption, must fit the
    free blocks, although only the blocks of its first chunk are taken, and those of
    bounded groups.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    slot = replica.waiting_head
    if slot == NONE or replica.running_count >= engine.max_num_seqs:
        return 0
    request = state.requests[slot]
    if request.phase == Phase.PREEMPTED_DRAINING:
        return 0
    hits = 0
    hits_free = 0
    if engine.prefix_caching != 0:
        hits, hits_free = count_hits(state, r, slot)
    # Hits that nobody else holds are free blocks too: they cannot serve twice.
    needed = ceil_div(request.known_tokens, engine.block_size) - hits + hits_free
    if needed + request.bounded_blocks > replica.free_blocks:
        return 0
    remove_waiting(state, r, slot)
    push_running(state, r, slot)
    start = hits * engine.block_size
    chunk = min(request.known_tokens - start, budget_tokens)
    if engine.prefix_caching != 0:
        adopt_hits(state, r, slot, hits)
    blocks = ceil_div(start + chunk, engine.block_size) - hits
    take_blocks(state, r, blocks + request.bounded_blocks)
    if math.isnan(request.scheduled_s):
        request.scheduled_s = replica.now_s
        request.cached_tokens = start
    request.phase = Phase.PREFILLING
    request.computed_tokens = start
    replica.prefill_tokens -= start
    request.admission = replica.admissions
    replica.admissions += 1
    add_chunk(state, r, slot, chunk)
    return chunk
