"""Run the steps of a pipeline, one, or of each micro-batch as many.

A step occupies each stage for the same time u, from the later of its end on the stage
before and the end of the step before on this one; on the first, also from when the
tokens of its micro-batch's last step are there. Where all decode, the slowest
micro-batch finds every stage free after some steps, and the others follow it: from then
on, and as long as it is the slowest, its steps start stages * u apart, u of the former.
"""

import math

from capplan.simulator.engine.batch import iterations_to_completion
from capplan.simulator.engine.decoding import decode_line
from capplan.simulator.engine.gaps import note_gaps
from capplan.simulator.engine.in_flight import (
    PLACE,
    collected_step,
    place_of,
    put_in_place,
    show_oldest,
)
from capplan.simulator.engine.jump import decode_time_s, iterations_before
from capplan.simulator.engine.log import add_to_bins, log_iteration
from capplan.simulator.engine.replica import (
    iteration_time_s,
    pop_finishing,
    start_decoding,
)
from capplan.simulator.engine.speculation import grow, verified_batch
from capplan.simulator.engine.wake import before_end_s
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import blocks_in_iterations, take_blocks
from capplan.simulator.state import NONE, Count, State
from capplan.simulator.v1.stages import (
    MEMORY,
    SETTING,
    first_stage,
    micro_batch_of,
    next_step,
    stage_count,
    tokens_s,
)

_ROUNDING = 1e-13
"""Times that differ by less, of themselves, are the same."""


@compiled()
def run_step(state: State, r: int, encode_s):
    """Run the step that was put together; note whether the next ones may be as it.

    The first stage encodes its images, which takes ``encode_s``.
    """
    batches = state.by_rank
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    step = next_step(state, r)
    m = micro_batch_of(state, r, step)
    batch = batches.replicas[m]
    decodes = batch.decode_count
    alone = replica.batch_tokens + replica.batch_extra_count + replica.preempted == 0
    alone = alone and replica.wait_s == 0.0
    _run(state, batches, r, step, m, encode_s)
    full = memory[MEMORY.refused] != 0.0 or replica.waiting_count == 0
    if alone and batch.decode_count == decodes and full:
        memory[MEMORY.settled] += 1
    else:
        memory[MEMORY.settled] = 0
    memory[MEMORY.waiting] = replica.waiting_count
    _show(state, batches, r)


@inlined()
def _run(state: State, batches, r: int, step, m, encode_s):
    """Run a step; ``m`` is its micro-batch."""
    replica = state.replicas[r]
    batch = batches.replicas[m]
    b, context, tokens = _batch_of(state, batches, r, m)
    if b + replica.batch_tokens == 0:
        put_in_place(state, r, step, replica.now_s, 0.0)
        replica.in_flight += 1
        if replica.preempted == 0 and _is_stuck(state, batches, r):
            state.counts[Count.STUCK] = 1
        return
    batch.stretch = replica.stretch
    batch.more_s = replica.more_s
    stage_s, _ = iteration_time_s(state, r, b, context, tokens)
    stage_s += _longer_s(state, batch, stage_s, b, replica.batch_tokens + tokens)
    memory = state.replica_memory[r]
    first = first_stage(state)
    start_s = max(replica.now_s, memory[first], tokens_s(state, r, step))
    start_s += replica.wait_s
    end_s = start_s + encode_s
    for stage in range(first, first + stage_count(state)):
        end_s = max(end_s, memory[stage]) + stage_s
        memory[stage] = end_s
    used = state.engine[0].kv_blocks - replica.free_blocks
    add_to_bins(
        state,
        max(start_s, replica.gpu_s),
        end_s,
        replica.running_count,
        replica.waiting_count,
        used,
    )
    if state.engine[0].recording != 0:
        log_iteration(state, r, start_s, end_s, b, int(context), replica.batch_tokens)
    gives = b > replica.batch_extra_count or _goes_on(state, replica.joining)
    put_in_place(state, r, step, end_s, 1.0 if gives else 0.0)
    replica.ran = step
    replica.in_flight += 1
    replica.gpu_s = end_s
    replica.step += 1
    note_gaps(batches, m, end_s, 0.0, 0.0, 1)
    batch.decoded_s = end_s
    batch.step += 1
    if state.engine[0].verifies != 0:
        grow(batches, m, 1)
    else:
        batch.context_tokens += batch.decode_count
    batch.in_flight = 1
    batch.oldest_finishing = NONE
    batch.joining = replica.joining
    replica.joining = NONE
    start_decoding(batches, m, end_s)
    pop_finishing(batches, m)
    memory[place_of(state, step) + PLACE.finishing] = batch.oldest_finishing


@inlined()
def _batch_of(state: State, batches, r: int, m):
    """Return how many requests a step computes as decodes, their contexts and tokens.

    Those of one-token prefills are among them.
    """
    replica = state.replicas[r]
    batch = batches.replicas[m]
    b = tokens = batch.decode_count
    context = float(batch.context_tokens)
    if state.engine[0].verifies != 0:
        b, context, tokens = verified_batch(batches, m)
    extra = replica.batch_extra_count
    return b + extra, context + replica.batch_extra_tokens, tokens + extra


