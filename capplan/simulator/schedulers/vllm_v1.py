"""vLLM V1's scheduler: running requests first, then the queue in arrival order.

vLLM 0.32, v1/core/sched/scheduler.py, ``Scheduler.schedule``. What an engine may have
beside it are flags, whose rules stand in ``simulator/v1/``; ``capable.built`` makes the
schedule of a set of them. Running requests that only decode are not looked at, unless
one lacks a block or a flag asks for it.
"""

import math

from capplan.simulator.capable import Capable
from capplan.simulator.engine.batch import (
    add_chunk,
    log_decodes,
    may_start,
    preempt,
    same_batch,
    start_prefill,
)
from capplan.simulator.engine.decoding import computed_tokens, sit_out
from capplan.simulator.engine.log import log_entry
from capplan.simulator.engine.ordered import remove_ordered
from capplan.simulator.engine.speculation import verified_tokens
from capplan.simulator.engine.verifying import is_discarded
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.copies import begin_copy, is_known
from capplan.simulator.kv.kvcache import (
    adopt_hits,
    blocks_in_iteration,
    ceil_div,
    count_hits,
    may_find_more,
    take_blocks,
)
from capplan.simulator.kv.states import (
    HELD,
    adopt_state,
    chunk_to_boundary,
    hold_state,
    share_state,
    shares_tokens,
)
from capplan.simulator.state import NONE, SCHEDULE, Phase, State
from capplan.simulator.v1 import (
    adapters,
    cadence,
    copies,
    drafts,
    encoder_cache,
    images,
    priority,
    run_stages,
    staged_states,
    stages,
    states,
    tiers,
    transfers,
)

ADAPTERS = CADENCE = COPIES = DRAFTS = IMAGES = PRIORITY = STAGES = STATES = False
TIERS = False
CAPABILITIES = {
    "CADENCE": cadence.CAPABILITY,
    "COPIES": copies.CAPABILITY,
    "DRAFTS": drafts.CAPABILITY,
    "IMAGES": encoder_cache.CAPABILITY,
    "ADAPTERS": adapters.CAPABILITY,
    "STATES": states.CAPABILITY,
    "STAGES": stages.CAPABILITY,
    "TIERS": tiers.CAPABILITY,
    "PRIORITY": priority.CAPABILITY,
}
"""What each flag stands for; columns of an engine's own stand in this order."""
capable = Capable()


@capable(inlined())
def _decoding(state: State, r: int):
    """Return whose record has those that decode in the next iteration."""
    if STAGES:
        return state.by_rank, stages.next_micro_batch(state, r)
    return state, r


@capable(inlined())
def _is_passed(state: State, r: int, slot: int, other):
    """Return whether a request stands before another and had its turn already."""
    if STAGES and stages.is_elsewhere(state, r, slot):
        return False
    return state.requests[slot].admission < state.requests[other].admission


@capable(inlined())
def _last(state: State, r: int):
    """Return the running request that is preempted first."""
    if PRIORITY:
        return priority.last_of_all(state, r)
    return state.replicas[r].running_tail


@capable(inlined())
def _preempt_one(state: State, r: int, slot: int):
    """Preempt a running request so that another gets its blocks; return which."""
    taken = 0
    victim = _last(state, r)
    if PRIORITY and _is_passed(state, r, victim, slot):
        tokens = priority.leave_iteration(state, r, victim)
        if DRAFTS:
            rows, m = _decoding(state, r)
            tokens = drafts.leave_verifying(rows, m, victim, tokens)
        state.replicas[r].left_tokens += tokens
        if IMAGES:
            images.leave_encoder(state, r, victim)
        prompt = state.requests[victim].phase == Phase.PREFILLING
        taken = int(tokens > 0 and not prompt)
    if IMAGES:
        images.drop_images(state, r, victim)
    if STAGES:
        if IMAGES or STATES:
            stages.forget_turn(state, r, victim)
        stages.preempt_staged(state, r, victim, taken)
    else:
        preempt(state, r, victim, taken)
    if TIERS:
        transfers.flush_preempted(state, r, victim)
    if PRIORITY:
        priority.place_waiting(state, r, victim, NONE)
    elif TIERS:
        tiers.place_behind_loads(state, r, victim)
    return victim


