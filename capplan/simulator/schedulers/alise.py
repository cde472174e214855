"""ALISE: the request with least predicted time left first, its KV kept by that order.

Zhao and Wang, "ALISE: Accelerating Large Language Model Serving with Speculative
Scheduling", ICCAD 2024, arXiv 2410.23537. The time that a request has left sets its
level (remaining_time.py). Requests run in order of level, then arrival; one that waits
long rises a level. KV is kept on the GPU in that order (the expected wait, EWT, grows
along it): as many of the first as fit all blocks; the last of the others leave when
room is needed.

Of the paper only a part was at hand. Ours: that a request which ran may rise as it
shrinks; that its level is found again when its prediction was too short; order of
arrival in a level, so that one that rose is not overtaken; the time of ageing; KV
counted in blocks instead of requests; prompts beside decodes, whole, up to a budget of
prompt tokens; copies beside the iterations, which wait only for the KV of requests
that they run (swapping.py). Requests that have no seat yet are fetched in advance.
Times are compared to 1 ns, so that rounding decides nothing. INT8 KV is the engine's
``kv_cache_dtype``, which also halves what is copied.

Settings, beside those of remaining_time.py: ``ageing_s`` [s]; ``swap``: 0 computes
again what leaves the GPU; ``defer``: 1 lets those that run go on before all others;
``stall``: 1 runs prompts in iterations of their own; ``predict_s`` for a prediction and
``overhead_s`` of an iteration [s].
"""

import math

import numpy as np

from capplan.simulator.engine.batch import decode_horizon, iterations_until
from capplan.simulator.engine.decoding import computed_tokens
from capplan.simulator.engine.jump import ROUNDING_S
from capplan.simulator.engine.ordered import (
    first_ordered,
    next_ordered,
    place,
    remove_ordered,
)
from capplan.simulator.engine.pausing import decodes_next, evict, pause
from capplan.simulator.engine.queues import push_waiting_back, remove_waiting
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.swapping import (
    all_fit,
    copy_in,
    copy_out,
    last_with_kv,
    next_arrival,
    next_blocks,
    next_missing_blocks,
    prompt_left,
    run_whole,
    start_batch,
)
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.schedulers.remaining_time import (
    REQUEST_COLUMNS,
    SETTINGS,
    predict_more,
    predicted_tokens,
    rank,
)
from capplan.simulator.state import NONE, SCHEDULE, Count, Phase, State

RULES = Rules(
    {
        **SETTINGS,
        "ageing_s": Knob(30.0, 1e-6),
        "swap": Knob(1, 0, 1),
        "defer": Knob(0, 0, 1),
        "stall": Knob(0, 0, 1),
        "predict_s": Knob(0.0045, 0.0),
        "overhead_s": Knob(0.0, 0.0),
    },
    prompt_budget=True,
    orders=True,
    pauses=True,
    swaps="swap",
    request_columns=(
        *REQUEST_COLUMNS,
        "level",
        "since_s",  # when it last ran, or rose
    ),
    replica_columns=("change_s",),  # no request rises a level before
)
SETTING = indices(RULES.settings)
REQUEST = indices(RULES.request_columns)
REPLICA = indices(RULES.replica_columns)

_RUNNING_FIRST = -1e4
"""Added to the key of running requests where newcomers wait."""
_CHOSEN = -3e4
"""Key of the requests of the next batch while it is put together."""
_FETCHED = -2e4
"""And of those fetched in advance."""


def refused(trace, engine, settings):
    """Return what is above the budget, shape (n,), and why."""
    tokens = trace.prompt_tokens
    if not settings["swap"]:
        tokens = tokens + trace.output_tokens - 1
    budget = engine.max_num_batched_tokens
    computed = "" if settings["swap"] else ", also when computed again"
    reason = f"its prompts are not cut{computed}, and a budget is {budget} tokens"
    return np.asarray(tokens > budget), reason


@inlined()
def _queue(state: State, r: int, slot: int, first):
    """Put a request at its level; ``first`` is added to the key."""
    key = first + state.request_memory[slot, REQUEST.level]
    place(state, r, slot, key, state.requests[slot].row)


@inlined()
def _wait_since(state: State, r: int, slot: int, since_s):
    """Note since when a request waits, and when it will rise a level."""
    memory, replica = state.request_memory[slot], state.replica_memory[r]
    memory[REQUEST.since_s] = since_s
    if memory[REQUEST.level] > 0:
        rises_s = since_s + state.settings[SETTING.ageing_s]
        replica[REPLICA.change_s] = min(replica[REPLICA.change_s], rises_s)


@compiled()
def _file_arrivals(state: State, r: int):
    slot = next_arrival(state, r)
    while slot != NONE:
        request = state.requests[slot]
        memory = state.request_memory[slot]
        memory[REQUEST.predicted_tokens] = max(1, request.predicted_tokens)
        memory[REQUEST.level] = rank(state, slot, 0, request.prompt_tokens)
        _wait_since(state, r, slot, request.arrival_s)
        _queue(state, r, slot, 0.0)
        slot = next_arrival(state, r)


@compiled()
def _raise_aged(state: State, r: int):
    """Let those that waited long rise a level."""
    replica = state.replicas[r]
    now_s = replica.now_s
    if now_s + ROUNDING_S < state.replica_memory[r, REPLICA.change_s]:
        return
    state.replica_memory[r, REPLICA.change_s] = math.inf
    slot = replica.waiting_head
    while slot != NONE:
        memory = state.request_memory[slot]
        since_s = memory[REQUEST.since_s]
        aged = now_s - since_s + ROUNDING_S >= state.settings[SETTING.ageing_s]
        if memory[REQUEST.level] > 0 and aged:
            memory[REQUEST.level] -= 1
            since_s = now_s
            _queue(state, r, slot, 0.0)
        _wait_since(state, r, slot, since_s)
        slot = state.requests[slot].next


