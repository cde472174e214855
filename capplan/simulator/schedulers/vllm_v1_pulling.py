"""vLLM V1's scheduler on a decode replica: it pulls the KV of prompts done elsewhere.

vLLM 0.32, v1/core/sched/scheduler.py with a KV connector that loads asynchronously, as
NIXL's (kv_connector/v1/nixl/pull_scheduler.py). A request that wants a copy waits its
turn. When there is a seat and its prompt fits the free blocks, less those that an
unfinished prompt still needs, it takes blocks and its copy begins; it takes no seat and
no token of the budget. Blocks that the prefix cache has here are not copied. Once the
scheduler knows of the copy it goes before all that wait: its full blocks can be found,
and its last prompt token is computed again, like a decode. Preempted it is computed
here.

The workers look for copies when they start an iteration, and tell with its result
(``launches=1``): a copy that came during iteration k is found in k + 1. An idle replica
knows at once, and with ``launches=0`` every replica at its next scheduling.

With two iterations in flight a request whose last one is not collected is not
preempted, since a copy could overwrite what it still writes. Where it would have been,
the request that lacks a block sits the iteration out with all behind it.

With ``recomputes=0`` the first token has come from the prefill replica, and the request
decodes at once, as in DistServe.

A prefill replica sends one copy at a time, and a decode replica receives one.
"""

import math

from capplan.simulator.batch import (
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
from capplan.simulator.decoding import decode_again, stop_decoding
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kvcache import (
    adopt_hits,
    ceil_div,
    count_hits,
    share_full_blocks,
    take_blocks,
)
from capplan.simulator.log import log_entry
from capplan.simulator.queues import join_running, remove_waiting, tell
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.state import NONE, SCHEDULE, Phase

RULES = Rules(
    {
        "block_s": Knob(1e-3, 0, 1e6),  # to copy a block
        "handshake_s": Knob(0.0, 0, 1e6),  # of each copy
        "recomputes": Knob(1, 0, 1),
        "launches": Knob(1, 0, 1),
    },
    async_scheduling=True,
    prefix_caching=True,
    keeps_batch=True,
    request_columns=(
        "source",  # prefill replica that has its KV, from 1; 0: it wants no copy
        "slot",  # its slot there
        "ready_s",  # when the copy is here; 0: it has not begun
        "known",  # call of the scheduler from which it is known; 0: not yet looked for
        "rested",  # call at which it sat the iteration out
    ),
    replica_columns=(
        "wanting",  # requests that want a copy and have no blocks
        "link_s",  # until when a copy is received
        "calls",  # of the scheduler so far
        "rested",  # the last one at which a request sat out
    ),
)
SETTING = indices(RULES.settings)
REQUEST = indices(RULES.request_columns)
REPLICA = indices(RULES.replica_columns)
SENDING = 1
"""Row of ``State.scratch``: until when each prefill replica sends. [s]"""


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


@compiled()
def _begin_copy(state, r, slot):
    """Take the blocks of a prompt and begin its copy; return whether they fit."""
    replica = state.replicas[r]
    request = state.requests[slot]
    memory = state.request_memory[slot]
    hits = 0
    hits_free = 0
    if state.engine[0].prefix_caching != 0:
        hits, hits_free = count_hits(state, r, slot)
    blocks = ceil_div(request.prompt_tokens, state.engine[0].block_size) - hits
    needed = blocks + hits_free + request.bounded_blocks
    if needed + _blocks_wanted(state, r) > replica.free_blocks:
        return False
    if state.engine[0].prefix_caching != 0:
        adopt_hits(state, r, slot, hits)
    take_blocks(state, r, blocks + request.bounded_blocks)
    sending = state.scratch[SENDING]
    source = int(memory[REQUEST.source]) - 1
    link_s = max(state.replica_memory[r, REPLICA.link_s], sending[source])
    begin_s = max(replica.now_s, link_s)
    ready_s = begin_s + state.settings[SETTING.handshake_s]
    ready_s += blocks * state.settings[SETTING.block_s]
    memory[REQUEST.ready_s] = ready_s
    memory[REQUEST.known] = 0.0
    state.replica_memory[r, REPLICA.link_s] = ready_s
    sending[source] = ready_s
    state.replica_memory[r, REPLICA.wanting] -= 1.0
    tell(state, slot)
    return True


@inlined()
def _start(state, r, slot, unfinished):
    """Let a request run whose KV is here, in front of an unfinished prompt."""
    request = state.requests[slot]
    remove_waiting(state, r, slot)
    join_running(state, r, slot, unfinished)
    state.replicas[r].prefill_tokens -= 1
    request.computed_tokens = request.prompt_tokens
    state.request_memory[slot, REQUEST.source] = 0.0
    state.request_memory[slot, REQUEST.ready_s] = 0.0
    if state.engine[0].prefix_caching != 0:
        share_full_blocks(state, r, slot, request.prompt_tokens)


@inlined()
def _compute_last_again(state, r, slot):
    """Let a request compute its last prompt token, which costs as a decode."""
    replica = state.replicas[r]
    request = state.requests[slot]
    _start(state, r, slot, NONE)
    request.phase = Phase.PREFILLING
    log_entry(state, request.row, request.prompt_tokens - 1, 1)
    replica.batch_extra_count += 1
    replica.batch_extra_tokens += request.prompt_tokens
    request.next_in_list = replica.joining
    replica.joining = slot


@inlined()
def _decode_at_once(state, r, slot):
    request = state.requests[slot]
    _start(state, r, slot, state.replicas[r].prefilling)
    request.known_tokens = request.prompt_tokens + 1
    # It is in no iteration in flight, as one that rested.
    rested = state.replica_memory[r, REPLICA.calls] - 1.0
    state.request_memory[slot, REQUEST.rested] = rested
    decode_again(state, r, slot)


@inlined()
def _is_known(state, r, memory, idle):
    """Return whether the scheduler knows of a copy that is here."""
    calls = state.replica_memory[r, REPLICA.calls]
    if memory[REQUEST.known] == 0.0:
        later = state.settings[SETTING.launches] * state.engine[0].depth
        memory[REQUEST.known] = calls + later
    return idle or memory[REQUEST.known] <= calls


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
        elif ready_s > 0.0 and not _is_known(state, r, memory, idle):
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


@compiled()
def _start_when_idle(state, r, budget):
    """Let those run whose copy is here: nothing else can."""
    _start_copied(state, r, budget, True)


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
    if waits and replica.preempted == 0:
        if recomputes:
            started, next_s, unknown = _start_copied(state, r, budget, False)
            budget -= started
        next_s = min(next_s, _admit_waiting(state, r, budget))
    ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    changes = replica.preempted > 0 or ends or unknown or rests
    n = same_batch(state, r, 0, changes)
    if n == 0 and unknown and replica.in_flight == 0:
        _start_when_idle(state, r, budget)
        n = same_batch(state, r, 0, True)
    if next_s == math.inf:
        return n
    if n == 0:
        if replica.preempted == 0:  # else look again at once: there is a seat now
            replica.idle_until_s = next_s
        return 0
    return iterations_until(state, r, next_s, n) if n > 1 else n
