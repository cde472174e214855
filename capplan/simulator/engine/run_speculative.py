"""Run iterations of an engine that verifies drafts, as ``replica.py`` does of others.

Contexts grow by what the batch gains on average, so that n iterations take the same
closed form. A request that has its last token in an iteration is computed once more,
and discarded, where the next was scheduled before that was known: with two in flight,
if one token would not have been enough.
"""

from capplan.simulator.engine.batch import iterations_to_completion, return_to_queue
from capplan.simulator.engine.gaps import (
    end_gaps,
    enter_resuming,
    leaves_resuming,
    note_gaps,
    start_gaps,
)
from capplan.simulator.engine.jump import SMALLEST_STEP_S, decode_time_s, jump_length
from capplan.simulator.engine.log import add_to_bins, log_iteration
from capplan.simulator.engine.queues import (
    push_end,
    remove_end,
)
from capplan.simulator.engine.replica import (
    drain_request,
    give_first_token,
    put_in_flight,
)
from capplan.simulator.engine.speculation import (
    PARTS,
    REPLICA,
    REQUEST,
    SETTING,
    add_context,
    blocks_at_most,
    blocks_of_decodes,
    context_parts,
    draw_iterations,
    findable_tokens,
    hold_slots,
    leave_speculating,
    more_blocks,
    run_after,
    slot_tokens,
    stop_speculating,
    tokens_before,
)
from capplan.simulator.engine.wake import before_end_s
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import take_blocks
from capplan.simulator.state import NONE, Phase


@compiled()
def preempt_speculating(state, r, slot, taken=0):
    """Free a running request's KV and put it first in the queue, as ``preempt``.

    The engine finds blocks again up to the tokens that it had collected; without a
    second iteration in flight it enters a block when it schedules the next one.
    ``taken`` is 1 where it has its place in the iteration already.
    """
    replica = state.replicas[r]
    request = state.requests[slot]
    step = replica.step + 1
    if request.phase == Phase.PREFILLING:
        hashed = request.computed_tokens
        replica.prefilling = NONE
        replica.prefill_tokens += hashed
        request.token_step = NONE
        phase = Phase.WAITING
    elif request.phase == Phase.DECODING:
        held = tokens_before(state, slot, step)
        hashed = findable_tokens(state, r, slot, replica.in_flight > 0, taken)
        stop_speculating(state, r, slot)
        replica.prefill_tokens += held + 1
        request.token_step = replica.step + 1
        phase = Phase.WAITING
    else:
        memory = state.request_memory[slot]
        hashed = int(memory[REQUEST.base] + memory[REQUEST.gained]) + taken
        request.known_tokens = request.prompt_tokens + request.output_tokens
        phase = Phase.PREEMPTED_DRAINING
        replica.preempted_draining += 1
    return_to_queue(state, r, slot, request.room_tokens, hashed, phase)
    request.room_tokens = 0


@inlined()
def is_discarded(state, r, slot):
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
def sit_out(state, r, slot):
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
def _resume_later(state, r):
    """Note who sat the iteration out that has just been run."""
    slot = state.replicas[r].running_head
    step = state.replicas[r].step
    while slot != NONE:
        sat_out = int(state.request_memory[slot, REQUEST.sat_out])
        if state.requests[slot].phase == Phase.DECODING and sat_out == step:
            start_gaps(state, r, slot)
            enter_resuming(state, r, slot)
        slot = state.requests[slot].next


@inlined()
def verified_batch(state, r):
    """Return the requests of the next iteration, their contexts and their tokens.

    Beside those that decode it has others, computed and discarded, less those that sit
    it out. The tokens are without prompts'.
    """
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    extra = replica.batch_extra_count
    b = replica.decode_count + int(memory[REPLICA.more_count]) + extra
    context = (memory[REPLICA.context] + memory[REPLICA.more_parts]) / PARTS
    context += replica.batch_extra_tokens
    verified = (b - extra) * (1 + int(state.settings[SETTING.drafts])) + extra
    return b, context, verified + int(memory[REPLICA.padded])


@inlined()
def _verified_time_s(state, r, b, context, verified):
    """Return the time of the next iteration, and how much longer each later is. [s]"""
    replica = state.replicas[r]
    times = state.by_batch[b]
    tokens = replica.batch_tokens
    drafts = int(state.settings[SETTING.drafts])
    if tokens > 0 or verified < b * (1 + drafts):  # some verify none
        first_s = (
            state.fused_s[tokens + verified]
            + times.fused_decode_s
            + times.fused_context_s * context
            + state.engine[0].attention_s * replica.batch_attention
        )
        return max(first_s, SMALLEST_STEP_S), 0.0
    growth = state.replica_memory[r, REPLICA.growth] / PARTS
    first_s = times.decode_s + times.decode_context_s * context
    return first_s, times.decode_context_s * growth


@inlined()
def verified_line(state, r, b, context, verified):
    """Return when the next iteration starts, its time, and how much each later grows.

    With what its scheduler noted of it, as ``batch_line``. [s]
    """
    replica = state.replicas[r]
    first_s, slope_s = _verified_time_s(state, r, b, context, verified)
    start_s = max(replica.now_s, replica.gpu_s) + replica.wait_s
    stretch = replica.stretch
    return start_s, first_s * stretch + replica.more_s, slope_s * stretch


