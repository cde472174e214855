"""vLLM V1's scheduler on a decode replica that pulls prompts' KV and verifies drafts.

As ``v1/copies.py`` and ``vllm_v1.py``, of vLLM 0.32. A copy begins
where blocks stay free for the first iteration of all whose copy has begun, of an
unfinished prompt, and of one request more (``_spec_decode_step_blocks``). When it is
here, the last prompt token is computed again beside drafts that are none. The blocks of
a request that the iteration in flight discards are free when that is collected
(``defer_block_free``).
"""

import math

from capplan.simulator.engine.batch import add_chunk, iterations_to_completion
from capplan.simulator.engine.log import log_entry
from capplan.simulator.engine.run_speculative import (
    is_discarded,
    preempt_speculating,
    run_speculative,
    sit_out,
)
from capplan.simulator.engine.speculation import REPLICA, REQUEST, SETTING, settle
from capplan.simulator.engine.speculation import RULES as RULES
from capplan.simulator.engine.verifying import (
    admit,
    decodes_that_fit,
    discarded,
    found_blocks,
    hold_discarded,
    note_padding,
    others_in_batch,
    room_of_verified,
    take_next_blocks,
    verified_tokens,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.copies import REPLICA as COPIES
from capplan.simulator.kv.copies import REQUEST as COPY
from capplan.simulator.kv.copies import begin_copy, is_known, join_copied
from capplan.simulator.kv.kvcache import ceil_div, take_blocks
from capplan.simulator.state import NONE, SCHEDULE, Phase


@inlined()
def _first_blocks(state, tokens):
    """Return the blocks of a request that knows so many tokens and verifies drafts."""
    tokens += verified_tokens(state) + int(state.settings[SETTING.lookahead])
    return ceil_div(tokens, state.engine[0].block_size)


@inlined()
def _more_with_drafts(state, known_tokens, room_tokens):
    """Return the blocks that a request takes until it verifies drafts."""
    held = ceil_div(room_tokens, state.engine[0].block_size)
    return _first_blocks(state, known_tokens) - held


@inlined()
def _begin_copy(state, r, slot, reserved):
    """Begin the copy of a prompt if it fits; return whether it does."""
    reserved += int(state.replica_memory[r, COPIES.reserved])
    reserved += _first_blocks(state, 0)
    hits = 0
    hits_free = 0
    if state.engine[0].prefix_caching != 0:
        hits, hits_free = found_blocks(state, r, slot)
    fits = begin_copy(state, r, slot, hits, hits_free, reserved)
    if fits:
        tokens = state.requests[slot].prompt_tokens
        more = _more_with_drafts(state, tokens, tokens)
        state.replica_memory[r, COPIES.reserved] += more
    return fits


@inlined()
def _compute_last_again(state, r, slot, budget, pads):
    """Let a request compute its last prompt token; return the tokens, 0: no room."""
    replica = state.replicas[r]
    request = state.requests[slot]
    padding = 0
    prompt = request.prompt_tokens
    if pads == 1 or (pads == 2 and prompt > 1):
        padding = int(state.settings[SETTING.drafts])
    if 1 + padding > budget:
        return 0
    size = state.engine[0].block_size
    room = prompt + padding + int(state.settings[SETTING.lookahead])
    blocks = ceil_div(room, size) - ceil_div(prompt, size)
    if blocks > replica.free_blocks:
        return 0
    take_blocks(state, r, blocks)
    more = _more_with_drafts(state, prompt, prompt)
    state.replica_memory[r, COPIES.reserved] -= more
    join_copied(state, r, slot, NONE)
    request.room_tokens = room
    request.phase = Phase.PREFILLING
    log_entry(state, request.row, prompt - 1, 1)
    replica.batch_extra_count += 1
    replica.batch_extra_tokens += prompt
    request.next_in_list = replica.joining
    replica.joining = slot
    state.request_memory[slot, REQUEST.padded] = 0.0
    if padding > 0:
        note_padding(state, r, slot, padding)
    return 1 + padding


@compiled()
def _start_copied(state, r, budget, pads, idle):
    """Let those run whose copy is known, in order, until one has no room.

    Return the budget left, 0 where one had none, when the next copy is here, whether
    one is here unknown, and the blocks that those that run now take after it.
    """
    replica = state.replicas[r]
    seats = state.engine[0].max_num_seqs
    next_s = math.inf
    unknown = False
    reserved = 0
    slot = replica.waiting_head
    while slot != NONE:
        request = state.requests[slot]
        following = request.next
        memory = state.request_memory[slot]
        ready_s = memory[COPY.ready_s]
        if ready_s == 0.0 and request.preemptions == 0:
            break  # all that have begun stand before
        if ready_s > replica.now_s:
            next_s = min(next_s, ready_s)
        elif ready_s > 0.0 and not is_known(state, r, memory, idle):
            unknown = True
        elif ready_s > 0.0 and budget > 0 and replica.running_count < seats:
            tokens = _compute_last_again(state, r, slot, budget, pads)
            budget = 0 if tokens == 0 else budget - tokens
            if tokens > 0:
                known = request.prompt_tokens
                reserved += _more_with_drafts(state, known, request.room_tokens)
        slot = following
    return budget, next_s, unknown, reserved


@inlined()
def _admit_waiting(state, r, budget, pads, reserved):
    """Begin copies and admit, in order, until one does not fit.

    Copies leave ``reserved`` blocks free, and what those begun before will take.
    Return when the first of these copies is here.
    """
    replica = state.replicas[r]
    seats = state.engine[0].max_num_seqs
    next_s = math.inf
    slot = replica.waiting_head
    while slot != NONE and budget > 0 and replica.running_count < seats:
        following = state.requests[slot].next
        memory = state.request_memory[slot]
        if memory[COPY.source] == 0.0:
            tokens = admit(state, r, slot, budget, 0, pads)
            if tokens == 0:
                break
            budget -= tokens
        elif memory[COPY.ready_s] == 0.0:
            if not _begin_copy(state, r, slot, reserved):
                break
            next_s = min(next_s, memory[COPY.ready_s])
        slot = following
    return next_s


@compiled()
def _start_when_idle(state, r, budget, pads):
    """Let those run whose copy is here, since nothing else can; then admit again."""
    budget, next_s, _, reserved = _start_copied(state, r, budget, pads, True)
    return min(next_s, _admit_waiting(state, r, budget, pads, reserved))


@inlined()
def _frees_blocks(state, r, blocks, slot):
    """Preempt until so many blocks are free for a request; return whether they are."""
    replica = state.replicas[r]
    while replica.free_blocks < blocks:
        victim = replica.running_tail
        sat_out = int(state.request_memory[victim, REQUEST.sat_out])
        if replica.in_flight > 0 and sat_out != replica.step:
            return False
        preempt_speculating(state, r, victim)
        if victim == slot:
            return False
    return True


@compiled()
def _run_in_order(state, r):
    """Give each running request its tokens, in order; return the budget that is left.

    And from which request on they sit the iteration out for want of blocks or budget,
    who is cut to what was left of the budget, or NONE, and to how many tokens.
    """
    replica = state.replicas[r]
    step = replica.step + 1
    flying = replica.in_flight > 0
    budget = state.engine[0].max_num_batched_tokens
    size = state.engine[0].block_size
    cut = NONE
    cut_tokens = 0
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        verifies = request.phase == Phase.DECODING or is_discarded(state, r, slot)
        if verifies and budget > 0:
            tokens = min(verified_tokens(state), budget)
            room = room_of_verified(state, slot, step, flying, tokens)
        elif replica.prefilling == slot and budget > 0:
            left = request.known_tokens - request.computed_tokens
            tokens = min(left, budget)
            room = request.computed_tokens + tokens
            room += int(state.settings[SETTING.lookahead])
        elif verifies or replica.prefilling == slot:
            return 0, slot, cut, cut_tokens
        else:
            slot = request.next
            continue
        blocks = ceil_div(room, size) - ceil_div(request.room_tokens, size)
        if not _frees_blocks(state, r, blocks, slot):
            waits = NONE if request.phase == Phase.WAITING else slot
            return budget, waits, NONE, 0
        take_blocks(state, r, blocks)
        request.room_tokens = room
        if replica.prefilling == slot:
            add_chunk(state, r, slot, tokens)
        elif tokens < verified_tokens(state):
            cut = slot
            cut_tokens = tokens
        budget -= tokens
        slot = request.next
    return budget, NONE, cut, cut_tokens


@compiled()
def _sit_out(state, r, slot, last):
    """Let running requests, from one to the last of them, sit the iteration out."""
    while slot != NONE:
        following = NONE if slot == last else state.requests[slot].next
        if state.requests[slot].phase == Phase.DECODING:
            sit_out(state, r, slot)
        else:
            memory = state.request_memory[slot]
            memory[REQUEST.sat_out] = state.replicas[r].step + 1
            memory[REQUEST.discarded] = 0.0
        slot = following


@compiled()
def _blocks_of_discarded(state, r):
    """Return the blocks that only requests hold which are computed and discarded."""
    count = 0
    slot = state.replicas[r].oldest_finishing
    while slot != NONE:
        request = state.requests[slot]
        if is_discarded(state, r, slot):
            count += ceil_div(request.room_tokens, state.engine[0].block_size)
            count += request.bounded_blocks
            for index in range(request.shared_blocks):
                label = state.holdings[slot, index]
                count -= int(state.blocks[r, label].references > 1)
        slot = request.next_in_list
    return count


@inlined()
def _schedule(state, r, changes):
    """Schedule and run an iteration or a jump; return 0 where there is none.

    With ``changes`` the next one may have other requests.
    """
    replica = state.replicas[r]
    budget = state.engine[0].max_num_batched_tokens
    others, parts, blocks = discarded(state, r)
    has_discarded = others > 0
    changes = changes or has_discarded
    wanted = (replica.decode_count + others) * verified_tokens(state)
    most = 1
    if replica.heap_count > 0:
        most = iterations_to_completion(state, r)
    unfinished = replica.prefilling
    slow = wanted > budget or unfinished != NONE
    if slow:
        settle(state, r)
    else:
        slow = not take_next_blocks(state, r, blocks)
    waits = NONE
    last = replica.running_tail
    left = budget - wanted
    cut = NONE
    tokens = 0
    if slow:
        left, waits, cut, tokens = _run_in_order(state, r)
    elif others > 0:
        hold_discarded(state, r, blocks)
    runs = left < budget or (waits != NONE and left == 0)
    state.replica_memory[r, REPLICA.padded] = 0.0
    next_s = math.inf
    unknown = False
    # 2: only behind tokens computed before; 0: not beside a prompt that goes on.
    pads = 1 if runs else 2
    if replica.batch_tokens + replica.batch_extra_count > 0:
        pads = 0
    if replica.preempted > 0:
        left = 0
    if replica.waiting_count > 0:
        left, next_s, unknown, reserved = _start_copied(state, r, left, pads, False)
        if unfinished != NONE:
            known = state.requests[unfinished].known_tokens
            room = state.requests[unfinished].room_tokens
            reserved += _more_with_drafts(state, known, room)
        begun_s = _admit_waiting(state, r, left, pads, reserved)
        next_s = min(next_s, begun_s)
    runs = runs or replica.batch_tokens + replica.batch_extra_count > 0
    if not runs and unknown and replica.in_flight == 0:
        next_s = _start_when_idle(state, r, left, pads)
        runs = replica.batch_extra_count > 0
    if next_s < math.inf and replica.preempted == 0:
        replica.idle_until_s = next_s
    if not runs:
        return 0
    if waits != NONE:
        _sit_out(state, r, waits, last)
    sitting = 0
    if slow or state.engine[0].recording != 0:
        others, parts, sitting = others_in_batch(state, r, cut, tokens)
    if has_discarded:
        state.replica_memory[r, COPIES.withheld] = _blocks_of_discarded(state, r)
    horizon = 1
    if replica.batch_tokens + replica.batch_extra_count == 0:
        ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
        if not (slow or changes or ends or unknown or replica.preempted > 0):
            horizon = decodes_that_fit(state, r, most)
    replica.until_s = min(replica.until_s, next_s)
    state.replica_memory[r, REPLICA.more_count] = others
    state.replica_memory[r, REPLICA.more_parts] = parts
    replica.sitting = sitting
    return run_speculative(state, r, horizon)


@compiled(SCHEDULE)
def schedule(state, r):
    """Let all run that have their KV, then admit and pull in order of arrival."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    memory[COPIES.calls] += 1.0
    replica.idle_until_s = 0.0
    withheld = 0
    if replica.in_flight > 0:
        withheld = int(memory[COPIES.withheld])
    memory[COPIES.withheld] = 0.0
    replica.free_blocks -= withheld
    n = _schedule(state, r, withheld > 0)
    replica.free_blocks += withheld
    return n