@inlined()
def _longer_s(state: State, batch, stage_s, b, tokens):
    """Return by how much adapters lengthen a step of ``tokens`` on a stage. [s]"""
    fixed_s = state.settings[SETTING.fixed_s]
    fixed_s += b * state.settings[SETTING.fixed_request_s]
    fixed_s += tokens * state.settings[SETTING.fixed_token_s]
    return (stage_s - fixed_s) * (batch.stretch - 1.0) + batch.more_s


@inlined()
def _stage_line(state: State, batches, m):
    """Return the time of a micro-batch's decodes on a stage, and how it grows. [s]

    With the adapters of its newest step.
    """
    batch = batches.replicas[m]
    first_s, slope_s = decode_line(batches, m)
    b = batch.decode_count
    first_s += _longer_s(state, batch, first_s, b, b)
    return first_s, slope_s * batch.stretch


@inlined()
def _goes_on(state: State, slot: int):
    """Return whether one of a list of ended prompts has more than one token to come.

    The token of one that has not is not sent to the first stage.
    """
    while slot != NONE:
        request = state.requests[slot]
        if request.known_tokens + 1 < request.prompt_tokens + request.run_tokens:
            return True
        slot = request.next_in_list
    return False


@inlined()
def _is_stuck(state: State, batches, r: int):
    """Return whether nothing is computed, nor will be."""
    memory = state.replica_memory[r]
    for step in range(collected_step(state, r) + 1, state.replicas[r].iterations + 1):
        if memory[place_of(state, step) + PLACE.end_s] > state.replicas[r].now_s:
            return False
        if batches.replicas[micro_batch_of(state, r, step)].decode_count > 0:
            return False
    return state.replicas[r].in_flight == state.engine[0].depth


@inlined()
def _cycles_of_lead(state: State, batches, r: int, step, most):
    """Return for how many cycles the next micro-batch is the slowest, ``most`` at most.

    None has its last token in them, which is left to single steps. 0 where it is not.
    """
    m = micro_batch_of(state, r, step)
    if batches.replicas[m].decode_count == 0:
        return 0
    lead_s, lead_slope_s = _stage_line(state, batches, m)
    for other in range(step, step + stage_count(state)):
        m = micro_batch_of(state, r, other)
        if batches.replicas[m].decode_count == 0:
            continue
        most = min(most, iterations_to_completion(batches, m) - 1)
        first_s, slope_s = _stage_line(state, batches, m)
        if first_s > lead_s:
            return 0
        if slope_s > lead_slope_s:
            until = (lead_s - first_s) / (slope_s - lead_slope_s)
            most = int(min(most, math.floor(until) + 1.0))
    return most


@inlined()
def _follow(state: State, batches, r: int, step, start_s):
    """Return whether the others follow the next micro-batch, if that starts then."""
    memory = state.replica_memory[r]
    stages = stage_count(state)
    first = first_stage(state)
    lead_s, _ = _stage_line(state, batches, micro_batch_of(state, r, step))
    most = 1.0 + _ROUNDING
    for i in range(stages):
        if memory[first + i] > (start_s + i * lead_s) * most:
            return False
    begun_s = start_s + lead_s
    for other in range(step + 1, step + stages):
        m = micro_batch_of(state, r, other)
        if batches.replicas[m].decode_count == 0:
            continue
        if tokens_s(state, r, other) > begun_s * most:
            return False
        first_s, _ = _stage_line(state, batches, m)
        begun_s += first_s
    return True


@compiled()
def _blocks_of_cycles(state: State, batches, r: int, n):
    """Return the blocks that decoding takes in n steps of each micro-batch."""
    stages = stage_count(state)
    blocks = 0
    for m in range(r * stages, (r + 1) * stages):
        blocks += blocks_in_iterations(batches, m, batches.replicas[m].step + 1, n)
    return blocks


@inlined()
def _cycles_that_fit(state: State, batches, r: int, n):
    """Return how many of n cycles the free blocks allow."""
    free = state.replicas[r].free_blocks
    if _blocks_of_cycles(state, batches, r, n) <= free:
        return n
    fit = 0
    while n - fit > 1:
        middle = (fit + n) >> 1
        if _blocks_of_cycles(state, batches, r, middle) <= free:
            fit = middle
        else:
            n = middle
    return fit


