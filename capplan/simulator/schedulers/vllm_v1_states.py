"""vLLM V1's scheduler where prefix caching keeps recurrent states, unnamed by users.

vLLM 0.32, v1/core/sched/scheduler.py, ``_mamba_block_aligned_split``: chunks of prompts
end with a block of KV. So several prompts may be unfinished at once, and what runs is
taken in order of admission: a decode behind a prompt that takes the rest of the budget
sits the iteration out. A request takes a block for each group of states beside each of
its KV that it enters, and frees the state before once a token behind it is collected.
"""

from capplan.simulator.engine.batch import (
    add_chunk,
    iterations_to_completion,
    log_decodes,
    may_start,
    preempt,
    start_prefill,
)
from capplan.simulator.engine.decoding import computed_tokens, end_sitting, sit_out
from capplan.simulator.engine.log import log_entry
from capplan.simulator.engine.replica import run_iterations
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import (
    adopt_hits,
    blocks_in_iteration,
    ceil_div,
    count_hits,
    take_blocks,
)
from capplan.simulator.kv.states import (
    CHUNK,
    HELD,
    SHARED,
    START,
    STEP,
    adopt_state,
    chunk_to_boundary,
    collected_tokens,
    count_state_hits,
    free_old_states,
    hold_state,
    is_hashed_now,
    share_state,
)
from capplan.simulator.kv.states import RULES as RULES
from capplan.simulator.kv.worklist import (
    enter_with,
    first_entering,
    first_listed,
    list_one_longer,
    list_until,
    next_entering,
    next_listed,
    unlist_ended,
)
from capplan.simulator.state import NONE, SCHEDULE, Phase


@inlined()
def _make_room(state, r, slot, blocks):
    """Preempt the newest requests until blocks are free; return if ``slot`` is not."""
    while blocks > state.replicas[r].free_blocks:
        victim = state.replicas[r].running_tail
        preempt(state, r, victim)
        if victim == slot:
            return False
    return True


@inlined()
def _keep_listed(state, r, slot):
    """Look at a request as long as a state of the next iteration is in flight."""
    until = state.replicas[r].step + 1 + state.engine[0].depth
    list_until(state, r, slot, until)


@compiled()
def _decode(state, r, slot):
    """Give a decode its token and blocks; return 0 where it was preempted."""
    engine = state.engine[0]
    computed = computed_tokens(state, slot, state.replicas[r].step + 1)
    collected = collected_tokens(state, r, slot, computed)
    free_old_states(state, r, slot, collected, computed)
    enters = computed % engine.block_size == 0
    if enters:
        blocks = 1 + engine.state_groups
        if not _make_room(state, r, slot, blocks):
            return 0
        take_blocks(state, r, blocks)
        hold_state(state, slot, computed + 1)
        _keep_listed(state, r, slot)
    log_entry(state, state.requests[slot].row, computed, 1)
    return 1


@inlined()
def _run_chunk(state, r, slot, start, chunk):
    """Note a chunk of a prompt, whose blocks are taken, and its state."""
    memory = state.request_memory[slot]
    step = state.replicas[r].step + 1
    memory[STEP] = step
    memory[START] = start
    after = start + chunk
    share_state(state, r, slot, after)
    _keep_listed(state, r, slot)
    if after == state.requests[slot].known_tokens:
        enter_with(state, r, slot, after, step + 1)


@inlined()
def _next_chunk(state, slot, budget):
    """Return the tokens of an unfinished prompt's next chunk, and its blocks."""
    engine = state.engine[0]
    request = state.requests[slot]
    start = request.computed_tokens
    chunk = min(request.known_tokens - start, budget)
    chunk = chunk_to_boundary(state, slot, start, chunk)
    after = start + chunk
    blocks = ceil_div(after, engine.block_size) - ceil_div(start, engine.block_size)
    if blocks > 0:
        blocks += engine.state_groups
    return chunk, blocks


@compiled()
def _continue_prompt(state, r, slot, budget):
    """Give an unfinished prompt a chunk; return its tokens, NONE if preempted."""
    start = state.requests[slot].computed_tokens
    chunk, blocks = _next_chunk(state, slot, budget)
    if chunk <= 0:
        return 0
    collected = collected_tokens(state, r, slot, start)
    free_old_states(state, r, slot, collected, start)
    if not _make_room(state, r, slot, blocks):
        return NONE
    if blocks > 0:
        take_blocks(state, r, blocks)
        hold_state(state, slot, start + chunk)
    add_chunk(state, r, slot, chunk)
    _run_chunk(state, r, slot, start, chunk)
    return chunk


@compiled()
def _sit_out(state, r, slot):
    """Let the decodes from ``slot`` on wait: the budget is used up before them."""
    step = state.replicas[r].step + 1
    sitting = 0
    while slot != NONE:
        request = state.requests[slot]
        if request.phase == Phase.DECODING:
            held = sit_out(state, r, slot)
            state.request_memory[slot, START] = held
            state.request_memory[slot, STEP] = step
            list_one_longer(state, slot)
            enter_with(state, r, slot, held, step + 1)
            sitting += 1
        slot = request.next
    return sitting


