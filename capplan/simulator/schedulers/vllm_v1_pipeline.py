"""vLLM V1's scheduler with pipeline parallelism, which no user names.

vLLM 0.32, v1/core/sched/scheduler.py, ``Scheduler.schedule``, and async_scheduler.py:
of the running requests only those of the step's micro-batch decode, the unfinished
prompt goes on in every step, and a preempted request whose result is in flight is
skipped, not blocking. See pipeline.py.

It runs its steps itself and returns -1.
"""

from capplan.simulator.engine.batch import admit_waiting, continue_prefill, preempt
from capplan.simulator.engine.decoding import computed_tokens, stop_decoding
from capplan.simulator.engine.log import log_entry
from capplan.simulator.engine.pipeline import (
    MEMORY,
    REQUEST,
    collected_step,
    is_stale,
    micro_batch_of,
    stage_count,
)
from capplan.simulator.engine.pipeline import RULES as RULES
from capplan.simulator.engine.queues import push_waiting_front, remove_running
from capplan.simulator.engine.run_pipeline import jump_pipeline, run_step, show
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import blocks_in_iteration, return_blocks, take_blocks
from capplan.simulator.state import NONE, SCHEDULE, Phase


@inlined()
def _decodes_next(state, slot, m):
    """Return whether a running request decodes when micro-batch ``m`` does."""
    if state.requests[slot].phase != Phase.DECODING:
        return False
    return int(state.request_memory[slot, REQUEST.micro_batch]) == m


@compiled()
def _preempt(state, batches, r, slot, step):
    """Free a running request's KV and put it first in the queue, as ``preempt``."""
    request = state.requests[slot]
    if request.phase != Phase.DECODING:
        preempt(state, r, slot)
        return
    replica = state.replicas[r]
    m = int(state.request_memory[slot, REQUEST.micro_batch])
    stages = stage_count(state)
    since = (step - (m - r * stages)) % stages
    last_step = step - (stages if since == 0 else since)
    admitted_tokens = request.known_tokens
    held = stop_decoding(batches, m, slot)
    replica.prefill_tokens += held + 1
    hashed = held
    if last_step > collected_step(state, r) and held > admitted_tokens:
        hashed -= 1
    return_blocks(state, r, slot, held, hashed, True)
    remove_running(state, r, slot)
    state.request_memory[slot, REQUEST.last_step] = last_step
    request.phase = Phase.WAITING
    request.token_step = NONE
    request.preemptions += 1
    request.computed_tokens = 0
    replica.preempted += 1
    push_waiting_front(state, r, slot)


@compiled()
def _make_room(state, batches, r, step, m):
    """Take blocks for the decodes one by one, preempting the newest request."""
    replica = state.replicas[r]
    slot = replica.running_head
    while slot != NONE:
        if _decodes_next(state, slot, m):
            held = computed_tokens(state, slot, batches.replicas[m].step + 1)
            if held % state.engine[0].block_size == 0:
                while replica.free_blocks == 0:
                    victim = replica.running_tail
                    _preempt(state, batches, r, victim, step)
                    if victim == slot:
                        return
                take_blocks(state, r, 1)
        slot = state.requests[slot].next


@compiled()
def _log_decodes(state, batches, r, m):
    """Log the decodes of the step, in order of admission."""
    slot = state.replicas[r].running_head
    while slot != NONE:
        if _decodes_next(state, slot, m):
            held = computed_tokens(state, slot, batches.replicas[m].step + 1)
            log_entry(state, state.requests[slot].row, held, 1)
        slot = state.requests[slot].next


@inlined()
def _admit(state, r, step, budget):
    """Admit who fits, in order, but those whose result is in flight.

    Return whether there was no room for the next one.
    """
    slot = state.replicas[r].waiting_head
    while budget > 0 and slot != NONE:
        request = state.requests[slot]
        following = request.next
        if request.phase == Phase.WAITING and not is_stale(state, r, slot):
            chunk = admit_waiting(state, r, slot, budget)
            if chunk == 0:
                return True
            budget -= chunk
            state.request_memory[slot, REQUEST.last_step] = step
        slot = following
    return False


@compiled(SCHEDULE)
def schedule(state, r):
    """Give the step's micro-batch its tokens, continue the prompt, admit, and run."""
    batches = state.by_rank
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    step = int(memory[MEMORY.step]) + 1
    if jump_pipeline(state, batches, r, step) > 0:
        show(state, batches, r)
        return -1
    m = micro_batch_of(state, r, step)
    batch = batches.replicas[m]
    needed = blocks_in_iteration(batches, m, batch.step + 1)
    if needed <= replica.free_blocks:
        take_blocks(state, r, needed)
    else:
        _make_room(state, batches, r, step, m)
    if state.engine[0].recording != 0:
        _log_decodes(state, batches, r, m)
    budget = state.engine[0].max_num_batched_tokens - batch.decode_count
    slot = replica.prefilling
    if slot != NONE:
        chunk = continue_prefill(state, r, budget)
        budget -= chunk
        if chunk > 0:
            state.request_memory[slot, REQUEST.last_step] = step
    refused = False
    if replica.preempted == 0:
        refused = _admit(state, r, step, budget)

    decodes = batch.decode_count
    alone = replica.batch_tokens + replica.batch_extra_count + replica.preempted == 0
    run_step(state, batches, r, step, m)
    memory[MEMORY.refused] = 1.0 if refused else 0.0
    if (
        alone
        and batch.decode_count == decodes
        and (refused or replica.waiting_count == 0)
    ):
        memory[MEMORY.settled] += 1
    else:
        memory[MEMORY.settled] = 0
    show(state, batches, r)
    return -1
