"""vLLM V1's scheduler on a decode replica: it pulls the KV of prompts done elsewhere.

vLLM 0.32, v1/core/sched/scheduler.py with a KV connector that loads asynchronously, as
NIXL's (kv_connector/v1/nixl/pull_scheduler.py). A request that wants a copy waits its
turn. When there is a seat and its prompt fits the free blocks, less those that an
unfinished prompt still needs, it takes blocks and its copy begins; it takes no seat and
no token of the budget. Blocks that the prefix cache has here are not copied. Once the
copy is there it goes before all that wait: its full blocks can be found, and its last
prompt token is computed again, like a decode. Preempted it is computed here.

With ``recomputes=0`` the first token has come from the prefill replica, and the request
decodes at once, as in DistServe.

A prefill replica sends one copy at a time, and a decode replica receives one.
"""

import math

from capplan.simulator.batch import (
    admit_waiting,
    continue_running,
    iterations_until,
    same_batch,
)
from capplan.simulator.decoding import decode_again
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kvcache import (
    adopt_hits,
    ceil_div,
    count_hits,
    share_full_blocks,
    take_blocks,
)
from capplan.simulator.log import log_entry
from capplan.simulator.queues import push_running, remove_waiting, tell
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.state import NONE, SCHEDULE, Phase

RULES = Rules(
    {
        "block_s": Knob(1e-3, 0, 1e6),  # to copy a block
        "handshake_s": Knob(0.0, 0, 1e6),  # of each copy
        "recomputes": Knob(1, 0, 1),
    },
    async_scheduling=True,
    prefix_caching=True,
    # Prefill replica that has its KV, from 1, 0: it wants no copy; its slot there; when
    # the copy is here, 0: it has not begun.
    request_columns=("source", "slot", "ready_s"),
    # Requests that want a copy and have no blocks; until when one is received.
    replica_columns=("wanting", "link_s"),
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
    state.replica_memory[r, REPLICA.link_s] = ready_s
    sending[source] = ready_s
    state.replica_memory[r, REPLICA.wanting] -= 1.0
    tell(state, slot)
    return True


@inlined()
def _start(state, r, slot):
    """Let a request run whose KV is here."""
    replica = state.replicas[r]
    request = state.requests[slot]
    remove_waiting(state, r, slot)
    push_running(state, r, slot)
    request.admission = replica.admissions
    replica.admissions += 1
    replica.prefill_tokens -= 1
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
    _start(state, r, slot)
    request.phase = Phase.PREFILLING
    log_entry(state, request.row, request.prompt_tokens - 1, 1)
    replica.batch_extra_count += 1
    replica.batch_extra_tokens += request.prompt_tokens
    request.next_in_list = replica.joining
    replica.joining = slot


@inlined()
def _decode_at_once(state, r, slot):
    request = state.requests[slot]
    _start(state, r, slot)
    request.known_tokens = request.prompt_tokens + 1
    decode_again(state, r, slot)


@compiled()
def _start_copied(state, r, budget):
    """Let those run whose copy is here; return how many, and when the next one's is."""
    replica = state.replicas[r]
    seats = state.engine[0].max_num_seqs
    recomputes = state.settings[SETTING.recomputes] != 0
    count = 0
    next_s = math.inf
    slot = replica.waiting_head
    while slot != NONE:
        following = state.requests[slot].next
        ready_s = state.request_memory[slot, REQUEST.ready_s]
        if ready_s == 0.0 and state.requests[slot].preemptions == 0:
            break  # all that have begun stand before
        if ready_s > replica.now_s:
            next_s = min(next_s, ready_s)
        elif ready_s > 0.0 and count < budget and replica.running_count < seats:
            if recomputes:
                _compute_last_again(state, r, slot)
            else:
                _decode_at_once(state, r, slot)
            count += 1
        slot = following
    return count, next_s


@compiled()
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


@compiled(SCHEDULE)
def schedule(state, r):
    """Let all run that have their KV, then admit and pull in order of arrival."""
    replica = state.replicas[r]
    recomputes = state.settings[SETTING.recomputes] != 0
    next_s = math.inf
    if not recomputes:
        next_s = _start_copied(state, r, state.engine[0].max_num_seqs)[1]
    budget = continue_running(state, r, 0)
    if replica.preempted == 0:
        if recomputes:
            started, next_s = _start_copied(state, r, budget)
            budget -= started
        next_s = min(next_s, _admit_waiting(state, r, budget))
    ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    n = same_batch(state, r, 0, replica.preempted > 0 or ends)
    if next_s == math.inf:
        return n
    if n == 0:
        replica.idle_until_s = next_s
        return 0
    return iterations_until(state, r, next_s, n) if n > 1 else n
