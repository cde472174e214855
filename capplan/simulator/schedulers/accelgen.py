"""AccelGen: the most urgent requests first, in iterations as long as their SLOs allow.

Shen and Sen, "AccelGen", sections 4.2 to 4.4, Algorithms 1 and 2; its equations are
in ``slack.py``. Decodes run first, then prompts that are urgent (slack T_r at most
T_max) in chunks, then of the calm ones those that together fill the token budget S_b
and the KV best. One long prompt is served at a time (ERA). The paper leaves open, and
we do:

- A late request is urgent: as calm ones, late prompts would wait for ever.
- A first chunk takes the blocks of the whole prompt: partial ones would fill the KV.
- A prompt is completed, for ERA, when all of it is computed.
- Preempted requests sit out and keep their KV. Only when a paused decode or an urgent
  prompt cannot run, nor anything else, does the holder of KV with most slack lose it.
- Alg. 2 chunks long prompts only. A calm short one that is longer than what is left of
  S_b waits until it is urgent; the GPU may idle until then.
- S_b is for the strictest limit among decodes, urgent prompts and the first calm one;
  a calm prompt joins only where its own limit allows as many tokens.

Eq. 6 does not keep the limits: it counts neither decodes nor attention to what a prompt
holds. A TBT of 100 ms gives some 4,400 tokens of Llama-3.1-8B on an H100, in iterations
of up to 138 ms. With ``bounded=1`` a chunk is also no longer than lets the iteration
keep the strictest limit of its decodes by its latency, as section 3.2 estimates it from
profiled data; a short calm prompt joins whole or not at all. Decodes alone may still
take longer than their limit, and then no prompt joins them.

Switched off for the ablation: ``chunking=0`` runs prompts whole, an urgent one beyond
S_b where it is the only prompt; ``ordering=0`` takes requests by arrival wherever they
are taken by slack; ``batching=0`` has S_b = max_num_batched_tokens, and lets calm
prompts fill it in order as urgent ones do; ``era=0`` serves long prompts together.
"""

import math

import numpy as np

