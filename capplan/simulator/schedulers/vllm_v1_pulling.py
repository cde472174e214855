"""vLLM V1's scheduler on a decode replica: it pulls the KV of prompts done elsewhere.

vLLM 0.32, v1/core/sched/scheduler.py with a KV connector that loads asynchronously, as
NIXL's (kv_connector/v1/nixl/pull_scheduler.py): ``simulator/kv/copies.py``. A copy
begins when there is a seat and the prompt fits the free blocks, less those that an
unfinished prompt still needs. When it is here the last prompt token is computed again,
like a decode. Preempted the request is computed here.

With two iterations in flight a request whose last one is not collected is not
preempted, since a copy could overwrite what it still writes. Where it would have been,
the request that lacks a block sits the iteration out with all behind it.

With ``recomputes=0`` the first token has come from the prefill replica, and the request
decodes at once, as in DistServe.
"""

import math

from capplan.simulator.columns import (
    REPLICA_COLUMNS,
    REQUEST_COLUMNS,
    columns_up_to,
)
from capplan.simulator.engine.batch import (
    add_chunk,
    admit_waiting,
    continue_running,
    iterations_until,
    log_decodes,
    next_block,
    preempt,
    same_batch,
    take_free_decode_blocks,
)
from capplan.simulator.engine.decoding import decode_again, stop_decoding
from capplan.simulator.engine.log import log_entry
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.copies import (
    REPLICA,
    REQUEST,
    SETTING,
    SETTINGS,
    begin_copy,
    is_known,
    join_copied,
)
from capplan.simulator.kv.kvcache import ceil_div, count_hits, take_blocks
from capplan.simulator.schedulers import Rules
from capplan.simulator.state import NONE, SCHEDULE, Phase

RULES = Rules(
    SETTINGS,
    async_scheduling=True,
    prefix_caching=True,
    keeps_batch=True,
    request_columns=columns_up_to(REQUEST_COLUMNS, ["copies"]),
    replica_columns=columns_up_to(REPLICA_COLUMNS, ["copies"]),
)


@inlined()
def _blocks_wanted(state, r):
    """Return the blocks that the unfinished prompt of a replica will take."""
    slot = state.replicas[r].prefilling
    if slot == NONE:
        return 0
    request = state.requests[slot]
    block_size = state.engine[0].block_size
    held = ceil_div(request.computed_tokens, block_size)
    return ceil_div(request.known_tokens, block_size) - held


@inlined()
def _begin_copy(state, r, slot):
    """Begin the copy of a prompt if it fits; return whether it does."""
    hits = 0
    hits_free = 0
    if state.engine[0].prefix_caching != 0:
        hits, hits_free = count_hits(state, r, slot)
    return begin_copy(state, r, slot, hits, hits_free, _blocks_wanted(state, r))


@inlined()
def _compute_last_again(state, r, slot):
    """Let a request compute its last prompt token, which costs as a decode."""
    replica = state.replicas[r]
    request = state.requests[slot]
    join_copied(state, r, slot, NONE)
    request.phase = Phase.PREFILLING
    log_entry(state, request.row, request.prompt_tokens - 1, 1)
    replica.batch_extra_count += 1
    replica.batch_extra_tokens += request.prompt_tokens
    request.next_in_list = replica.joining
    replica.joining = slot


@inlined()
def _decode_at_once(state, r, slot):
    request = state.requests[slot]
    join_copied(state, r, slot, state.replicas[r].prefilling)
    request.known_tokens = request.prompt_tokens + 1
    # It is in no iteration in flight, as one that rested.
    rested = state.replica_memory[r, REPLICA.calls] - 1.0
    state.request_memory[slot, REQUEST.rested] = rested
    decode_again(state, r, slot)


@inlined()
def _start_copied(state, r, budget, idle):
    """Let those run whose copy is known.

    Return how many, when the next copy is here, and whether one is here unknown.
    ``idle``: nothing else can run, so that copies are known at once.
    """
    replica = state.replicas[r]
    seats = state.engine[0].max_num_seqs
    recomputes = state.settings[SETTING.recomputes] != 0
    count = 0
    next_s = math.inf
    unknown = False
    slot = replica.waiting_head  # inlined: a call takes as long as the rest
    while slot != NONE:
        following = state.requests[slot].next
        memory = state.request_memory[slot]
        ready_s = memory[REQUEST.ready_s]
        if ready_s == 0.0 and state.requests[slot].preemptions == 0:
            break  # all that have begun stand before
        if ready_s > replica.now_s:
            next_s = min(next_s, ready_s)
        elif ready_s > 0.0 and not is_known(state, r, memory, idle):
            unknown = True
        elif ready_s > 0.0 and count < budget and replica.running_count < seats:
            if recomputes:
                _compute_last_again(state, r, slot)
            else:
                _decode_at_once(state, r, slot)
            count += 1
        slot = following
    return count, next_s, unknown


@compiled()
def _start_all_copied(state, r):
    """Let those decode at once whose copy is known; return as ``_start_copied``."""
    return _start_copied(state, r, state.engine[0].max_num_seqs, False)


