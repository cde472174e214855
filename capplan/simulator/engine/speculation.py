"""Requests whose drafts are verified: iterations drawn, contexts on a line.

An iteration gives a request one token and the drafts accepted, up to the first rejected
one. They are drawn by (seed, row of the trace, iteration of the request), so that
neither router nor replica count nor preemption changes them. The draws say in how many
iterations N the request has its tokens, and how many tokens S it has before the last.
Given these, the tokens of the first N - 1 iterations are exchangeable: the context
before iteration i is on average on the straight line from 0 to S. On it a batch's
contexts grow by the same number of tokens in each iteration, which ``jump.py`` needs.

Blocks follow vLLM 0.32: a decoding request has slots for what it computed, 1 + k tokens
and the draft's lookahead; with another iteration in flight, for all of that one's
tokens too, since it is not known which are rejected. Slots are not given back before
the request ends, and stand in ``room_tokens``.

Growth is not one token an iteration, so that blocks are counted request by request.
That is put off while more are free than could have been taken (``blocks_at_most``),
unless somebody reads them: ``eager``.
"""

import math

from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import Knob, indices
from capplan.deployment.speculation import MOST_DRAFTS
from capplan.simulator.columns import (
    REPLICA_COLUMNS,
    REQUEST_COLUMNS,
    places,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv import copies
from capplan.simulator.kv.kvcache import ceil_div, take_blocks
from capplan.simulator.memory.hash_ring import mixed
from capplan.simulator.state import Phase, State

_RATES = {
    f"rate_{k}": Knob(0.0, least=0.0, most=1.0) for k in range(1, MOST_DRAFTS + 1)
}
SETTINGS = {
    **copies.SETTINGS,
    "drafts": Knob(0, least=0, most=MOST_DRAFTS),
    "lookahead": Knob(0, least=0, most=MOST_DRAFTS),
    "drops_block": Knob(0, least=0, most=1),
    # Blocks are counted as the engine takes them, since they are read between
    # schedulings, or which they are matters:
    "eager": Knob(1, least=0, most=1),
    **_RATES,
}
SETTING = indices(SETTINGS)
REQUEST = places(REQUEST_COLUMNS, "drafts")
REPLICA = places(REPLICA_COLUMNS, "drafts")
PARTS = 2.0**20
"""Parts of a token in which contexts are added up: sums of whole numbers are exact."""

_LOW = 0xFFFFFFFF
_SHARES = 65536.0  # a draw has 16 bits: rates are exact to 1/65536
_STEP = 0x9E3779B9  # of the counter, odd
_SALT = 0x51ED270B  # since 0 stays 0 when it is mixed
_LANES = 8  # pairs of draws at once


def drafts_values(engine: EngineSettings) -> dict[str, float]:
    """Return the settings of an engine's drafts by name, all but ``eager``."""
    speculation = engine.speculation
    assert speculation is not None
    rates = speculation.rates + (0.0,) * (MOST_DRAFTS - speculation.drafts)
    return {
        "drafts": speculation.drafts,
        "lookahead": speculation.lookahead_tokens,
        "drops_block": int(speculation.drops_block),
        **dict(zip(_RATES, rates, strict=True)),
    }


@inlined()
def _drawn(key, j):
    """Return two draws of 16 bits, those of a request's iterations 2j and 2j + 1."""
    return mixed((key + j * _STEP) & _LOW)


@inlined()
def _most(settings, k):
    """Return below which draw the first k drafts are all accepted."""
    return math.ceil(settings[SETTING.rate_1 + k - 1] * _SHARES)


@inlined()
def _gained(key, pair, pairs, first, second, third):
    """Return the tokens of so many pairs of iterations, of three drafts at most.

    Without a branch, so that it becomes vector code.
    """
    total = 2 * pairs
    for k in range(pairs):
        both = _drawn(key, pair + k)
        draw = both & 0xFFFF
        total += int(draw < first) + int(draw < second) + int(draw < third)
        draw = both >> 16
        total += int(draw < first) + int(draw < second) + int(draw < third)
    return total


@compiled()
def _iterations(settings, key, j, tokens):
    """Return in how many iterations, from the j-th on, ``tokens`` are there.

    Then the tokens before the last of them, and with it.
    """
    drafts = int(settings[SETTING.drafts])
    first, second, third = _most(settings, 1), _most(settings, 2), _most(settings, 3)
    count = 0
    total = 0
    if drafts <= 3 and j & 1 == 0:
        # As many as the rest takes on average; half of them where that is too many.
        share = _SHARES / (2 * (_SHARES + first + second + third))
        pairs = int(tokens * share) & -_LANES
        while pairs > 0:
            more = _gained(key, (j + count) >> 1, pairs, first, second, third)
            if total + more < tokens:
                total += more
                count += 2 * pairs
                pairs = int((tokens - total) * share) & -_LANES
            else:
                pairs = (pairs >> 1) & -_LANES
    both = _drawn(key, (j + count) >> 1)
    before = 0
    while total < tokens:
        draw = both >> 16
        if (j + count) & 1 == 0:
            draw = both & 0xFFFF
        else:
            both = _drawn(key, (j + count + 1) >> 1)
        before = total
        total += 1 + int(draw < first) + int(draw < second) + int(draw < third)
        for k in range(4, drafts + 1):
            total += int(draw < _most(settings, k))
        count += 1
    return count, before, total


@inlined()
def verified_tokens(state: State):
    """Return the tokens of the budget that a decoding request takes."""
    return state.engine[0].tokens_per_request


@inlined()
def draw_iterations(state: State, slot: int, tokens):
    """Draw in which iterations a request gets its next tokens, one or more."""
    request = state.requests[slot]
    memory = state.request_memory[slot]
    row = request.row
    salt = (state.engine[0].seed + _SALT) & _LOW
    key = mixed(mixed(row & _LOW) ^ mixed((row >> 32) ^ salt))
    j = int(memory[REQUEST.drawn])
    count, before, total = _iterations(state.settings, key, j, tokens)
    memory[REQUEST.iterations] = count
    memory[REQUEST.gained] = before
    memory[REQUEST.total] = total
    growth = 0
    if count > 1:
        growth = (before << 20) // (count - 1)
    memory[REQUEST.growth] = growth
    # Not known to end it before its result: one token was not enough.
    is_async = state.engine[0].depth > 1
    memory[REQUEST.discarded] = 1.0 if is_async and tokens - before >= 2 else 0.0


@inlined()
def run_after(state: State, slot: int, step):
    """Note that a request runs on a replica in no iteration up to one."""
    memory = state.request_memory[slot]
    memory[REQUEST.sat_out] = step
    memory[REQUEST.sat_since] = 0.0
    memory[REQUEST.sat_s] = state.requests[slot].last_token_s


@inlined()
def tokens_before(state: State, slot: int, step):
    """Return the KV tokens of a request before an iteration in which it decodes."""
    memory = state.request_memory[slot]
    base = int(memory[REQUEST.base])
    done = step - int(memory[REQUEST.began]) - 1
    count = int(memory[REQUEST.iterations])
    if done >= count:
        return base + int(memory[REQUEST.total])
    if done <= 0:
        return base
    return base + int(memory[REQUEST.gained]) * done // (count - 1)


@inlined()
def has_decoded(state: State, slot: int, step):
    """Return whether it decoded in an earlier iteration since its prompt was done."""
    return step > int(state.request_memory[slot, REQUEST.began]) + 1


@inlined()
def flies(state: State, r: int, slot: int, flying):
    """Return whether an iteration of a decoding request is in flight.

    ``flying``: while the replica's last iteration is.
    """
    sat_out = int(state.request_memory[slot, REQUEST.sat_out])
    return flying and sat_out != state.replicas[r].step


@inlined()
def findable_tokens(state: State, r: int, slot: int, flying, taken=0):
    """Return the tokens of a running request that the prefix cache has been given.

    ``flying``: while the replica's last iteration is in flight. Without a second one
    in flight it is given them when the request is scheduled again. ``taken`` is 1 where
    it is in the next iteration: then the cache has all that the engine knows.
    """
    memory = state.request_memory[slot]
    if state.requests[slot].phase != Phase.DECODING:
        return int(memory[REQUEST.base] + memory[REQUEST.gained]) + taken
    step = state.replicas[r].step + 1
    held = tokens_before(state, slot, step)
    before = int(memory[REQUEST.before])
    if has_decoded(state, slot, step):
        before = tokens_before(state, slot, step - 1)
    if taken != 0:
        if not flies(state, r, slot, flying):
            return held + 1
        is_prompt = before == int(memory[REQUEST.base])
        return before + int(has_decoded(state, slot, step) or not is_prompt)
    if flies(state, r, slot, flying):
        # All of it was known where it sat out before.
        return min(held, before + int(int(memory[REQUEST.sat_out]) == step - 2))
    if state.engine[0].depth == 1:
        return max(min(held, before + 1), state.requests[slot].joined_tokens)
    return held


@inlined()
def slot_tokens(state: State, slot: int, step, flying):
    """Return the tokens for which it has slots once iteration ``step`` is scheduled.

    ``flying``: while the one before it is in flight.
    """
    request = state.requests[slot]
    memory = state.request_memory[slot]
    verified = verified_tokens(state)
    sat_out = int(memory[REQUEST.sat_out]) == step - 1
    if flying and has_decoded(state, slot, step) and not sat_out:
        tokens = tokens_before(state, slot, step - 1) + 2 * verified
    elif flying and memory[REQUEST.padded] != 0.0 and not sat_out:
        tokens = int(memory[REQUEST.base] + memory[REQUEST.padded]) + verified
    else:
        tokens = tokens_before(state, slot, step) + verified
    tokens += int(state.settings[SETTING.lookahead])
    return max(request.room_tokens, tokens)


@inlined()
def more_blocks(state: State, r: int, slot: int, step, flying):
    """Return the blocks that a request takes for iteration ``step``."""
    size = state.engine[0].block_size
    held = ceil_div(state.requests[slot].room_tokens, size)
    return ceil_div(slot_tokens(state, slot, step, flying), size) - held


@compiled()
def blocks_of_decodes(state: State, r: int, n):
    """Return the blocks that all decoding requests take for the next n iterations."""
    replica = state.replicas[r]
    last = replica.step + n
    flying = replica.in_flight > 0 if n == 1 else state.engine[0].depth == 2
    total = 0
    for k in range(replica.heap_count):
        total += more_blocks(state, r, state.ends[r, k], last, flying)
    return total


@compiled()
def hold_slots(state: State, r: int, n):
    """Note the slots that all decoding requests have after the next n iterations."""
    replica = state.replicas[r]
    last = replica.step + n
    flying = replica.in_flight > 0 if n == 1 else state.engine[0].depth == 2
    for k in range(replica.heap_count):
        slot = state.ends[r, k]
        state.requests[slot].room_tokens = slot_tokens(state, slot, last, flying)


@inlined()
def blocks_at_most(state: State, r: int, n):
    """Return the blocks that decoding requests may have taken in n iterations more.

    Since they were last counted; no fewer than they have.
    """
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    b = replica.decode_count
    tokens = (memory[REPLICA.loose] + n * memory[REPLICA.growth]) / PARTS
    verified = verified_tokens(state)
    tokens += b * (2 * verified + int(state.settings[SETTING.lookahead]))
    blocks = int(tokens / state.engine[0].block_size) + b + 1
    return blocks * (1 + state.engine[0].state_groups)


@compiled()
def settle(state: State, r: int):
    """Take the blocks of the iterations that all decoding requests have had."""
    replica = state.replicas[r]
    if state.replica_memory[r, REPLICA.loose] == 0.0:
        return
    flying = state.engine[0].depth == 2
    taken = 0
    for k in range(replica.heap_count):
        slot = state.ends[r, k]
        if has_decoded(state, slot, replica.step + 1):
            taken += more_blocks(state, r, slot, replica.step, flying)
            request = state.requests[slot]
            request.room_tokens = slot_tokens(state, slot, replica.step, flying)
    take_blocks(state, r, taken)
    state.replica_memory[r, REPLICA.loose] = 0.0


@inlined()
def context_parts(state: State, slot: int, step):
    """Return the context with which it decodes in an iteration, on its line. [parts]"""
    memory = state.request_memory[slot]
    done = step - int(memory[REQUEST.began]) - 1
    if done >= int(memory[REQUEST.iterations]):
        return (memory[REQUEST.base] + memory[REQUEST.total] + 1.0) * PARTS
    return (memory[REQUEST.base] + 1.0) * PARTS + done * memory[REQUEST.growth]


@inlined()
def add_context(state: State, r: int, parts, growth):
    """Change the sum of the contexts of the next iteration, and how it grows."""
    memory = state.replica_memory[r]
    memory[REPLICA.context] += parts
    memory[REPLICA.growth] += growth
    state.replicas[r].context_tokens = int(memory[REPLICA.context] / PARTS)


@inlined()
def context_parts_on_line(state: State, slot: int, step):
    """Return what the sum of contexts has of it, also one iteration past its end."""
    memory = state.request_memory[slot]
    done = step - int(memory[REQUEST.began]) - 1
    return (memory[REQUEST.base] + 1.0) * PARTS + done * memory[REQUEST.growth]


@inlined()
def grow(state: State, r: int, n):
    """Let contexts grow as they do in n iterations."""
    add_context(state, r, n * state.replica_memory[r, REPLICA.growth], 0.0)


@inlined()
def verified_batch(state: State, r: int):
    """Return the requests that verify in an iteration, their contexts and tokens.

    Those that decode, and others that are computed and discarded, less those that sit
    it out.
    """
    memory = state.replica_memory[r]
    b = state.replicas[r].decode_count + int(memory[REPLICA.more_count])
    context = (memory[REPLICA.context] + memory[REPLICA.more_parts]) / PARTS
    tokens = b * verified_tokens(state) + int(memory[REPLICA.padded])
    return b, context, tokens


@inlined()
def join_line(state: State, r: int, slot: int):
    """Add a request to the sums of those that decode."""
    parts = context_parts_on_line(state, slot, state.replicas[r].step + 1)
    add_context(state, r, parts, state.request_memory[slot, REQUEST.growth])


@inlined()
def leave_line(state: State, r: int, slot: int):
    """Take a request out of the sums of those that decode."""
    parts = context_parts_on_line(state, slot, state.replicas[r].step + 1)
    add_context(state, r, -parts, -state.request_memory[slot, REQUEST.growth])


@inlined()
def end_line(state: State, slot: int, step):
    """Note the iterations of a request that decodes no more after one."""
    memory = state.request_memory[slot]
    memory[REQUEST.drawn] += step - memory[REQUEST.began]
