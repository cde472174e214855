"""FastServe: a skip-join multi-level feedback queue with proactive swapping.

Wu et al., "Fast Distributed Inference Serving for Large Language Models", arXiv
2305.05920, section 4; as in LLMServe/FastServe, fastserve/scheduler.py, ``MLFQ``, and
block_manager.py. A request joins the first level whose quantum holds its prompt, and
goes down one level when it ran longer than its quantum. Each iteration takes whole
prompts and decodes from the highest level on, up to seats and token budget; it leaves
free as many blocks as there are seats (``proactive``). The KV of waiting requests is
swapped out from the lowest level on, and back in advance. What ran goes to the front
of its queue one by one, so that the order of a batch turns round in each iteration.

Beside the source: a request that never ran waits since its arrival (there since 1970,
so that every check promotes it: ``as_written=1``); an iteration waits for the end of
the copies that it needs (there for the one before); quanta are compared to 1 ns, so
that rounding decides nothing. The number of levels is not limited there; AccelGen,
section 6.1, limits it to five and does not say what the lowest does. Here the lowest
of a limited number of ``levels`` has no quantum: no source decides that.

The engine's ``max_num_seqs`` are the seats (16 there) and ``max_num_batched_tokens`` is
the budget of prompt tokens (2,048 there).

Settings: ``base_quantum_s`` [s] and ``ratio`` of the quanta of two levels; ``levels``;
``starvation_s`` [s], after which a waiting request is promoted to the highest level,
checked every ``starvation_iterations``; ``as_written``, 0 or 1; ``proactive``, 0 or 1;
``min_free_blocks`` that it then keeps free at least [blocks]; ``host_share`` of the
host's KV memory, below which no prompt begins; ``overhead_s`` of an iteration [s].
"""

import math

import numpy as np

from capplan.simulator.engine.batch import decode_horizon, iterations_until
from capplan.simulator.engine.jump import ROUNDING_S
from capplan.simulator.engine.ordered import (
    first_at,
    first_ordered,
    last_before,
    next_ordered,
    previous_ordered,
    remove_ordered,
)
from capplan.simulator.engine.pausing import held_blocks
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.swapping import (
    all_fit,
    copy_in,
    copy_out,
    last_with_kv,
    next_blocks,
    next_missing_blocks,
    prompt_left,
    run_whole,
    start_batch,
)
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.schedulers.feedback_queue import (
    BACK,
    FRONT,
    REPLICA,
    REPLICA_COLUMNS,
    REQUEST,
    REQUEST_COLUMNS,
    SETTINGS,
    demote,
    file_arrivals,
    pause_at_level,
    promote_starving,
    push,
    quantum_s,
    return_batch,
    stand_last,
)
from capplan.simulator.state import NONE, SCHEDULE, Count, Phase, State

RULES = Rules(
    {
        **SETTINGS,
        "proactive": Knob(1, 0, 1),
        "min_free_blocks": Knob(0, 0),
        "host_share": Knob(0.1, 0.0, 1.0),
        "overhead_s": Knob(0.0, 0.0),
    },
    prompt_budget=True,
    orders=True,
    pauses=True,
    swaps=True,
    request_columns=REQUEST_COLUMNS,
    replica_columns=REPLICA_COLUMNS,
)
SETTING = indices(RULES.settings)

_CHOSEN = -1.0
"""Key of the requests of the next batch while it is put together."""


def refused(trace, engine, settings):
    """Return the prompts above the budget and what never fits, shape (n,), and why."""
    blocks = engine.kv_blocks - 1
    spare = 0
    if settings["proactive"]:
        spare = max(engine.max_num_seqs, settings["min_free_blocks"])
    held = engine.request_blocks(trace.prompt_tokens + trace.output_tokens - 1)
    beyond = trace.prompt_tokens > engine.max_num_batched_tokens
    if np.any(beyond):
        budget = engine.max_num_batched_tokens
        return beyond, f"its prompts are not cut, and a budget is {budget} tokens"
    reason = f"it keeps {spare} of {blocks} blocks free, as many as there are seats"
    return held > blocks - spare, reason


@inlined()
def _spare_blocks(state: State):
    """Return the blocks that stay free beside those of the batch."""
    if state.settings[SETTING.proactive] == 0:
        return 0
    least = int(state.settings[SETTING.min_free_blocks])
    return max(state.engine[0].max_num_seqs, least)


@inlined()
def _host_is_low(state: State, r: int):
    least = state.settings[SETTING.host_share] * state.engine[0].host_blocks
    return state.replicas[r].host_free_blocks < least


@compiled()
def _join(state: State, r: int, slot: int):
    """Let a request that waited run when its KV is there."""
    now_s = state.replicas[r].now_s
    memory, replica = state.request_memory[slot], state.replica_memory[r]
    memory[REQUEST.offset_s] = now_s - memory[REQUEST.offset_s]
    quantum = quantum_s(state, int(memory[REQUEST.level]))
    memory[REQUEST.deadline_s] = memory[REQUEST.offset_s] + quantum
    replica[REPLICA.change_s] = min(
        replica[REPLICA.change_s], memory[REQUEST.deadline_s]
    )
    run_whole(state, r, slot)