from capplan.simulator.engine.batch import (
    decode_horizon,
    iterations_until,
    log_decodes,
    next_block,
    take_free_decode_blocks,
)
from capplan.simulator.engine.ordered import first_ordered, next_ordered
from capplan.simulator.engine.pausing import (
    evict,
    first_arrival,
    held_blocks,
    left_tokens,
    missing_blocks,
    pause,
    resume,
    run_chunk,
    take_arrival,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import take_blocks
from capplan.simulator.schedulers.slack import (
    REPLICA,
    REQUEST,
    SETTING,
    latest_start_s,
    limit_s,
    tokens_in_time,
    tokens_within,
)
from capplan.simulator.schedulers.slack import RULES as RULES
from capplan.simulator.schedulers.slack_order import (
    decodes_by_slack,
    file_request,
    first_calm,
    first_prompt,
    has_urgent,
    is_decode,
    is_long,
    is_past,
    is_urgent,
    next_urgent_s,
    runs_before,
)
from capplan.simulator.state import NONE, SCHEDULE, Phase, State


def refused(trace, engine, settings):
    """Return all requests where S_pf is no iteration, or prompts too long uncut."""
    budget = engine.max_num_batched_tokens
    s_pf = settings["s_pf"]
    if s_pf > budget and not settings["t_pf_s"]:
        reason = f"s_pf is {s_pf}, above max_num_batched_tokens={budget}; give t_pf_s"
        return np.ones(len(trace), bool), reason
    if settings["chunking"]:
        return np.zeros(len(trace), bool), ""
    most = budget - engine.max_num_seqs
    reason = f"uncut, its tokens beside decodes exceed max_num_batched_tokens={budget}"
    return trace.prompt_tokens + trace.output_tokens - 1 > most, reason


# What changed, and S_b.


@compiled()
def _take_changes(state: State, r: int):
    """File arrivals and the prompts of the last iteration, which decode or pause."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    memory[REPLICA.long_prompts] -= memory[REPLICA.long_ending]
    memory[REPLICA.long_ending] = 0
    slot = replica.running_tail
    while slot != NONE and not is_decode(state, slot):
        before = state.requests[slot].previous
        if state.requests[slot].phase != Phase.DECODING:
            pause(state, r, slot)
        file_request(state, r, slot)
        slot = before
    slot = first_arrival(state, r)
    while slot != NONE:
        following = take_arrival(state, r, slot)
        file_request(state, r, slot)
        slot = following


@inlined()
def _gap_s(state: State, r: int):
    """Return the strictest limit of the decodes on the time to a token. [s]"""
    slot = first_ordered(state, r)
    if slot != NONE and is_decode(state, slot):
        return limit_s(state, slot, 1)
    return math.inf


@compiled()
def _budget_tokens(state: State, r: int):
    """Return S_b: tokens of an iteration that keeps the strictest limit."""
    if state.settings[SETTING.batching] == 0:
        return state.engine[0].max_num_batched_tokens
    strictest_s = _gap_s(state, r)
    calm = NONE
    slot = first_prompt(state, r)
    while slot != NONE:
        urgent = is_urgent(state, r, slot)
        if urgent or calm == NONE:
            request = state.requests[slot]
            generated = request.known_tokens - request.prompt_tokens
            strictest_s = min(strictest_s, limit_s(state, slot, generated))
        if not urgent:
            calm = slot
        if is_past(state, r, slot):
            break
        slot = next_ordered(state, slot)
    return tokens_within(state, strictest_s)


@inlined()
def _within_time(state: State, r: int, slot: int, chunk):
    """Return how much of a chunk keeps the limits of decodes, where that is asked."""
    if state.settings[SETTING.bounded] == 0 or chunk <= 0:
        return chunk
    return tokens_in_time(state, r, slot, chunk, _gap_s(state, r))


# Decodes.


@compiled()
def _run_decodes(state: State, r: int, budget):
    """Let each decode run, by slack, that has a block and is within the budget."""
    all_run = state.replica_memory[r, REPLICA.paused_decodes] == 0
    all_run = all_run and state.replicas[r].decode_count <= budget
    if not (all_run and take_free_decode_blocks(state, r, 0)):
        _pause_decodes(state, r, budget)


@compiled()
def _pause_decodes(state: State, r: int, budget):
    """Choose the decodes that run; the others keep their KV and sit out."""
    replica = state.replicas[r]
    most = min(budget, state.engine[0].max_num_seqs)
    chosen = 0
    paused = 0
    resuming = NONE
    slot = decodes_by_slack(state, r)
    while slot != NONE:
        request = state.requests[slot]
        following = request.next_in_list
        runs = request.phase == Phase.DECODING
        needed = next_block(state, slot)
        if chosen < most and needed <= replica.free_blocks:
            take_blocks(state, r, needed)
            chosen += 1
            if not runs:
                request.next_in_list = resuming
                resuming = slot
        else:
            paused += 1
            if runs:
                pause(state, r, slot)
        slot = following
    while resuming != NONE:  # now that their seats are free
        following = state.requests[resuming].next_in_list
        resume(state, r, resuming)
        resuming = following
    state.replica_memory[r, REPLICA.paused_decodes] = paused


# Prompts.


@inlined()
def _prompt_tokens(state: State, r: int):
    """Return the tokens of prompts in the next iteration."""
    return state.replicas[r].batch_tokens + state.replicas[r].batch_extra_count


@inlined()
def _left(state: State, r: int, budget):
    """Return the tokens that the iteration has left."""
    return budget - state.replicas[r].decode_count - _prompt_tokens(state, r)


@inlined()
def _can_run(state: State, r: int, slot: int):
    """Return whether seats, KV and ERA let a prompt run."""
    replica = state.replicas[r]
    request = state.requests[slot]
    if replica.running_count >= state.engine[0].max_num_seqs:
        return False
    if missing_blocks(state, slot, request.known_tokens) > replica.free_blocks:
        return False
    others = (
        state.settings[SETTING.era] != 0
        and state.replica_memory[r, REPLICA.long_prompts] > 0
    )
    return not (others and request.computed_tokens == 0 and is_long(state, slot))


@inlined()
def _run_prompt(state: State, r: int, slot: int, chunk):
    """Let a prompt run; its first chunk takes the blocks of all."""
    request = state.requests[slot]
    if is_long(state, slot):
        state.replica_memory[r, REPLICA.long_prompts] += int(
            request.computed_tokens == 0
        )
        state.replica_memory[r, REPLICA.long_ending] += int(
            chunk == left_tokens(state, slot)
        )
    run_chunk(state, r, slot, chunk, request.known_tokens)


@compiled()
def _fill(state: State, r: int, slot: int, budget, urgent):
    """Let prompts from ``slot`` on, urgent or calm ones, fill the budget in order."""
    replica = state.replicas[r]
    cut = state.settings[SETTING.chunking] != 0
    while slot != NONE and replica.running_count < state.engine[0].max_num_seqs:
        room = _left(state, r, budget)
        if room <= 0 and (cut or _prompt_tokens(state, r) > 0):
            break
        if urgent and is_past(state, r, slot):
            break
        following = next_ordered(state, slot)
        if is_urgent(state, r, slot) == urgent:
            chunk = left_tokens(state, slot)
            whole = chunk
            if cut:
                chunk = min(chunk, room)
            fits = chunk <= room
            if fits:
                chunk = _within_time(state, r, slot, chunk)
                fits = chunk > 0 and (cut or chunk == whole)
            if not cut and urgent and _prompt_tokens(state, r) == 0:
                chunk = whole
                fits = True
            if fits and _can_run(state, r, slot):
                _run_prompt(state, r, slot, chunk)
        slot = following


@compiled()
def _run_calm(state: State, r: int, budget):
    """Let those calm prompts run that fill budget and KV best: Alg. 2."""
    block_size = state.engine[0].block_size
    first = first_calm(state, r)
    if first == NONE:
        return
    latest_s = (
        state.request_memory[first, REQUEST.deadline_s]
        + state.settings[SETTING.gamma_s]
    )
    part = _left(state, r, budget)  # the chunk of a long prompt, made once
    while True:
        room = _left(state, r, budget)
        best = NONE
        best_chunk = 0
        least = 0
        slot = first
        while slot != NONE:
            deadline_s = state.request_memory[slot, REQUEST.deadline_s]
            request = state.requests[slot]
            if deadline_s > latest_s and state.settings[SETTING.ordering] != 0:
                break
            chosen = request.phase != Phase.PAUSED or is_urgent(state, r, slot)
            if deadline_s <= latest_s and not chosen:
                chunk = left_tokens(state, slot)
                whole = chunk
                cut = is_long(state, slot) and state.settings[SETTING.chunking] != 0
                if cut:
                    chunk = min(chunk, part)
                generated = request.known_tokens - request.prompt_tokens
                own = tokens_within(state, limit_s(state, slot, generated))
                within = 0 < chunk <= room and budget - room + chunk <= own
                if within:
                    chunk = _within_time(state, r, slot, chunk)
                    within = chunk > 0 and (cut or chunk == whole)
                if within and _can_run(state, r, slot):
                    free = state.replicas[r].free_blocks
                    free -= missing_blocks(state, slot, request.known_tokens)
                    distance = (room - chunk) ** 2 + (free * block_size) ** 2
                    if best == NONE or distance < least:
                        best = slot
                        best_chunk = chunk
                        least = distance
            slot = next_ordered(state, slot)
        if best == NONE:
            return
        _run_prompt(state, r, best, best_chunk)


# When nothing can run, and for how long the same can.


@compiled()
def _evict_one(state: State, r: int):
    """Take the KV of the holder with most slack; return whether there is one."""
    victim = NONE
    slot = first_ordered(state, r)
    while slot != NONE:
        if held_blocks(state, slot) > 0:
            if is_decode(state, slot):
                state.request_memory[slot, REQUEST.deadline_s] = latest_start_s(
                    state, r, slot
                )
            if victim == NONE or runs_before(state, victim, slot):
                victim = slot
        slot = next_ordered(state, slot)
    if victim == NONE:
        return False
    if not is_decode(state, victim) and is_long(state, victim):
        state.replica_memory[r, REPLICA.long_prompts] -= 1
    evict(state, r, victim)
    file_request(state, r, victim)
    return True


@inlined()
def _decodes_alone(state: State, r: int):
    """Return for how many iterations the decodes run alone."""
    if state.replica_memory[r, REPLICA.paused_decodes] > 0:
        return 1
    most = decode_horizon(state, r, 0)
    return iterations_until(state, r, next_urgent_s(state, r), most)


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Let decodes run, urgent prompts, then calm ones that fit; Alg. 1 and 2."""
    replica = state.replicas[r]
    _take_changes(state, r)
    while True:
        budget = _budget_tokens(state, r)
        _run_decodes(state, r, budget)
        log_decodes(state, r)
        _fill(state, r, first_prompt(state, r), budget, True)
        if state.settings[SETTING.batching] != 0:
            _run_calm(state, r, budget)
        else:
            _fill(state, r, first_calm(state, r), budget, False)
        if _prompt_tokens(state, r) > 0:
            return 1
        if replica.decode_count > 0:
            return _decodes_alone(state, r)
        if state.replica_memory[r, REPLICA.paused_decodes] == 0 and not has_urgent(
            state, r
        ):
            replica.idle_until_s = next_urgent_s(state, r)
            return 0
        if not _evict_one(state, r):
            return 0