@capable(inlined())
def _take(state: State, r: int, blocks):
    """Take free blocks; the iteration waits for copies of what they held."""
    if TIERS:
        transfers.note_taken(state, r, blocks)
    take_blocks(state, r, blocks)


@capable(compiled())
def _make_room(state: State, r: int, slot: int, blocks):
    """Take blocks for a request, preempting for them; return whether it has them."""
    while state.replicas[r].free_blocks < blocks:
        if (COPIES or TIERS) and copies.may_not_preempt(state, r, _last(state, r)):
            return False
        if _preempt_one(state, r, slot) == slot:
            return False
    _take(state, r, blocks)
    return True


@capable(inlined())
def _take_room(state: State, r: int, slot: int, start, after):
    """Take the blocks of a request's tokens up to ``after``; return if it has them.

    It has those of ``start`` tokens, and the states behind them; with drafts those of
    its ``room_tokens``, which has the lookahead.
    """
    size = state.engine[0].block_size
    more = 0
    if DRAFTS:
        more = drafts.lookahead_tokens(state)
        start = state.requests[slot].room_tokens - more
    blocks = ceil_div(after + more, size) - ceil_div(start + more, size)
    if DRAFTS:
        drafts.count_where_short(state, r, blocks)
    if STATES:
        enters = ceil_div(after, size) > ceil_div(start, size)
        blocks += int(enters) * state.engine[0].state_groups
    if not _make_room(state, r, slot, blocks):
        return False
    if STATES and enters:
        hold_state(state, slot, after)
    if DRAFTS:
        state.requests[slot].room_tokens = after + more
    return True


@capable(inlined())
def _free_states(state: State, r: int, slot: int, computed):
    """Free the states that a request no longer needs; it has ``computed`` tokens."""
    if STAGES:
        staged_states.free_states_on_stages(state, r, slot, computed)
    else:
        states.free_states_behind(state, r, slot, computed)


@capable(inlined())
def _note_turn(state: State, r: int, slot: int, start):
    """Note that the step on stages has tokens of a request, behind ``start`` others."""
    if IMAGES or STATES:
        stages.note_in_flight(state, r, slot, start)


@capable(inlined())
def _note_chunk(state: State, r: int, slot: int, start, chunk):
    """Note a chunk of a prompt, whose blocks are taken, and its state."""
    if not STAGES:
        states.note_start(state, r, slot, start, start + chunk)
    share_state(state, r, slot, start + chunk)


@capable(inlined())
def _continue_prompt(state: State, r: int, slot: int, budget):
    """Schedule the next chunk of a prompt; return its tokens, NONE for no room."""
    request = state.requests[slot]
    start = request.computed_tokens
    chunk = min(request.known_tokens - start, budget)
    if STATES:
        chunk = chunk_to_boundary(state, slot, start, chunk)
    if IMAGES and chunk > 0:
        first = int(state.request_memory[slot, encoder_cache.REQUEST.end])
        chunk = encoder_cache.fit_images(state, r, slot, start, chunk)
    if chunk <= 0:
        return 0
    if STATES:
        _free_states(state, r, slot, start)
    if not _take_room(state, r, slot, start, start + chunk):
        return NONE
    if (COPIES or TIERS) and PRIORITY:
        copies.note_chunk_before(state, slot)
    add_chunk(state, r, slot, chunk)
    if STAGES:
        stages.note_step(state, r, slot)
        _note_turn(state, r, slot, start)
    if STATES:
        _note_chunk(state, r, slot, start, chunk)
    if IMAGES:
        images.run_chunk(state, r, slot, first)
    return chunk


@capable(inlined())
def _is_due(state: State, r: int, slot: int, held):
    """Return whether the blocks of a decode may change; its old states are free then.

    It holds so many tokens.
    """
    if STAGES:
        staged_states.free_states_on_stages(state, r, slot, held)
        return True
    return states.is_due(state, r, slot)


