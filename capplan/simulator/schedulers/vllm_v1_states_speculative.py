"""vLLM V1's scheduler where prefix caching keeps states and drafts are verified.

``vllm_v1_states.py`` with the drafts of ``vllm_v1_speculative.py``, unnamed by users.
What runs is taken in order of admission: a decode verifies fewer drafts where less of
the budget is left, and sits the iteration out where nothing is. With a draft that has
KV a prompt is cut a block earlier, and the last block found is computed again.
"""

from capplan.simulator.engine.batch import (
    add_chunk,
    iterations_to_completion,
    may_start,
)
from capplan.simulator.engine.log import log_entry
from capplan.simulator.engine.run_speculative import (
    is_discarded,
    preempt_speculating,
    run_speculative,
    sit_out,
)
from capplan.simulator.engine.speculation import (
    REPLICA,
    REQUEST,
    SETTING,
    context_parts,
    context_parts_on_line,
    tokens_before,
)
from capplan.simulator.engine.speculation import RULES as RULES
from capplan.simulator.engine.verifying import (
    discarded,
    found_blocks,
    padding_tokens,
    room_of_verified,
    start_padded,
    verified_tokens,
    verify_fewer,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.drafted_states import (
    EARLIEST,
    collected_before,
    drops_block,
    hashed_before,
    is_hashed_with_drafts,
    next_due,
    note_start,
    room_needed,
    take_room,
)
from capplan.simulator.kv.kvcache import adopt_hits, ceil_div, take_blocks
from capplan.simulator.kv.states import (
    DUE,
    HELD,
    KNOWN,
    SHARED,
    adopt_state,
    chunk_to_boundary,
    collected_tokens,
    count_state_hits,
    free_old_states,
    hold_state,
    share_state,
)
from capplan.simulator.state import NONE, SCHEDULE, Phase

_HASHED_NOW = -1


@inlined()
def _make_room(state, r, slot, blocks):
    """Preempt the newest requests until blocks are free; return if ``slot`` is not."""
    while blocks > state.replicas[r].free_blocks:
        victim = state.replicas[r].running_tail
        preempt_speculating(state, r, victim)
        if victim == slot:
            return False
    return True


@compiled()
def _verify(state, r, slot, tokens):
    """Give a request ``tokens`` to compute and blocks; return 0 where preempted."""
    replica = state.replicas[r]
    request = state.requests[slot]
    memory = state.request_memory[slot]
    step = replica.step + 1
    decodes = request.phase == Phase.DECODING
    if not decodes or memory[DUE] <= step:
        collected = collected_before(state, r, slot, step)
        free_old_states(state, r, slot, collected, hashed_before(state, slot, step))
        flying = replica.in_flight > 0
        room = room_of_verified(state, slot, step, flying, tokens)
        blocks, enters = room_needed(state, slot, room)
        if not _make_room(state, r, slot, blocks):
            return 0
        take_room(state, r, slot, room, blocks, enters)
        memory[DUE] = next_due(state, slot, step)
    computed = tokens_before(state, slot, step)
    log_entry(state, request.row, computed, tokens)
    return 1


@inlined()
def _note_chunk(state, r, slot, start, chunk):
    """Note a chunk of a prompt, whose blocks are taken, and its state."""
    note_start(state, r, slot, start, start + chunk)
    share_state(state, r, slot, start + chunk)


@compiled()
def _continue_prompt(state, r, slot, budget):
    """Give an unfinished prompt a chunk; return its tokens, NONE if preempted."""
    request = state.requests[slot]
    start = request.computed_tokens
    chunk = min(request.known_tokens - start, budget)
    chunk = chunk_to_boundary(state, slot, start, chunk, drops_block(state))
    if chunk <= 0:
        return 0
    collected = collected_tokens(state, r, slot, start)
    free_old_states(state, r, slot, collected, start)
    room = start + chunk + int(state.settings[SETTING.lookahead])
    blocks, enters = room_needed(state, slot, room)
    if not _make_room(state, r, slot, blocks):
        return NONE
    take_room(state, r, slot, room, blocks, enters)
    add_chunk(state, r, slot, chunk)
    _note_chunk(state, r, slot, start, chunk)
    return chunk


@inlined()
def _sit_out(state, r, slot):
    """Let a decode wait; return the context that the iteration lacks. [parts]"""
    step = state.replicas[r].step + 1
    held = tokens_before(state, slot, step)
    note_start(state, r, slot, held, state.request_memory[slot, KNOWN])
    sit_out(state, r, slot)
    return context_parts_on_line(state, slot, step)


@compiled()
def _walk(state, r):
    """Give each running request its tokens, in order of admission.

    Returns the budget that is left; how many verify, 0 where a prompt goes on too;
    those that it discards less those that sit out, their contexts, and how many sit;
    then the newest prompt that is unfinished.
    """
    replica = state.replicas[r]
    step = replica.step + 1
    budget = state.engine[0].max_num_batched_tokens
    verified = verified_tokens(state)
    count = 0
    others = 0
    parts = 0.0
    sitting = 0
    chunks = 0
    fewer = 0
    unfinished = NONE
    earliest = float(2**62)
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        discards = is_discarded(state, r, slot)
        if request.phase == Phase.PREFILLING:
            chunk = 0
            if budget > 0:
                chunk = _continue_prompt(state, r, slot, budget)
            if chunk == NONE:
                break
            budget -= chunk
            chunks += chunk
            if request.computed_tokens < request.known_tokens:
                unfinished = slot
        elif request.phase == Phase.DECODING or discards:
            tokens = min(verified, budget)
            if tokens > 0:
                if not _verify(state, r, slot, tokens):
                    break
                budget -= tokens
                fewer += verified - tokens
                count += 1
                if discards:
                    others += 1
                    parts += context_parts(state, slot, step)
                elif tokens < verified:
                    held = tokens_before(state, slot, step)
                    note_start(state, r, slot, held, held + 1)
                    parts += verify_fewer(state, r, slot, tokens)
                else:
                    earliest = min(earliest, state.request_memory[slot, DUE])
            elif discards:
                state.request_memory[slot, REQUEST.discarded] = 0.0
            else:
                parts -= _sit_out(state, r, slot)
                sitting += 1
        slot = request.next
    state.replica_memory[r, EARLIEST] = earliest
    state.replica_memory[r, REPLICA.padded] = -fewer
    running = 0 if chunks > 0 else count
    return budget, running, others - sitting, parts, sitting, unfinished


@compiled()
def _admit(state, r, slot, budget, pads):
    """Admit a waiting request, or NONE, if it fits; return the tokens scheduled.

    -1 where the state that it would use is hashed in this iteration.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    if not may_start(state, r, slot):
        return 0
    request = state.requests[slot]
    size = engine.block_size
    cached, _ = found_blocks(state, r, slot)
    hits, free = count_state_hits(state, r, slot, cached)
    state.request_memory[slot, SHARED] = cached * size if cached > hits else 0
    start = hits * size
    padding = padding_tokens(state, slot, start, pads)
    if padding > 0 and 1 + padding > budget:
        return 0
    chunk = min(request.known_tokens - start, budget)
    chunk = chunk_to_boundary(state, slot, start, chunk, drops_block(state))
    if chunk == 0:
        return 0
    if hits > 0 and is_hashed_with_drafts(state, r, slot, start):
        return _HASHED_NOW
    for index in range(hits):
        label = state.spare[r, replica.spare_count + index]
        free += int(state.blocks[r, label].references == 0)
    after = start + chunk + padding
    room = after + int(state.settings[SETTING.lookahead])
    states = engine.state_groups * (1 + engine.state_blocks)
    needed = max(ceil_div(request.known_tokens, size), ceil_div(room, size))
    if needed - hits + states + free > replica.free_blocks:
        return 0
    adopt_hits(state, r, slot, hits)
    state.request_memory[slot, HELD] = 0
    if hits > 0:
        adopt_state(state, r, slot, hits)
    take_blocks(state, r, ceil_div(room, size) - hits + states)
    hold_state(state, slot, after)
    start_padded(state, r, slot, start, chunk, padding, room)
    _note_chunk(state, r, slot, start, chunk)
    return chunk + padding


@inlined()
def _continue_running(state, r):
    """Give each running request its tokens; look at none where nothing is due."""
    replica = state.replicas[r]
    budget = state.engine[0].max_num_batched_tokens
    wanted = replica.decode_count * verified_tokens(state)
    others, _, _ = discarded(state, r)
    same = replica.prefilling == NONE and others == 0 and wanted <= budget
    same = same and state.replica_memory[r, EARLIEST] > replica.step + 1
    if same and state.engine[0].recording == 0:
        return budget - wanted, replica.decode_count, 0, 0.0, 0, NONE
    return _walk(state, r)


@compiled(SCHEDULE)
def schedule(state, r):
    """Give each running request its tokens, admit while budget is left, and run."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    memory[REPLICA.padded] = 0.0
    budget, running, others, parts, sitting, unfinished = _continue_running(state, r)
    # 2: only behind tokens found in the cache; 0: not beside a prompt that goes on.
    pads = 1 if running > 0 else 2
    if replica.batch_tokens + replica.batch_extra_count > 0:
        pads = 0
    chunk = 0
    if replica.preempted == 0:
        while budget > 0:
            slot = replica.waiting_head
            chunk = _admit(state, r, slot, budget, pads)
            if chunk <= 0:
                break
            budget -= chunk
            if state.requests[slot].computed_tokens < state.requests[slot].known_tokens:
                unfinished = slot
    replica.prefilling = unfinished
    horizon = 1
    if replica.batch_tokens + replica.batch_extra_count > 0:
        memory[EARLIEST] = 0.0
    elif running == 0:
        return 0
    else:
        ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
        changes = ends or others != 0 or sitting > 0 or replica.preempted > 0
        if not changes and chunk != _HASHED_NOW and unfinished == NONE:
            due = int(memory[EARLIEST]) - replica.step - 1
            horizon = min(iterations_to_completion(state, r), due)
    return run_speculative(state, r, horizon, others, parts, sitting, True)