@compiled()
def jump_stages(state: State, r: int, looks):
    """Run as many steps of each micro-batch as may run at once; return how many.

    ``looks`` is 1 where one look at the queue, after the last result that changed
    something, says of all micro-batches that they take nobody; else the stages.
    """
    batches = state.by_rank
    step = next_step(state, r)
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    stages = stage_count(state)
    most = state.engine[0].longest_jump // stages
    settled = memory[MEMORY.settled] >= stages + looks
    if most == 0 or not settled or replica.prefilling != NONE:
        return 0
    if replica.waiting_count > 0 and memory[MEMORY.refused] == 0.0:
        return 0
    most = _cycles_of_lead(state, batches, r, step, most)
    if most == 0:
        return 0
    start_s = max(replica.now_s, memory[first_stage(state)], tokens_s(state, r, step))
    if not _follow(state, batches, r, step, start_s):
        return 0
    lead_s, slope_s = _stage_line(state, batches, micro_batch_of(state, r, step))
    span_s = replica.until_s - start_s
    n = iterations_before(stages * lead_s, stages * slope_s, span_s, most + 1) - 1
    n = _cycles_that_fit(state, batches, r, n)
    if n > 0:
        _run_cycles(state, batches, r, step, start_s, lead_s, slope_s, n)
        _show(state, batches, r)
    return n


@inlined()
def _run_cycles(state: State, batches, r: int, step, start_s, lead_s, slope_s, n):
    """Run n steps of each micro-batch; the next one leads, from ``start_s`` on."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    stages = stage_count(state)
    blocks = _blocks_of_cycles(state, batches, r, n)
    used = state.engine[0].kv_blocks - replica.free_blocks + blocks // 2
    before_s = replica.gpu_s
    # Of the first and the last cycle: the end of the leader, then the others' times.
    last_lead_s = lead_s + (n - 1) * slope_s
    span_s = decode_time_s(stages * lead_s, stages * slope_s, n - 1)
    first_end_s = start_s + stages * lead_s
    end_s = start_s + span_s + stages * last_lead_s
    behind_s = 0.0
    growth_s = 0.0
    for other in range(step, step + stages):
        m = micro_batch_of(state, r, other)
        batch = batches.replicas[m]
        newest = other + (n - 1) * stages
        if batch.decode_count == 0:
            put_in_place(state, r, newest, start_s, 0.0)
            continue
        if other > step:
            own_s, own_slope_s = _stage_line(state, batches, m)
            first_end_s += own_s
            end_s += own_s + (n - 1) * own_slope_s
            behind_s += own_s + (n - 1) * own_slope_s
            growth_s += own_slope_s
        put_in_place(state, r, newest, end_s, 1.0)
        gap_s = stages * last_lead_s + growth_s if n > 1 else 0.0
        note_gaps(batches, m, first_end_s, gap_s, stages * slope_s, n)
        batch.decoded_s = end_s
        batch.step += n
        batch.context_tokens += n * batch.decode_count
        replica.step += n
    first = first_stage(state)
    for i in range(stages):
        memory[first + i] = start_s + span_s + (i + 1) * last_lead_s + behind_s
    take_blocks(state, r, blocks)
    add_to_bins(
        state,
        max(start_s, before_s),
        end_s,
        replica.running_count,
        replica.waiting_count,
        used,
    )
    replica.gpu_s = end_s
    replica.ran = replica.iterations
    replica.in_flight = stages
    # All but the last cycle is collected: that is when the next step is scheduled.
    collected_s = before_s
    if n > 1:
        collected_s = start_s + span_s + behind_s - growth_s
    replica.now_s = max(replica.now_s, collected_s)


@inlined()
def _show(state: State, batches, r: int):
    """Let the replica's record have its oldest steps, and all that decode."""
    replica = state.replicas[r]
    show_oldest(state, r)
    stages = stage_count(state)
    replica.decode_count = 0
    replica.context_tokens = 0
    for m in range(r * stages, (r + 1) * stages):
        replica.decode_count += batches.replicas[m].decode_count
        replica.context_tokens += batches.replicas[m].context_tokens
    replica.heap_count = replica.decode_count
    replica.quiet_s = 0.0
    only_decodes = replica.decode_count == replica.running_count
    only_decodes = only_decodes and state.engine[0].verifies == 0
    if only_decodes and replica.waiting_count == 0:
        replica.quiet_s = _quiet_s(state, batches, r)


@inlined()
def _quiet_s(state: State, batches, r: int):
    """Return before when no decode finishes if all that run decode; early, not late.

    Where blocks may run out before, a step may preempt: nothing is known.
    """
    stages = stage_count(state)
    quiet_s = math.inf
    fewest = 2**62
    for m in range(r * stages, (r + 1) * stages):
        batch = batches.replicas[m]
        if batch.decode_count > 0:
            n = iterations_to_completion(batches, m)
            fewest = min(fewest, n)
            first_s, slope_s = decode_line(batches, m)
            span_s = decode_time_s(stages * first_s, stages * slope_s, n)
            quiet_s = min(quiet_s, before_end_s(batch.decoded_s, span_s))
    if fewest == 2**62:
        return 0.0
    blocks = _blocks_of_cycles(state, batches, r, fewest + 1)
    return quiet_s if blocks < state.replicas[r].free_blocks else 0.0
