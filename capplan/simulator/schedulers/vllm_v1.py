"""vLLM V1's scheduler: running requests first, then the queue in arrival order.

vLLM 0.32, v1/core/sched/scheduler.py, ``Scheduler.schedule``, without
speculative decoding, LoRA, images and KV connectors.
"""

from capplan.deployment.policy import VLLM_V1
from capplan.simulator.engine.batch import admit, continue_running, same_batch
from capplan.simulator.jit import compiled
from capplan.simulator.state import NONE, SCHEDULE

RULES = VLLM_V1.rules


@compiled(SCHEDULE)
def schedule(state, r):
    """Give each running request its tokens, then admit while budget is left."""
    replica = state.replicas[r]
    budget = continue_running(state, r, 0)
    if replica.preempted == 0:
        while budget > 0:
            chunk = admit(state, r, budget)
            if chunk == 0:
                break
            budget -= chunk

    # Only decoding, and the queue's head waits for a request to finish: the
    # same batch runs until then, or until the KV blocks are used up.
    ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    return same_batch(state, r, 0, replica.preempted > 0 or ends)