@inlined()
def run_speculative(state, r, horizon):
    """Run the scheduled iteration and those after it, up to ``horizon`` in all.

    Return -1; 0 where there is none, and ``horizon`` of a rank, whose group runs it.
    """
    if horizon == 0 or state.engine[0].ranks > 0:
        return horizon
    replica = state.replicas[r]
    horizon = min(horizon, state.engine[0].longest_jump)
    b, context, verified = verified_batch(state, r)
    start_s, first_s, slope_s = verified_line(state, r, b, context, verified)
    n = 1
    if replica.batch_tokens == 0:
        span_s = replica.until_s - start_s
        n = jump_length(state.engine[0].depth, first_s, slope_s, span_s, horizon)
    run_verified(state, r, b, context, start_s, first_s, slope_s, n)
    return -1


@inlined()
def run_verified(state, r, b, context, start_s, first_s, slope_s, n):
    """Run n iterations of a batch, as ``run_batch`` those without drafts."""
    replica = state.replicas[r]
    engine = state.engine[0]
    memory = state.replica_memory[r]
    counted = memory[REPLICA.spare] <= 0.0
    end_s = start_s + decode_time_s(first_s, slope_s, n)
    last_s = first_s + (n - 1) * slope_s
    used = engine.kv_blocks - replica.free_blocks
    more = 0
    if n > 1 and counted:
        more = blocks_of_decodes(state, r, n)
        hold_slots(state, r, n)
        used += more // 2  # blocks are taken evenly over the jump
    if not counted:
        grown = memory[REPLICA.loose] + n * memory[REPLICA.growth] / 2
        used += int(grown / PARTS / engine.block_size)
        memory[REPLICA.loose] += n * memory[REPLICA.growth] + 1.0
    add_to_bins(
        state, start_s, end_s, replica.running_count, replica.waiting_count, used
    )
    if engine.recording != 0:
        log_iteration(state, r, start_s, end_s, b, int(context), replica.batch_tokens)

    replica.gpu_s = end_s
    note_gaps(state, r, start_s + first_s, last_s, slope_s, n)
    replica.decoded_s = end_s
    replica.step += n
    add_context(state, r, n * memory[REPLICA.growth], 0.0)
    if replica.sitting != 0:
        _resume_later(state, r)
    put_in_flight(state, r, start_s, first_s, slope_s, n, more)
    replica.ran = replica.iterations
    _start_speculating(state, r, end_s)
    _pop_finishing(state, r)
    _set_quiet(state, r)


@inlined()
def _start_speculating(state, r, end_s):
    """Let requests whose prompt this iteration completes decode from the next on."""
    replica = state.replicas[r]
    slot = replica.joining
    replica.joining = NONE
    while slot != NONE:
        request = state.requests[slot]
        following = request.next_in_list
        memory = state.request_memory[slot]
        run_after(state, slot, replica.step - 1)
        give_first_token(state, r, slot, end_s)
        start_gaps(state, r, slot)
        memory[REQUEST.began] = replica.step
        memory[REQUEST.base] = request.known_tokens
        memory[REQUEST.before] = request.known_tokens
        generated = request.known_tokens - request.prompt_tokens + 1
        left = request.run_tokens - generated
        request.end_step = replica.step
        if left == 0:
            memory[REQUEST.discarded] = 0.0
            memory[REQUEST.gained] = 0.0
            drain_request(state, r, slot)
        else:
            draw_iterations(state, slot, left)
            request.end_step += int(memory[REQUEST.iterations])
            request.phase = Phase.DECODING
            push_end(state, r, slot)
            replica.decode_count += 1
            parts = context_parts(state, slot, replica.step + 1)
            add_context(state, r, parts, memory[REQUEST.growth])
        slot = following


@inlined()
def _leave_unhashed(state, slot):
    """Note the tokens that the engine never enters in its prefix cache.

    It enters those of an iteration when it schedules the next one, and there is none.
    """
    request = state.requests[slot]
    memory = state.request_memory[slot]
    hashed = int(memory[REQUEST.base] + memory[REQUEST.gained]) + 1
    held = request.prompt_tokens + request.output_tokens - 1
    request.unhashed_tokens = max(0, held - hashed)


@inlined()
def _pop_finishing(state, r):
    """Take requests whose last token has been scheduled out of the decoding ones."""
    replica = state.replicas[r]
    while replica.heap_count > 0:
        slot = state.ends[r, 0]
        if state.requests[slot].end_step > replica.step:
            break
        remove_end(state, r, slot)
        leave_speculating(state, r, slot)
        if state.replica_memory[r, REPLICA.loose] != 0.0:
            flying = replica.in_flight == 2
            take_blocks(state, r, more_blocks(state, r, slot, replica.step, flying))
            room = slot_tokens(state, slot, replica.step, flying)
            state.requests[slot].room_tokens = room
        if state.engine[0].depth == 1:
            _leave_unhashed(state, slot)
        drain_request(state, r, slot)


@inlined()
def _set_quiet(state, r):
    """Note before when no decode finishes if all that run decode; early, not late.

    Where blocks may run out before, an iteration later may preempt, and where the
    budget is short it is another batch: nothing is known.
    """
    replica = state.replicas[r]
    replica.quiet_s = 0.0
    b = replica.decode_count
    verified = b * (1 + int(state.settings[SETTING.drafts]))
    if b == 0 or verified > state.engine[0].max_num_batched_tokens:
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