@capable(inlined())
def _decode(state: State, r: int, slot: int):
    """Give a decode its tokens and blocks; return how many, NONE for no room."""
    rows, m = _decoding(state, r)
    held = computed_tokens(state, slot, rows.replicas[m].step + 1)
    tokens = 1
    after = held + 1
    takes = True
    if DRAFTS:
        tokens = min(verified_tokens(state), state.replicas[r].left_tokens)
        after = drafts.slots_verified(rows, m, slot, tokens)
    if STATES:
        takes = _is_due(state, r, slot, held)
    if takes and not _take_room(state, r, slot, held, after):
        return NONE
    if STAGES:
        _note_turn(state, r, slot, held)
    elif STATES:
        states.note_due(state, r, slot, tokens, takes)
    if IMAGES and state.requests[slot].phase == Phase.DECODING:
        images.note_run(state, r, slot)
    if DRAFTS:
        drafts.verify(rows, m, slot, tokens)
    else:
        log_entry(state, state.requests[slot].row, held, 1)
    return tokens


@capable(compiled())
def _sit_out_behind(state: State, r: int, admission):
    """Let the decodes behind some admission sit the iteration out."""
    slot = state.replicas[r].running_tail
    while slot != NONE and state.requests[slot].admission > admission:
        if STAGES:
            if stages.decodes_next(state, r, slot):
                stages.miss_step(state, r, slot)
            elif DRAFTS and not stages.is_elsewhere(state, r, slot):
                drafts.miss_discarded(state, slot)
        elif DRAFTS:
            if STATES:
                states.note_waiting_start(state, r, slot)
            drafts.wait_verifying(state, r, slot)
        elif state.requests[slot].phase == Phase.DECODING:
            if STATES:
                states.note_waiting_start(state, r, slot)
            sit_out(state, r, slot)
        slot = state.requests[slot].previous


@capable(compiled())
def _walk(state: State, r: int, defers):
    """Give each running request its tokens, in order of admission.

    Those behind the last for which there are blocks and budget sit the iteration out;
    where nobody has any there is none.
    """
    replica = state.replicas[r]
    budget = state.engine[0].max_num_batched_tokens
    replica.left_tokens = budget
    if DRAFTS:
        drafts.look_at_all(state, r)
    if STATES:
        states.look_at_all(state, r)
    slot = replica.running_head
    admission = replica.admissions
    while slot != NONE:
        request = state.requests[slot]
        if STAGES and stages.is_elsewhere(state, r, slot):
            slot = request.next
            continue
        tokens = 0
        if replica.left_tokens == 0:
            admission = request.admission - 1
            break
        decodes = request.phase == Phase.DECODING
        if DRAFTS:
            rows, m = _decoding(state, r)
            decodes = decodes or is_discarded(rows, m, slot)
        if decodes:
            tokens = _decode(state, r, slot)
        elif request.phase == Phase.PREFILLING and not defers:
            tokens = _continue_prompt(state, r, slot, replica.left_tokens)
        if tokens == NONE:
            admission = request.admission
            if COPIES or TIERS:
                admission -= int(request.phase != Phase.WAITING)
            break
        replica.left_tokens -= tokens
        slot = request.next
    if not COPIES and not STAGES and not TIERS and replica.left_tokens == budget:
        if STATES:
            states.look_again(state, r)
        return  # no iteration: a step of stages counts without requests too
    if (COPIES or TIERS) and DRAFTS:
        copies.wait_behind(state, r, admission)
    elif COPIES or DRAFTS or IMAGES or PRIORITY or STATES or TIERS:
        _sit_out_behind(state, r, admission)


@capable(inlined())
def _run_unseen(state: State, r: int):
    """Give those that decode their tokens where nobody else has to be looked at.

    Return False where all are to be: somebody may sit out, or be preempted.
    """
    if STAGES and DRAFTS:
        return False
    if STATES:
        return states.nothing_due(state, r)
    if DRAFTS:
        if TIERS and transfers.may_flush(state, r):
            return False
        return drafts.verify_unseen(state, r)
    rows, m = _decoding(state, r)
    left = state.engine[0].max_num_batched_tokens - rows.replicas[m].decode_count
    replica = state.replicas[r]
    needed = blocks_in_iteration(rows, m, rows.replicas[m].step + 1)
    if needed > replica.free_blocks:
        return False
    _take(state, r, needed)
    log_decodes(state, r)
    replica.left_tokens = left
    return True


