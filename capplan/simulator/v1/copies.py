"""KV that a decode replica of vLLM V1 pulls from prefill replicas.

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

from capplan.simulator.engine.batch import iterations_until
from capplan.simulator.engine.decoding import decode_again, is_flying
from capplan.simulator.engine.gaps import is_resuming
from capplan.simulator.engine.log import log_entry
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.copies import (
    REPLICA,
    REQUEST,
    SETTING,
    begin_copy,
    is_known,
    join_copied,
)
from capplan.simulator.kv.kvcache import ceil_div, count_hits
from capplan.simulator.state import NONE, Phase


@inlined()
def begin_call(state, r):
    """Count a call of the scheduler; let requests decode at once whose copy is known.

    Where the first token has come from the prefill replica.
    """
    replica = state.replicas[r]
    state.replica_memory[r, REPLICA.calls] += 1.0
    state.replica_memory[r, REPLICA.unknown] = 0.0
    replica.idle_until_s = math.inf  # until the next copy is here
    if replica.waiting_count > 0 and state.settings[SETTING.recomputes] == 0:
        _decode_copied(state, r)


@compiled()
def _decode_copied(state, r):
    _start_copied(state, r, state.engine[0].max_num_seqs, False)


@inlined()
def compute_copied(state, r):
    """Let requests compute their last prompt token whose copy is known."""
    replica = state.replicas[r]
    if replica.waiting_count > 0 and state.settings[SETTING.recomputes] != 0:
        budget = 0 if replica.preempted > 0 else replica.left_tokens
        replica.left_tokens -= _start_copied(state, r, budget, False)


@inlined()
def _start_copied(state, r, budget, idle):
    """Let those run whose copy is known; return how many.

    Note when the next copy is here, and whether one is here unknown. ``idle``: nothing
    else can run, so that copies are known at once.
    """
    replica = state.replicas[r]
    seats = state.engine[0].max_num_seqs
    recomputes = state.settings[SETTING.recomputes] != 0
    count = 0
    next_s = math.inf
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
            state.replica_memory[r, REPLICA.unknown] = 1.0
        elif ready_s > 0.0 and count < budget and replica.running_count < seats:
            if recomputes:
                _compute_last_again(state, r, slot)
            else:
                _decode_at_once(state, r, slot)
            count += 1
        slot = following
    replica.idle_until_s = next_s
    return count


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
    decode_again(state, r, slot)


@inlined()
def outrun_prompt(state, r):
    """Return whether requests stand behind an unfinished prompt that sat out."""
    replica = state.replicas[r]
    return replica.prefilling != NONE and replica.prefilling != replica.running_tail


@compiled()
def may_not_preempt(state, r):
    """Return whether the request to preempt is in the iteration in flight."""
    replica = state.replicas[r]
    if not is_flying(replica):
        return False
    slot = replica.running_tail
    request = state.requests[slot]
    if request.phase == Phase.PREFILLING:
        return request.chunk_step == replica.step
    return request.phase != Phase.DECODING or not is_resuming(state, r, slot)


@inlined()
def wants_copy(state, slot):
    """Return whether the KV of a waiting request comes from a prefill replica."""
    return state.request_memory[slot, REQUEST.source] != 0.0


@inlined()
def pull(state, r, slot):
    """Begin the copy of a request if it fits; return whether it does, or has begun."""
    replica = state.replicas[r]
    memory = state.request_memory[slot]
    if memory[REQUEST.ready_s] != 0.0:
        return True
    if replica.running_count >= state.engine[0].max_num_seqs:
        return False
    hits = 0
    hits_free = 0
    if state.engine[0].prefix_caching != 0:
        hits, hits_free = count_hits(state, r, slot)
    begins = begin_copy(state, r, slot, hits, hits_free, _blocks_wanted(state, r))
    if begins:
        replica.idle_until_s = min(replica.idle_until_s, memory[REQUEST.ready_s])
    return begins


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
def copies_change(state, r):
    """Return whether a copy is found next, or a request goes on that sits out."""
    replica = state.replicas[r]
    unknown = state.replica_memory[r, REPLICA.unknown] != 0.0
    return unknown or replica.sitting > 0 or replica.prefilling != NONE


@inlined()
def start_idle(state, r):
    """Let those run whose copy is here, if one is: an idle replica knows it at once."""
    replica = state.replicas[r]
    if state.replica_memory[r, REPLICA.unknown] == 0.0 or replica.in_flight > 0:
        return False
    budget = 0 if replica.preempted > 0 else replica.left_tokens
    replica.left_tokens -= _start_copied(state, r, budget, True)
    return True


@inlined()
def until_next_copy(state, r, horizon):
    """Return for how many iterations the batch runs if none but copies come.

    Where nothing runs, the replica is idle until the next is here.
    """
    replica = state.replicas[r]
    next_s = replica.idle_until_s
    if next_s == math.inf or replica.preempted > 0:
        replica.idle_until_s = 0.0  # preempted: there is a seat now, look at once
    if next_s == math.inf or state.engine[0].ranks > 0 or horizon <= 1:
        return horizon  # of ranks the others' work is not known here
    return iterations_until(state, r, next_s, horizon)
