"""A decode pool's scheduler: it pulls the KV of prompts, then decodes.

As vLLM's with a NIXL connector: the head of the queue gets the blocks of its prompt,
and its copy starts at that boundary, one copy at a time. It takes no seat and no budget
until it is there; then its last prompt token is computed again.
"""

from capplan.simulator.batch import (
    iterations_until,
    join,
    log_decodes,
    same_batch,
    take_decode_blocks,
)
from capplan.simulator.jit import compiled
from capplan.simulator.kvcache import ceil_div, take_blocks
from capplan.simulator.queues import remove_waiting
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.state import NONE, SCHEDULE

RULES = Rules(
    {"block_s": Knob(1.0, 1e-9)},  # to copy a block
    request_columns=("fetched_s",),  # when its KV is there; 0: it has no blocks
    replica_columns=("link_s",),  # until when blocks are copied
)
SETTING = indices(RULES.settings)
REQUEST = indices(RULES.request_columns)
REPLICA = indices(RULES.replica_columns)


@compiled()
def _pull(state, r):
    replica = state.replicas[r]
    slot = replica.waiting_head
    while slot != NONE:
        if state.request_memory[slot, REQUEST.fetched_s] == 0.0:
            prompt_tokens = state.requests[slot].prompt_tokens
            blocks = ceil_div(prompt_tokens, state.engine[0].block_size)
            full = replica.running_count >= state.engine[0].max_num_seqs
            if full or blocks > replica.free_blocks:
                return
            take_blocks(state, r, blocks)
            start_s = max(replica.now_s, state.replica_memory[r, REPLICA.link_s])
            ready_s = start_s + blocks * state.settings[SETTING.block_s]
            state.request_memory[slot, REQUEST.fetched_s] = ready_s
            state.replica_memory[r, REPLICA.link_s] = ready_s
        slot = state.requests[slot].next


@compiled()
def _join_pulled(state, r):
    """Let those run whose KV is there; return when the next one's is, or 0."""
    replica = state.replicas[r]
    next_s = 0.0
    slot = replica.waiting_head
    while slot != NONE:
        request = state.requests[slot]
        following = request.next
        fetched_s = state.request_memory[slot, REQUEST.fetched_s]
        seated = replica.running_count < state.engine[0].max_num_seqs
        if 0.0 < fetched_s <= replica.now_s and seated:
            remove_waiting(state, r, slot)
            request.computed_tokens = request.prompt_tokens - 1
            replica.prefill_tokens -= request.computed_tokens
            join(state, r, slot, 1)
        elif fetched_s > replica.now_s and (next_s == 0.0 or fetched_s < next_s):
            next_s = fetched_s
        slot = following
    return next_s


@compiled(SCHEDULE)
def schedule(state, r):
    """Let all decode; pull, and let those join whose KV is there."""
    replica = state.replicas[r]
    take_decode_blocks(state, r, 0)
    log_decodes(state, r)
    _pull(state, r)
    next_s = _join_pulled(state, r)
    n = same_batch(state, r, 0, replica.preempted > 0)
    if next_s == 0.0:
        return n
    if n == 0:
        replica.idle_until_s = next_s
        return 0
    return iterations_until(state, r, next_s, n)