@capable(inlined())
def _continue_running(state: State, r: int, defers):
    """Let all decode and unfinished prompts go on; the budget that is left is noted."""
    replica = state.replicas[r]
    walks = False
    if COPIES or TIERS:
        walks = copies.outrun_prompt(state, r)
    if IMAGES:
        walks = walks or images.needs_walk(state, r)
    if STAGES:
        walks = walks or state.engine[0].recording + state.engine[0].state_groups > 0
    if not walks:
        walks = not _run_unseen(state, r)
    if walks:
        _walk(state, r, defers)
    elif not STATES and replica.prefilling != NONE and not defers:
        left = replica.left_tokens
        chunk = _continue_prompt(state, r, replica.prefilling, left)
        replica.left_tokens -= max(chunk, 0)


@capable(inlined())
def _has_tokens(state: State, r: int, slot: int):
    """Return whether a running request is in the iteration."""
    request = state.requests[slot]
    if request.phase == Phase.PREFILLING:
        return request.chunk_step == state.replicas[r].step + 1
    if STAGES and stages.is_elsewhere(state, r, slot):
        return False
    if DRAFTS:
        rows, m = _decoding(state, r)
        return drafts.verifies(rows, m, slot)
    return request.phase == Phase.DECODING


@capable(compiled())
def _use_adapters(state: State, r: int):
    """Begin an iteration with the adapters of the running requests that are in it."""
    adapters.begin_adapters(state, r)
    slot = state.replicas[r].running_head
    while slot != NONE:
        if _has_tokens(state, r, slot):
            adapters.join_adapter(state, r, slot)
        slot = state.requests[slot].next


@capable(inlined())
def _find_hits(state: State, r: int, slot: int):
    """Return the blocks that a request need not compute, and the free ones of them."""
    hits = 0
    hits_free = 0
    if state.engine[0].prefix_caching != 0:
        if DRAFTS:
            hits, hits_free = drafts.found_blocks(state, r, slot)
        else:
            hits, hits_free = count_hits(state, r, slot)
    if STATES:
        hits, hits_free = states.find_states(state, r, slot, hits)
    return hits, hits_free


@capable(inlined())
def _hashes(state: State, r: int, slot: int, tokens):
    """Return whether the iteration hashes a running request's state at ``tokens``."""
    if STAGES:
        return staged_states.hashes_on_stages(state, r, slot, tokens)
    return states.hashes_state(state, r, slot, tokens)


@capable(compiled())
def _any_hashes(state: State, r: int, slot: int, tokens):
    """Return whether one that shares these tokens with a request hashes their state."""
    other = state.replicas[r].running_head
    while other != NONE:
        shares = shares_tokens(state, slot, other, tokens)
        if shares and _hashes(state, r, other, tokens):
            return True
        other = state.requests[other].next
    return False


@capable(inlined())
def _is_hashed_now(state: State, r: int, slot: int, tokens):
    """Return whether the iteration hashes the state that a request would use.

    vLLM then admits it later: the state may not be written yet.
    """
    hashed = _any_hashes(state, r, slot, tokens)
    if hashed:
        states.look_again(state, r)
    return hashed