@compiled()
def _walk(state, r):
    """Give each running request its tokens, in order of admission.

    Returns the budget that is left and how many decodes sit out.
    """
    budget = state.engine[0].max_num_batched_tokens
    slot = state.replicas[r].running_head
    while slot != NONE and budget > 0:
        request = state.requests[slot]
        if request.phase == Phase.DECODING:
            if not _decode(state, r, slot):
                return budget, 0
            budget -= 1
        elif request.phase == Phase.PREFILLING:
            chunk = _continue_prompt(state, r, slot, budget)
            if chunk == NONE:
                return budget, 0
            budget -= chunk
        slot = request.next
    return budget, _sit_out(state, r, slot)


@compiled()
def _plan_prompts(state, r):
    """Plan the chunks of unfinished prompts; return their tokens and all new blocks.

    As long as nobody has to sit out or to be preempted.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    entering = blocks_in_iteration(state, r, replica.step + 1)
    all_blocks = entering * (1 + engine.state_groups)
    spent = 0
    behind = 0  # decodes from the tail of the running ones to ``last``
    slot = first_listed(state, r)
    while slot != NONE:
        request = state.requests[slot]
        if request.phase == Phase.PREFILLING:
            behind = 0
            other = replica.running_tail
            while other != slot:
                behind += int(state.requests[other].phase == Phase.DECODING)
                other = state.requests[other].previous
            left = engine.max_num_batched_tokens - spent
            left -= replica.decode_count - behind
            chunk, blocks = _next_chunk(state, slot, left)
            chunk = max(chunk, 0)
            state.request_memory[slot, CHUNK] = chunk
            if chunk > 0:
                spent += chunk
                all_blocks += blocks
        slot = next_listed(state, slot)
    return spent, all_blocks


@compiled()
def _keep_all_listed(state, r):
    """Do the same as ``_walk`` where nobody sits out: to those who need it alone."""
    slot = first_entering(state, r, state.replicas[r].step + 1)
    while slot != NONE:
        if state.requests[slot].phase == Phase.DECODING:
            _keep_listed(state, r, slot)
        slot = next_entering(state, slot)
    slot = first_listed(state, r)
    while slot != NONE:
        following = next_listed(state, slot)
        phase = state.requests[slot].phase
        if phase == Phase.DECODING:
            _decode(state, r, slot)
        elif phase == Phase.PREFILLING:
            _continue_prompt(state, r, slot, int(state.request_memory[slot, CHUNK]))
        slot = following


@compiled()
def _continue_running(state, r):
    """Give each running request its tokens; return the budget left, who sits out."""
    replica = state.replicas[r]
    budget = state.engine[0].max_num_batched_tokens - replica.decode_count
    entering = blocks_in_iteration(state, r, replica.step + 1)
    if first_listed(state, r) == NONE and entering == 0:
        log_decodes(state, r)
        return budget, 0
    spent, blocks = _plan_prompts(state, r)
    fits = spent <= budget and blocks <= replica.free_blocks
    if state.engine[0].recording != 0 or not fits:
        return _walk(state, r)
    _keep_all_listed(state, r)
    return budget - spent, 0


@compiled()
def _admit(state, r, slot, budget):
    """Admit a waiting request, or NONE, if it fits; return the tokens scheduled."""
    replica = state.replicas[r]
    engine = state.engine[0]
    if not may_start(state, r, slot):
        return 0
    request = state.requests[slot]
    size = engine.block_size
    cached, _ = count_hits(state, r, slot)
    hits, free = count_state_hits(state, r, slot, cached)
    state.request_memory[slot, SHARED] = cached * size if cached > hits else 0
    start = hits * size
    chunk = min(request.known_tokens - start, budget)
    chunk = chunk_to_boundary(state, slot, start, chunk)
    if chunk == 0 or (hits > 0 and is_hashed_now(state, r, slot, start)):
        return 0
    for index in range(hits):
        label = state.spare[r, replica.spare_count + index]
        free += int(state.blocks[r, label].references == 0)
    needed = ceil_div(request.known_tokens, size) - hits + engine.state_groups
    if needed + free > replica.free_blocks:
        return 0
    adopt_hits(state, r, slot, hits)
    state.request_memory[slot, HELD] = 0
    if hits > 0:
        adopt_state(state, r, slot, hits)
    after = start + chunk
    take_blocks(state, r, ceil_div(after, size) - hits + engine.state_groups)
    hold_state(state, slot, after)
    start_prefill(state, r, slot, start, chunk)
    _run_chunk(state, r, slot, start, chunk)
    return chunk


@inlined()
def _horizon(state, r):
    """Return for how many iterations all only decode, none in a block that is new."""
    if first_listed(state, r) != NONE:
        return 1
    step = state.replicas[r].step + 1
    most = iterations_to_completion(state, r)
    n = 1
    while n < most and blocks_in_iteration(state, r, step + n) == 0:
        n += 1
    return n


@compiled(SCHEDULE)
def schedule(state, r):
    """Give each running request its tokens, then admit while budget is left."""
    replica = state.replicas[r]
    budget, sitting = _continue_running(state, r)
    if replica.preempted == 0:
        while budget > 0:
            chunk = _admit(state, r, replica.waiting_head, budget)
            if chunk == 0:
                break
            budget -= chunk
    replica.prefilling = unlist_ended(state, r, replica.step + 1)
    if replica.batch_tokens + replica.batch_extra_count > 0:
        if sitting == 0 or state.engine[0].ranks > 0:
            return 1  # of ranks the group runs it
        run_iterations(state, r, 1, replica.until_s)
        end_sitting(state, r)
        return -1
    if replica.decode_count == 0:
        return 0
    ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    return 1 if replica.preempted > 0 or ends else _horizon(state, r)
