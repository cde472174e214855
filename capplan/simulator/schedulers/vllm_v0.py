"""vLLM V0: prompts first, in iterations of their own; then all decode.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention", SOSP 2023; as in vLLM 0.4, core/scheduler.py,
``_schedule_default``, with preemption by recomputation. Prompts are not cut;
while some run, decoding requests wait. Every decoding request wants a free block
at its turn even if it needs none (block_manager_v1.py, ``can_append_slots``), else
the newest request is preempted; it may be back in the next iteration.

A request that the token budget could not hold when computed again would be
dropped there; here it is refused before the simulation.
"""

import numpy as np

from capplan.simulator.batch import (
    admit_with_room,
    decode_horizon,
    log_decodes,
    take_decode_blocks,
    watermark_blocks,
)
from capplan.simulator.jit import compiled
from capplan.simulator.schedulers import Rules
from capplan.simulator.schedulers.refusals import above_watermark
from capplan.simulator.state import NONE, SCHEDULE

RULES = Rules()


def refused(trace, engine, settings):
    """Return the requests beyond budget or watermark, shape (n,), and the reason."""
    above, reason = above_watermark(trace, engine)
    budget = engine.max_num_batched_tokens
    beyond = trace.prompt_tokens + trace.output_tokens - 1 > budget
    if np.any(beyond):
        reason = f"its prompts are not cut, and a budget is {budget} tokens"
        return beyond, reason
    return above, reason


@compiled(SCHEDULE)
def schedule(state, r):
    """Run the prompts that fit alone; where none does, let all decode."""
    replica = state.replicas[r]
    spare_blocks = watermark_blocks(state)
    budget = state.engine[0].max_num_batched_tokens
    while replica.waiting_head != NONE:
        known_tokens = state.requests[replica.waiting_head].known_tokens
        if known_tokens > budget:
            break
        chunk = admit_with_room(state, r, budget, known_tokens, spare_blocks)
        if chunk == 0:
            break
        budget -= chunk
    if replica.batch_tokens > 0:
        replica.prompts_only = 1
        return 1
    take_decode_blocks(state, r, 1)
    log_decodes(state, r)
    if replica.decode_count == 0:
        return 0
    if replica.preempted > 0:
        return 1
    return decode_horizon(state, r, 1)
