"""vLLM V1's scheduler with LoRA adapters, which no user names.

vLLM 0.32, v1/core/sched/scheduler.py, ``Scheduler.schedule``: an iteration has at most
``max_loras`` adapters. A waiting request with another is skipped, not blocking: later
ones may pass it. Adapters without a slot are loaded before the iteration starts.

It runs its iterations itself and returns -1: with an adapter they are longer.
"""

from capplan.simulator.engine.adapters import (
    MEMORY,
    SETTING,
    join_adapter,
    may_join,
    use_running,
)
from capplan.simulator.engine.adapters import RULES as RULES
from capplan.simulator.engine.batch import admit_waiting, continue_running, same_batch
from capplan.simulator.engine.jump import jump_length
from capplan.simulator.engine.replica import batch_of, iteration_time_s, run_batch
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, SCHEDULE


@inlined()
def _admit(state, r, budget):
    """Walk the queue; admit who fits, in order, but those whose adapter does not."""
    slot = state.replicas[r].waiting_head
    while budget > 0 and slot != NONE:
        following = state.requests[slot].next
        if may_join(state, r, slot):
            chunk = admit_waiting(state, r, slot, budget)
            if chunk == 0:
                return
            budget -= chunk
            join_adapter(state, r, slot)
        slot = following


@inlined()
def _run(state, r, horizon):
    """Run the iteration and those after it, up to ``horizon`` in all."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    b, context = batch_of(state, r)
    first_s, slope_s = iteration_time_s(state, r, b, context)
    if memory[MEMORY.distinct] > 0:
        times = 1.0 + state.settings[SETTING.slowdown]
        first_s = first_s * times
        first_s += memory[MEMORY.distinct] * state.settings[SETTING.read_s]
        slope_s *= times
    start_s = max(replica.now_s, replica.gpu_s) + memory[MEMORY.load_s]
    n = 1
    if replica.batch_tokens == 0:
        span_s = replica.until_s - start_s
        n = jump_length(state.engine[0].depth, first_s, slope_s, span_s, horizon)
    run_batch(state, r, b, context, start_s, first_s, slope_s, n)


@compiled(SCHEDULE)
def schedule(state, r):
    """Give each running request its tokens, admit those whose adapter fits, and run."""
    replica = state.replicas[r]
    budget = continue_running(state, r, 0)
    use_running(state, r)
    if replica.preempted == 0:
        _admit(state, r, budget)
    ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    horizon = same_batch(state, r, 0, replica.preempted > 0 or ends)
    if horizon <= 0:
        return horizon
    _run(state, r, min(horizon, state.engine[0].longest_jump))
    return -1