@capable(inlined())
def _admit(state: State, r: int, slot: int, budget):
    """Admit a waiting request if it fits; return the tokens scheduled.

    Its whole prompt, and the tokens generated before a preemption, must fit the free
    blocks, although only those of its first chunk are taken, and of bounded groups.
    """
    if not may_start(state, r, slot):
        return 0
    engine = state.engine[0]
    request = state.requests[slot]
    size = engine.block_size
    loaded = False
    if TIERS:
        loaded = tiers.has_loaded(state, slot)
    if loaded:
        hits, hits_free = tiers.loaded_tokens(state, slot) // size, 0
    else:
        hits, hits_free = _find_hits(state, r, slot)
    start = hits * size
    if TIERS:
        start = min(start, request.known_tokens - 1)
    chunk = min(request.known_tokens - start, budget)
    more = 0
    if DRAFTS:
        more = drafts.padding(state, r, slot, start)
        if more > 0 and 1 + more > budget:
            return 0
    if STATES:
        chunk = chunk_to_boundary(state, slot, start, chunk)
    if IMAGES and chunk > 0:
        first = images.look_from(state, r, slot, start)
        chunk = encoder_cache.fit_images(state, r, slot, start, chunk)
    if chunk == 0:
        return 0
    bounded = request.bounded_blocks
    waits = False
    if STATES:
        bounded += engine.state_groups * (1 + engine.state_blocks)
        hits_free += states.count_free(state, r, hits)
        if hits > 0:
            waits = _is_hashed_now(state, r, slot, start)
    after = start + chunk
    room = after
    if DRAFTS:
        after += more
        room = after + drafts.lookahead_tokens(state)
    needed = ceil_div(max(request.known_tokens, room), size) - hits + bounded
    if DRAFTS:
        drafts.count_where_short(state, r, needed + hits_free)
    if waits or needed + hits_free > state.replicas[r].free_blocks:
        if IMAGES:
            images.refuse_images(state, r, slot, hits_free)
        return 0
    if TIERS and loaded:
        tiers.run_loaded(state, r, slot, room)
    elif TIERS:
        transfers.note_found(state, r, slot, hits)
    if engine.prefix_caching != 0 and not loaded:
        adopt_hits(state, r, slot, hits)
    if STATES:
        state.request_memory[slot, HELD] = 0.0
        if hits > 0:
            adopt_state(state, r, slot, hits)
    _take(state, r, ceil_div(room, size) - hits + bounded)
    if STATES:
        hold_state(state, slot, after)
    if DRAFTS:
        _, m = _decoding(state, r)
        drafts.start_padded(state, r, m, slot, start, chunk, more, room)
    else:
        start_prefill(state, r, slot, start, chunk)
    if STAGES:
        stages.note_step(state, r, slot)
        _note_turn(state, r, slot, start)
    if STATES:
        _note_chunk(state, r, slot, start, chunk)
    if IMAGES:
        images.run_first_chunk(state, r, slot, first)
    return chunk + more


@capable(inlined())
def _pull(state: State, r: int, slot: int):
    """Begin the copy of a request if it fits; return whether it does, or has begun."""
    if copies.has_begun(state, slot):
        return True
    if state.replicas[r].running_count >= state.engine[0].max_num_seqs:
        return False
    hits, hits_free = _find_hits(state, r, slot)
    reserved = copies.blocks_wanted(state, r)
    if DRAFTS:
        reserved = copies.blocks_reserved(state, r)
    begins = begin_copy(state, r, slot, hits, hits_free, reserved)
    if begins:
        copies.note_next_copy(state, r, slot)
        if PRIORITY:
            copies.place_ahead(state, r, slot)
        if DRAFTS:
            copies.reserve_blocks(state, r, slot)
    return begins


@capable(inlined())
def _compute_last_again(state: State, r: int, slot: int, budget):
    """Let a request compute its last prompt token, as a decode; return its tokens.

    0 where it has no room for the drafts beside it.
    """
    more = 0
    if DRAFTS:
        more = drafts.padding(state, r, slot, state.requests[slot].prompt_tokens - 1)
        if 1 + more > budget or not copies.take_copied_room(state, r, slot, more):
            return 0
    copies.compute_last(state, r, slot)
    if DRAFTS:
        copies.pad_copied(state, r, slot, more)
    return 1 + more


@capable(inlined())
def _start_copied(state: State, r: int, budget, idle):
    """Let those run whose copy is known; return the tokens that they take.

    All where one has no room. Note when the next copy is here, and whether one is here
    unknown. ``idle``: nothing else can run, so that copies are known at once.
    """
    replica = state.replicas[r]
    seats = state.engine[0].max_num_seqs
    spent = 0
    next_s = math.inf
    slot = replica.waiting_head  # inlined: a call takes as long as the rest
    while slot != NONE:
        following = state.requests[slot].next
        ready_s = copies.when_ready_s(state, slot)
        if ready_s == 0.0 and state.requests[slot].preemptions == 0:
            break  # all that have begun stand before
        if ready_s > replica.now_s:
            next_s = min(next_s, ready_s)
        elif ready_s > 0.0 and not is_known(state, r, slot, idle):
            copies.note_unknown(state, r)
        elif ready_s > 0.0 and spent < budget and replica.running_count < seats:
            tokens = 1
            if copies.recomputes(state):
                tokens = _compute_last_again(state, r, slot, budget - spent)
            else:
                copies.decode_at_once(state, r, slot)
            if PRIORITY and tokens > 0:
                remove_ordered(state, r, slot)
            spent = spent + tokens if tokens > 0 else budget
        slot = following
    replica.idle_until_s = next_s
    return spent