@inlined()
def _admit_waiting(state, r, budget):
    """Begin copies and admit, in order, until one does not fit.

    Return when the first of these copies is here.
    """
    replica = state.replicas[r]
    seats = state.engine[0].max_num_seqs
    next_s = math.inf
    slot = replica.waiting_head
    while slot != NONE and budget > 0 and replica.running_count < seats:
        following = state.requests[slot].next
        memory = state.request_memory[slot]
        if memory[REQUEST.source] == 0.0:
            chunk = admit_waiting(state, r, slot, budget)
            if chunk == 0:
                break
            budget -= chunk
        elif memory[REQUEST.ready_s] == 0.0:
            if not _begin_copy(state, r, slot):
                break
            next_s = min(next_s, memory[REQUEST.ready_s])
        slot = following
    return next_s


@compiled()
def _start_when_idle(state, r, budget):
    """Let those run whose copy is here, since nothing else can; then admit again."""
    started, next_s, _ = _start_copied(state, r, budget, True)
    return min(next_s, _admit_waiting(state, r, budget - started))


@inlined()
def _return_rested(state, r):
    """Let decodes that sat the last iteration out decode again."""
    slot = state.replicas[r].running_head
    while slot != NONE:
        if state.requests[slot].phase == Phase.PAUSED:
            state.replicas[r].prefill_tokens -= 1
            decode_again(state, r, slot)
        slot = state.requests[slot].next


@inlined()
def _rest(state, r, slot):
    """Keep a request out of the iteration, with its KV."""
    request = state.requests[slot]
    if request.phase == Phase.DRAINING:
        return
    calls = state.replica_memory[r, REPLICA.calls]
    state.replica_memory[r, REPLICA.rested] = calls
    state.request_memory[slot, REQUEST.rested] = calls
    if request.phase == Phase.DECODING:
        request.computed_tokens = stop_decoding(state, r, slot)
        state.replicas[r].prefill_tokens += 1
        request.phase = Phase.PAUSED


@inlined()
def _frees_blocks(state, r, blocks, slot):
    """Preempt until so many blocks are free for a request; return whether they are."""
    replica = state.replicas[r]
    calls = state.replica_memory[r, REPLICA.calls]
    while replica.free_blocks < blocks:
        victim = replica.running_tail
        rested = state.request_memory[victim, REQUEST.rested]
        if replica.in_flight > 0 and rested != calls - 1.0:
            return False
        preempt(state, r, victim)
        if victim == slot:
            return False
    return True


@compiled()
def _run_in_order(state, r):
    """Give each running request its tokens, in order; return the budget that is left.

    From one on that lacks a block, or finds no budget, requests sit the iteration out.
    """
    replica = state.replicas[r]
    block_size = state.engine[0].block_size
    budget = state.engine[0].max_num_batched_tokens
    waits = False
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        if waits:
            _rest(state, r, slot)
        elif request.phase == Phase.DECODING:
            blocks = next_block(state, slot)
            waits = not _frees_blocks(state, r, blocks, slot)
            if request.phase == Phase.WAITING:  # it was the last
                break
            if not waits and budget > 0:
                take_blocks(state, r, blocks)
                budget -= 1
            else:
                _rest(state, r, slot)
        elif replica.prefilling == slot:
            left = request.known_tokens - request.computed_tokens
            chunk = min(left, budget)
            blocks = ceil_div(request.computed_tokens + chunk, block_size)
            blocks -= ceil_div(request.computed_tokens, block_size)
            waits = not _frees_blocks(state, r, blocks, slot)
            if request.phase == Phase.WAITING:
                break
            if not waits and chunk > 0:
                take_blocks(state, r, blocks)
                add_chunk(state, r, slot, chunk)
                budget -= chunk
            else:
                _rest(state, r, slot)
        slot = request.next
    log_decodes(state, r)
    return budget


@inlined()
def _run_running(state, r):
    """Let all run that have their KV; return the budget that is left."""
    replica = state.replicas[r]
    if state.engine[0].depth == 1:
        return continue_running(state, r, 0)
    if state.replica_memory[r, REPLICA.rested] > 0:
        _return_rested(state, r)
    if replica.prefilling != NONE or not take_free_decode_blocks(state, r, 0):
        return _run_in_order(state, r)
    log_decodes(state, r)
    return state.engine[0].max_num_batched_tokens - replica.decode_count


@compiled(SCHEDULE)
def schedule(state, r):
    """Let all run that have their KV, then admit and pull in order of arrival."""
    replica = state.replicas[r]
    state.replica_memory[r, REPLICA.calls] += 1.0
    replica.idle_until_s = 0.0
    recomputes = state.settings[SETTING.recomputes] != 0
    next_s = math.inf
    unknown = False
    waits = replica.waiting_count > 0
    if waits and not recomputes:
        _, next_s, unknown = _start_all_copied(state, r)
    budget = _run_running(state, r)
    rested = state.replica_memory[r, REPLICA.rested]
    rests = rested > 0 and rested == state.replica_memory[r, REPLICA.calls]
    if replica.preempted > 0:
        budget = 0
    if waits and recomputes:
        started, next_s, unknown = _start_copied(state, r, budget, False)
        budget -= started
    if waits and replica.preempted == 0:
        next_s = min(next_s, _admit_waiting(state, r, budget))
    ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    changes = replica.preempted > 0 or ends or unknown or rests
    n = same_batch(state, r, 0, changes)
    if n == 0 and unknown and replica.in_flight == 0:
        next_s = _start_when_idle(state, r, budget)
        n = same_batch(state, r, 0, True)
    if next_s == math.inf:
        return n
    if replica.preempted == 0:  # else look again at once: there is a seat now
        replica.idle_until_s = next_s
    if state.engine[0].ranks > 0:  # the others' work is not known here
        return n
    return iterations_until(state, r, next_s, n) if n > 1 else n
