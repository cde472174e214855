"""vLLM V1's scheduler with ranks that take prompts in the same steps, unnamed.

vLLM 0.32, ``--prefill-schedule-interval N``, v1/core/sched/scheduler.py: in steps that
are no multiple of N a rank with a request whose prompt is done defers its prompts,
unless some were left waiting when it last did not. Then neither the unfinished prompt
goes on nor is one admitted but a last token behind what the prefix cache has.
"""

from capplan.deployment.policy import Rules, indices
from capplan.simulator.engine.batch import (
    admit,
    continue_running,
    log_decodes,
    same_batch,
    take_decode_blocks,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import count_hits
from capplan.simulator.state import NONE, SCHEDULE

RULES = Rules(
    async_scheduling=True,
    prefix_caching=True,
    in_order=True,
    replica_columns=(
        "capacity_bound",
    ),  # 1: prompts were left waiting, none is put off
)
MEMORY = indices(RULES.replica_columns)


@inlined()
def _defers(state, r):
    """Return whether the iteration is to have no prompts."""
    replica = state.replicas[r]
    done = replica.running_count - int(replica.prefilling != NONE)
    bound = state.replica_memory[r, MEMORY.capacity_bound] != 0.0
    return replica.throttled != 0 and not bound and done > 0


@inlined()
def _last_token_is_left(state, r):
    """Return whether the prefix cache has all of the queue's head but a token."""
    slot = state.replicas[r].waiting_head
    if slot == NONE:
        return False
    known = state.requests[slot].known_tokens
    if known == 1 or state.engine[0].prefix_caching == 0:
        return known == 1
    hits, _ = count_hits(state, r, slot)
    return hits * state.engine[0].block_size == known - 1


@compiled(SCHEDULE)
def schedule(state, r):
    """Give each running request its tokens, admit while budget is left, or defer."""
    replica = state.replicas[r]
    defers = _defers(state, r)
    if defers:
        take_decode_blocks(state, r, 0)
        log_decodes(state, r)
        budget = state.engine[0].max_num_batched_tokens - replica.decode_count
    else:
        budget = continue_running(state, r, 0)
    if replica.preempted == 0:
        while budget > 0 and (not defers or _last_token_is_left(state, r)):
            chunk = admit(state, r, budget)
            if chunk == 0:
                break
            budget -= chunk
        if not defers:
            bound = 1.0 if replica.waiting_count > 0 else 0.0
            state.replica_memory[r, MEMORY.capacity_bound] = bound
    ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    return same_batch(state, r, 0, replica.preempted > 0 or ends)