@capable(compiled())
def _decode_copied(state: State, r: int):
    """Let requests decode at once whose first token has come with their KV."""
    if state.replicas[r].waiting_count > 0 and not copies.recomputes(state):
        _start_copied(state, r, state.engine[0].max_num_seqs, False)


@capable(inlined())
def _compute_copied(state: State, r: int, idle):
    """Let requests compute their last prompt token whose copy is known."""
    replica = state.replicas[r]
    if idle or (replica.waiting_count > 0 and copies.recomputes(state)):
        budget = 0 if replica.preempted > 0 else replica.left_tokens
        replica.left_tokens -= _start_copied(state, r, budget, idle)


@capable(inlined())
def _load(state: State, r: int, slot: int):
    """Look for KV of a request in the tier; return whether it waits for that.

    NONE: it does not fit, and nobody behind it is looked at.
    """
    if tiers.has_loaded(state, slot):
        return 0
    hits, hits_free = _find_hits(state, r, slot)
    tokens = tiers.found_tokens(state, r, slot, hits)
    if tokens <= 0:
        return -tokens
    if DRAFTS:
        reserved = copies.blocks_reserved(state, r)
    else:
        reserved = tiers.blocks_reserved(state, r)
    if not tiers.begin_load(state, r, slot, hits, hits_free, tokens, reserved):
        return NONE
    if PRIORITY:
        copies.place_ahead(state, r, slot)
    else:
        tiers.place_behind_loads(state, r, slot)
    return 1


@capable(compiled())
def _offer_chunks(state: State, r: int):
    """Store the chunks that the iteration fills."""
    if not tiers.offers(state, r):
        return
    slot = state.replicas[r].running_head
    while slot != NONE:
        waits = False
        if DRAFTS:
            waits = copies.is_waiting_behind(state, r, slot)
        if not waits and _has_tokens(state, r, slot):
            tiers.offer(state, r, slot)
        else:
            tiers.offer_later(state, r)
        slot = state.requests[slot].next


@capable(inlined())
def _admit_waiting(state: State, r: int, defers):
    """Admit waiting requests in order, until one does not fit."""
    budget = state.replicas[r].left_tokens
    slot = state.replicas[r].waiting_head
    while budget > 0 and slot != NONE:
        following = state.requests[slot].next
        if STAGES and stages.is_stale(state, r, slot):
            slot = following
            continue
        if TIERS and state.replicas[r].running_count >= state.engine[0].max_num_seqs:
            break
        if TIERS and tiers.is_passed_over(state, r, slot):
            slot = following
            continue
        if ADAPTERS and not adapters.may_join(state, r, slot):
            slot = following
            continue
        if CADENCE and defers and not cadence.last_token_is_left(state, r, slot):
            break
        if COPIES and copies.wants_copy(state, slot):
            if not _pull(state, r, slot):
                break
            slot = following
            continue
        if TIERS:
            waits = _load(state, r, slot)
            if waits == NONE:
                break
            if waits > 0:
                slot = following
                continue
        chunk = _admit(state, r, slot, budget)
        if chunk == 0:
            if STAGES:
                stages.note_refused(state, r, 1.0)
            break
        if PRIORITY:
            remove_ordered(state, r, slot)
        if ADAPTERS:
            adapters.join_adapter(state, r, slot)
        budget -= chunk
        slot = following
    if CADENCE and not defers:
        cadence.note_waiting(state, r)


