"""What runs iterations does for requests whose drafts are verified: ``replica.py``.

A request that has its last token in an iteration is computed once more, and discarded,
where the next was scheduled before that was known: with two in flight, if one token
would not have been enough.
"""

from capplan.simulator.engine.batch import iterations_to_completion
from capplan.simulator.engine.decoding import enter_decoding, leave_decoding
from capplan.simulator.engine.gaps import (
    end_gaps,
    enter_resuming,
    leaves_resuming,
    start_gaps,
)
from capplan.simulator.engine.jump import decode_time_s
from capplan.simulator.engine.queues import push_end, remove_end
from capplan.simulator.engine.speculation import (
    PARTS,
    REPLICA,
    REQUEST,
    add_context,
    blocks_at_most,
    blocks_of_decodes,
    draw_iterations,
    hold_slots,
    more_blocks,
    run_after,
    slot_tokens,
)
from capplan.simulator.engine.wake import before_end_s
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import take_blocks
from capplan.simulator.state import NONE, Phase, State


@inlined()
def is_discarded(state: State, r: int, slot: int):
    """Return whether the next iteration computes it although it has all its tokens.

    Its last one is in flight, the only one that is.
    """
    replica = state.replicas[r]
    if state.requests[slot].phase != Phase.DRAINING or replica.in_flight != 1:
        return False
    memory = state.request_memory[slot]
    last = memory[REQUEST.began] + memory[REQUEST.iterations]
    return memory[REQUEST.discarded] != 0.0 and replica.step == int(last)


@compiled()
def sit_out(state: State, r: int, slot: int):
    """Let a decoding request wait for the next iteration: its line starts later."""
    replica = state.replicas[r]
    memory = state.request_memory[slot]
    request = state.requests[slot]
    memory[REQUEST.began] += 1
    add_context(state, r, -memory[REQUEST.growth], 0.0)
    remove_end(state, r, slot)
    request.end_step += 1
    push_end(state, r, slot)
    if not leaves_resuming(state, r, slot):
        request.last_token_s = replica.decoded_s
    if int(memory[REQUEST.sat_out]) != replica.step:
        memory[REQUEST.sat_since] = replica.step + 1
        memory[REQUEST.sat_s] = request.last_token_s
    memory[REQUEST.sat_out] = replica.step + 1
    end_gaps(state, r, slot)


@compiled()
def verify_with(state: State, r: int, slot: int, other):
    """Let a decode miss a replica's next iteration and go on with another's.

    Both are micro-batches. Its line goes on behind the iterations of the other one.
    """
    request = state.requests[slot]
    memory = state.request_memory[slot]
    remove_end(state, r, slot)
    leave_decoding(state, r, slot)
    end_gaps(state, r, slot)
    if not leaves_resuming(state, r, slot):
        request.last_token_s = state.replicas[r].decoded_s
    step = state.replicas[other].step
    later = step - state.replicas[r].step
    memory[REQUEST.began] += later
    request.end_step += later
    memory[REQUEST.sat_out] = step
    start_gaps(state, other, slot)
    enter_decoding(state, other, slot, 0)
    enter_resuming(state, other, slot)


@compiled()
def resume_later(state: State, r: int):
    """Note who sat the iteration out that has just been run."""
    slot = state.replicas[r].running_head
    step = state.replicas[r].step
    while slot != NONE:
        sat_out = int(state.request_memory[slot, REQUEST.sat_out])
        if state.requests[slot].phase == Phase.DECODING and sat_out == step:
            start_gaps(state, r, slot)
            enter_resuming(state, r, slot)
        slot = state.requests[slot].next


@compiled()
def take_slots(state: State, r: int, n):
    """Take the blocks of a jump of n iterations behind its first; return how many.

    Then how many more are in use on average: they are taken evenly over the jump. Where
    blocks are counted later, none are taken.
    """
    memory = state.replica_memory[r]
    if memory[REPLICA.spare] > 0.0:
        grown = memory[REPLICA.loose] + n * memory[REPLICA.growth] / 2
        memory[REPLICA.loose] += n * memory[REPLICA.growth] + 1.0
        return 0, int(grown / PARTS / state.engine[0].block_size)
    more = 0
    if n > 1:
        more = blocks_of_decodes(state, r, n)
        hold_slots(state, r, n)
    return more, more // 2


@compiled()
def begin_line(state: State, slot: int, step, left):
    """Draw in how many iterations a request has its last tokens, and return it.

    Its prompt was done in iteration ``step``.
    """
    known_tokens = state.requests[slot].known_tokens
    memory = state.request_memory[slot]
    run_after(state, slot, step - 1)
    memory[REQUEST.began] = step
    memory[REQUEST.base] = known_tokens
    memory[REQUEST.before] = known_tokens
    if left == 0:
        memory[REQUEST.discarded] = 0.0
        memory[REQUEST.gained] = 0.0
        return 0
    draw_iterations(state, slot, left)
    return int(memory[REQUEST.iterations])


@compiled()
def count_last(state: State, r: int, slot: int):
    """Take a request's blocks that has its last token, where they are counted late.

    Without a second iteration in flight it leaves tokens that the engine never enters
    in its prefix cache: those of an iteration when it schedules the next one.
    """
    replica = state.replicas[r]
    request = state.requests[slot]
    if state.replica_memory[r, REPLICA.loose] != 0.0:
        flying = replica.in_flight == 2
        take_blocks(state, r, more_blocks(state, r, slot, replica.step, flying))
        request.room_tokens = slot_tokens(state, slot, replica.step, flying)
    if state.engine[0].depth == 1:
        memory = state.request_memory[slot]
        hashed = int(memory[REQUEST.base] + memory[REQUEST.gained]) + 1
        held = request.prompt_tokens + request.output_tokens - 1
        request.unhashed_tokens = max(0, held - hashed)


@compiled()
def set_quiet(state: State, r: int):
    """Note before when no decode finishes if all that run decode; early, not late.

    Where blocks may run out before, an iteration later may preempt, and where the
    budget is short it is another batch: nothing is known.
    """
    replica = state.replicas[r]
    replica.quiet_s = 0.0
    b = replica.decode_count
    engine = state.engine[0]
    if b == 0 or b * engine.tokens_per_request > engine.max_num_batched_tokens:
        return
    n = iterations_to_completion(state, r)
    if blocks_at_most(state, r, n) >= replica.free_blocks:
        return
    growth = state.replica_memory[r, REPLICA.growth] / PARTS
    times = state.by_batch[b]
    context = state.replica_memory[r, REPLICA.context] / PARTS
    first_s = times.decode_s + times.decode_context_s * context
    slope_s = times.decode_context_s * growth
    span_s = decode_time_s(first_s, slope_s, n)
    replica.quiet_s = before_end_s(replica.gpu_s, span_s)