@compiled()
def _join_first(state: State, r: int, key):
    """Let those of the order run whose key is at most ``key``."""
    slot = first_ordered(state, r)
    while slot != NONE and state.orders[slot].key <= key:
        remove_ordered(state, r, slot)
        stand_last(state, r, slot)
        if state.requests[slot].phase == Phase.PAUSED:
            _join(state, r, slot)
        slot = first_ordered(state, r)


@compiled()
def _choose(state: State, r: int):
    """Take requests in order, up to seats and budget; pause the others.

    Returns whether a prompt was set aside because the host has little room.
    """
    engine = state.engine[0]
    low = _host_is_low(state, r)
    aside = False
    tokens = 0
    count = 0
    slot = first_ordered(state, r)
    while slot != NONE:
        following = next_ordered(state, slot)
        prompt_tokens = prompt_left(state, slot)
        if prompt_tokens > 0 and low:
            push(state, r, slot, state.request_memory[slot, REQUEST.level], FRONT)
            aside = True
        elif (
            count < engine.max_num_seqs
            and tokens + max(1, prompt_tokens) <= engine.max_num_batched_tokens
        ):
            push(state, r, slot, _CHOSEN, BACK)
            count += 1
            tokens += prompt_tokens
        else:
            break
        slot = following
    slot = state.replicas[r].running_head
    while slot != NONE:
        following = state.requests[slot].next
        if state.orders[slot].key >= 0.0:
            pause_at_level(state, r, slot)
        slot = following
    return aside


@compiled()
def _reserve(state: State, r: int):
    """Swap out, lowest first, what the batch has no room beside, then its own end.

    Returns whether blocks were short.
    """
    needed = 0
    slot = first_ordered(state, r)
    while slot != NONE and state.orders[slot].key < 0.0:
        needed += next_missing_blocks(state, slot)
        slot = next_ordered(state, slot)
    short = _spare_blocks(state) + needed - state.replicas[r].free_blocks
    if short <= 0:
        _swap_in_batch(state, r)
        _swap_in_ahead(state, r, needed)
        return False
    slot = last_with_kv(state, r, 0.0)
    while short > 0 and slot != NONE:
        short -= held_blocks(state, slot)
        copy_out(state, r, slot)
        slot = last_with_kv(state, r, 0.0)
    first = NONE
    slot = last_before(state, r, 0.0)
    while short > 0 and slot != NONE:
        short -= next_blocks(state, slot)
        if state.requests[slot].phase == Phase.DECODING:
            pause_at_level(state, r, slot)
        if held_blocks(state, slot) > 0:
            copy_out(state, r, slot)
        first = slot
        slot = previous_ordered(state, slot)
    while first != NONE and state.orders[first].key < 0.0:
        following = next_ordered(state, first)
        push(state, r, first, state.request_memory[first, REQUEST.level], FRONT)
        first = following
    _swap_in_batch(state, r)
    return True


@compiled()
def _swap_in_batch(state: State, r: int):
    slot = first_ordered(state, r)
    while slot != NONE and state.orders[slot].key < 0.0:
        if state.swaps[slot].host_blocks > 0:
            copy_in(state, r, slot)
        slot = next_ordered(state, slot)


@compiled()
def _swap_in_ahead(state: State, r: int, needed):
    """Swap in those of the first of the queue that fit beside the batch."""
    if state.settings[SETTING.proactive] == 0:
        return
    spare = _spare_blocks(state) + needed
    quota = state.engine[0].max_num_seqs
    slot = first_at(state, r, 0.0)
    while slot != NONE and quota > 0:
        blocks = state.swaps[slot].host_blocks
        if blocks > 0 and state.replicas[r].free_blocks >= spare + blocks:
            copy_in(state, r, slot)
        quota -= 1
        slot = next_ordered(state, slot)


@compiled()
def _horizon(state: State, r: int):
    """Return for how many iterations the batch stays the same."""
    replica = state.replicas[r]
    if replica.batch_tokens + replica.batch_extra_count > 0:
        return 1
    spare = max(_spare_blocks(state), replica.leaving_blocks)
    most = decode_horizon(state, r, spare)
    if replica.waiting_count > 0:
        period = int(state.settings[SETTING.starvation_iterations])
        most = min(most, period - (replica.step + 1) % period)
    change_s = state.replica_memory[r, REPLICA.change_s]
    return iterations_until(state, r, change_s + ROUNDING_S, most)


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Demote, choose the next batch in order of the levels, and make room for it."""
    if state.counts[Count.HOST_FULL] != 0:
        return 0
    file_arrivals(state, r)
    demote(state, r)
    budget = state.engine[0].max_num_batched_tokens - 1
    if all_fit(state, r, _spare_blocks(state), budget):
        _join_first(state, r, math.inf)
        start_batch(state, r)
        return _horizon(state, r)
    return_batch(state, r)
    if state.replicas[r].host_free_blocks < state.engine[0].host_blocks:
        _swap_in_ahead(state, r, 0)
    aside = _choose(state, r)
    short = _reserve(state, r)
    promoted = promote_starving(state, r)
    if state.counts[Count.HOST_FULL] != 0:
        return 0
    _join_first(state, r, _CHOSEN)
    start_batch(state, r)
    return 1 if aside or short or promoted else _horizon(state, r)