@capable(inlined())
def _is_empty(state: State, r: int):
    """Return whether the iteration has nobody: all wait, or one made room."""
    replica = state.replicas[r]
    if (COPIES or TIERS) and DRAFTS:
        return copies.has_nobody(state, r)
    left = replica.left_tokens
    return replica.preempted > 0 and left == state.engine[0].max_num_batched_tokens


@capable(inlined())
def _horizon(state: State, r: int):
    """Return for how many iterations the batch runs if nothing arrives.

    Only decoding, and the head of the queue waits for a request to finish, not for its
    answer to grow: the same batch runs until then, or until KV blocks are used up.
    """
    replica = state.replicas[r]
    if _is_empty(state, r):
        return 0
    changes = replica.waiting_count > 0 and replica.oldest_finishing != NONE
    changes = changes or replica.preempted > 0 or may_find_more(state, r)
    if COPIES or TIERS:
        changes = changes or copies.copies_change(state, r)
    if TIERS:
        changes = changes or tiers.blocks_return(state, r)
    if IMAGES:
        changes = changes or images.images_change(state, r)
    if DRAFTS:
        most = drafts.iterations_verified(state, r, changes)
        if not STATES:
            most = drafts.iterations_with_room(state, r, most)
    else:
        most = same_batch(state, r, 0, changes)
    if STATES:
        most = min(most, states.iterations_to_due(state, r))
    return most


@capable(compiled(SCHEDULE))
def schedule(state: State, r: int):
    """Give each running request its tokens, then admit while budget is left."""
    defers = False
    if DRAFTS:
        rows, m = _decoding(state, r)
        drafts.begin_verifying(rows, m)
    if PRIORITY:
        if COPIES:
            copies.place_received(state, r)
        else:
            new = priority.place_arrivals(state, r, NONE)
        if STAGES and new > 0:
            stages.note_refused(state, r, 0.0)
    if STAGES:
        looks = 1
        if ADAPTERS or IMAGES:
            looks = stages.look_at_arrivals(state, r)
        if IMAGES and images.images_change(state, r):
            stages.unsettle(state, r)
        if STATES:
            stages.unsettle(state, r)
        if not DRAFTS and run_stages.jump_stages(state, r, looks) > 0:
            return -1
        stages.note_refused(state, r, 0.0)
    if IMAGES:
        images.begin_images(state, r)
    if CADENCE:
        defers = cadence.defers_prompts(state, r)
    if TIERS:
        tiers.begin_call(state, r)
        if DRAFTS:
            copies.withhold_discarded(state, r)
    if COPIES:
        copies.begin_call(state, r)
        if DRAFTS:
            copies.withhold_discarded(state, r)
        else:
            _decode_copied(state, r)
    _continue_running(state, r, defers)
    if DRAFTS:
        drafts.note_padding_rule(state, r)
    if ADAPTERS:
        _use_adapters(state, r)
        adapters.stop_with_more(state, r)
    if COPIES:
        _compute_copied(state, r, False)
    if state.replicas[r].preempted == 0:
        _admit_waiting(state, r, defers)
    if STATES:
        state.replicas[r].prefilling = states.newest_unfinished(state, r)
    if STAGES:
        encode_s = 0.0
        if ADAPTERS:
            adapters.note_adapters(state, r)
        if IMAGES:
            encode_s = images.note_images(state, r, True)
        run_stages.run_step(state, r, encode_s)
        return -1
    horizon = _horizon(state, r)
    if COPIES:
        if horizon == 0 and copies.may_find_copy(state, r):
            _compute_copied(state, r, True)
            _admit_waiting(state, r, defers)
            horizon = _horizon(state, r)
        copies.run_until_next_copy(state, r)
    if TIERS:
        _offer_chunks(state, r)
        horizon = tiers.end_call(state, r, horizon)
    if (COPIES or TIERS) and DRAFTS and horizon > 0:
        _sit_out_behind(state, r, copies.waiting_behind(state, r))
    if ADAPTERS:
        adapters.note_adapters(state, r)
    if IMAGES:
        state.replicas[r].more_s += images.note_images(state, r, horizon > 0)
    if (COPIES or TIERS) and DRAFTS:
        return copies.run_withholding(state, r, horizon)
    return horizon