@inlined()
def _generated_tokens(state: State, r: int, slot: int):
    """Return the tokens that a decoding request has generated."""
    held = computed_tokens(state, slot, state.replicas[r].step + 1)
    return held + 1 - state.requests[slot].prompt_tokens


@compiled()
def _return_batch(state: State, r: int):
    """Put what ran into the order, each at the level of the time that it has left."""
    first = _RUNNING_FIRST if state.settings[SETTING.defer] != 0 else 0.0
    slot = state.replicas[r].running_head
    while slot != NONE:
        memory = state.request_memory[slot]
        generated = _generated_tokens(state, r, slot)
        short = predict_more(state, slot, generated)
        level = rank(state, slot, generated, 0)
        if short or level < memory[REQUEST.level]:
            memory[REQUEST.level] = level
        _queue(state, r, slot, first)
        slot = state.requests[slot].next


@compiled()
def _choose(state: State, r: int):
    """Take the first that fit the blocks, up to seats and budget; pause the others.

    Returns the blocks that they and those fetched in advance need, and whether another
    batch may follow: where newcomers wait, a paused request is one from now on.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    fetching = replica.host_free_blocks < engine.host_blocks
    needed = 0
    within = 0
    count = 0
    turns = 0
    budget = engine.max_num_batched_tokens
    slot = first_ordered(state, r)
    while slot != NONE and (fetching or count < engine.max_num_seqs):
        following = next_ordered(state, slot)
        within += next_blocks(state, slot)
        if within > engine.kv_blocks:
            break
        left = prompt_left(state, slot)
        if count < engine.max_num_seqs and left <= budget:
            needed += next_missing_blocks(state, slot)
            budget -= left
            count += 1
            place(state, r, slot, _CHOSEN, count)
        elif left > 0:
            budget = 0  # prompts keep their order
        elif state.swaps[slot].host_blocks > 0:
            needed += state.swaps[slot].host_blocks
            turns += 1
            place(state, r, slot, _FETCHED, turns)
        slot = following
    changes = False
    slot = replica.running_head
    while slot != NONE:
        following = state.requests[slot].next
        if state.orders[slot].key != _CHOSEN:
            changes = state.settings[SETTING.defer] != 0
            _queue(state, r, slot, 0.0)
            pause(state, r, slot)
            _wait_since(state, r, slot, replica.now_s)
        slot = following
    return needed, changes


@compiled()
def _make_room(state: State, r: int, needed):
    """Let KV leave the GPU, the last in order first, until blocks are free."""
    while state.replicas[r].free_blocks < needed:
        slot = last_with_kv(state, r, _RUNNING_FIRST)
        if state.settings[SETTING.swap] != 0:
            copy_out(state, r, slot)
            if state.counts[Count.HOST_FULL] != 0:
                return
        else:
            evict(state, r, slot)
            remove_waiting(state, r, slot)
            push_waiting_back(state, r, slot)


@compiled()
def _fetch(state: State, r: int):
    """Copy the KV of the next batch back, then that of those after it."""
    slot = first_ordered(state, r)
    while slot != NONE and state.orders[slot].key <= _FETCHED:
        following = next_ordered(state, slot)
        if state.swaps[slot].host_blocks > 0:
            copy_in(state, r, slot)
        if state.orders[slot].key == _FETCHED:
            _queue(state, r, slot, 0.0)
        slot = following


@compiled()
def _run_first(state: State, r: int, key):
    """Let those of the order run whose key is at most ``key``; take their blocks."""
    replica = state.replicas[r]
    if state.settings[SETTING.stall] != 0:
        slot = first_ordered(state, r)
        while slot != NONE and state.orders[slot].key <= key:
            if prompt_left(state, slot) > 0:
                replica.prompts_only = 1
            slot = next_ordered(state, slot)
    slot = first_ordered(state, r)
    while slot != NONE and state.orders[slot].key <= key:
        following = next_ordered(state, slot)
        if state.requests[slot].phase != Phase.PAUSED:
            remove_ordered(state, r, slot)
        elif replica.prompts_only != 0 and decodes_next(state, slot):
            _queue(state, r, slot, 0.0)
        else:
            remove_ordered(state, r, slot)
            run_whole(state, r, slot)
        slot = following
    start_batch(state, r)


@compiled()
def _horizon(state: State, r: int):
    """Return for how many iterations the batch stays the same."""
    replica = state.replicas[r]
    if replica.batch_tokens > 0:
        return 1
    most = decode_horizon(state, r, replica.leaving_blocks)
    if replica.waiting_count == 0:
        return most
    slot = replica.running_head
    while slot != NONE:
        left = predicted_tokens(state, slot) - _generated_tokens(state, r, slot)
        most = min(most, left)
        slot = state.requests[slot].next
    change_s = state.replica_memory[r, REPLICA.change_s]
    return iterations_until(state, r, change_s - ROUNDING_S, most)


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Choose the next batch by the time that requests have left; make room for it."""
    if state.counts[Count.HOST_FULL] != 0:
        return 0
    _file_arrivals(state, r)
    _raise_aged(state, r)
    if all_fit(state, r, 0, state.engine[0].max_num_batched_tokens):
        _run_first(state, r, math.inf)
        return _horizon(state, r)
    _return_batch(state, r)
    needed, changes = _choose(state, r)
    _make_room(state, r, needed)
    if state.counts[Count.HOST_FULL] != 0:
        return 0
    _fetch(state, r)
    _run_first(state, r, _CHOSEN)
    return 1 if changes else _horizon(state, r)
