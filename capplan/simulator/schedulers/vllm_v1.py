"""vLLM V1's scheduler: running requests first, then the queue in arrival order.

vLLM 0.32, v1/core/sched/scheduler.py, ``Scheduler.schedule``, without
speculative decoding, LoRA, encoders and KV connectors.
"""

from capplan.simulator.batch import (
    admit,
    continue_prefill,
    log_decodes,
    make_room_for_decodes,
)
from capplan.simulator.jit import compiled
from capplan.simulator.kvcache import (
    blocks_in_iteration,
    iterations_that_fit,
    take_blocks,
)
from capplan.simulator.state import NONE, SCHEDULE


@compiled(SCHEDULE)
def schedule(state, r):
    """Give each running request its tokens, then admit while budget is left."""
    replica = state.replicas[r]
    needed = blocks_in_iteration(state, r, replica.step + 1)
    if needed <= replica.free_blocks:
        take_blocks(state, r, needed)
    else:
        make_room_for_decodes(state, r)
    log_decodes(state, r)

    budget = state.engine[0].max_num_batched_tokens - replica.decode_count
    chunks = 0
    if replica.prefilling != NONE:
        budget -= continue_prefill(state, r, budget)
        chunks += replica.batch_tokens + replica.batch_extra_count
    if replica.preempted == 0:
        while budget > 0:
            chunk = admit(state, r, budget)
            if chunk == 0:
                break
            chunks += chunk
            budget -= chunk

    if chunks > 0:
        return 1
    if replica.decode_count == 0:
        return 0
    if replica.preempted > 0:
        return 1
    # Only decoding, and the queue's head waits for a request to finish: the
    # same batch runs until then, or until the KV blocks are used up.
    horizon = state.requests[state.ends[r, 0]].end_step - replica.step
    if replica.waiting_count > 0 and replica.oldest_finishing != NONE:
        return 1
    return 1 + iterations_that_fit(state, r, replica.step + 2, horizon - 1)
