"""Recurrent states that prefix caching keeps, as vLLM V1's scheduler looks at them.

vLLM 0.32, v1/core/sched/scheduler.py, ``_mamba_block_aligned_split``: chunks of prompts
end with a block of KV. So several prompts may be unfinished at once, and what runs is
taken in order of admission: a decode behind a prompt that takes the rest of the budget
sits the iteration out. A request takes a block for each group of states beside each of
its KV that it enters, and frees the state before once a token behind it is collected.

With drafts (``MambaManager`` with speculative blocks) a request holds blocks for those
too, which it gives back when it leaves. It enters a state's block with the first token
there that may be kept, accepted or not; a rejected one does not give it back. The
draft's lookahead needs KV, but no states.

Contexts grow on a line, so that the iteration in which a request enters a block, or a
state of it is free, is known: until it is ``due`` nothing is done for it.
"""

from capplan.simulator.capable import Capability
from capplan.simulator.columns import REPLICA_COLUMNS, places
from capplan.simulator.engine.decoding import computed_tokens
from capplan.simulator.engine.queues import is_flying
from capplan.simulator.engine.speculation import (
    REQUEST,
    SETTING,
    flies,
    has_decoded,
    verified_tokens,
)
from capplan.simulator.engine.verifying import is_discarded
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import ceil_div
from capplan.simulator.kv.states import (
    DUE,
    KNOWN,
    SHARED,
    START,
    STEP,
    collected_tokens,
    count_state_hits,
    free_old_states,
    hashes_again,
    held_columns,
    oldest_state_tokens,
)
from capplan.simulator.state import NONE, Phase, State
from capplan.simulator.v1.drafts import discarded

CAPABILITY = Capability(
    lambda engine: engine.keeps_states, request_columns=held_columns, in_order=True
)
EARLIEST = places(REPLICA_COLUMNS, "states").earliest
_NEVER = 2**62


@inlined()
def free_states_behind(state: State, r: int, slot: int, computed):
    """Free the states that a prompt no longer needs; it has ``computed`` tokens."""
    collected = collected_tokens(state, r, slot, computed, computed)
    free_old_states(state, r, slot, collected, computed)


@inlined()
def look_at_all(state: State, r: int):
    """Note that all are looked at: each says when it is due again."""
    state.replica_memory[r, EARLIEST] = _NEVER


@inlined()
def _hashed_before(state: State, slot: int, step):
    """Return the tokens that were hashed of a decode before an iteration.

    Verifying drafts with one iteration in flight it hashes what it knew at the one
    before; else what was collected since, which is all that it can free.
    """
    if state.engine[0].verifies == 0 or state.engine[0].depth == 2:
        return computed_tokens(state, slot, step)
    if has_decoded(state, slot, step):
        return computed_tokens(state, slot, step - 1) + 1
    return int(state.request_memory[slot, KNOWN])


@inlined()
def is_due(state: State, r: int, slot: int):
    """Return whether the blocks of a request may change; its old states are free then.

    One whose tokens are discarded always is.
    """
    step = state.replicas[r].step + 1
    decodes = state.requests[slot].phase == Phase.DECODING
    if decodes and state.request_memory[slot, DUE] > step:
        return False
    held = computed_tokens(state, slot, step)
    before = computed_tokens(state, slot, step - 1)
    collected = collected_tokens(state, r, slot, held, before)
    free_old_states(state, r, slot, collected, _hashed_before(state, slot, step))
    return True


@inlined()
def note_due(state: State, r: int, slot: int, tokens, was_due):
    """Note when a request is due again that verifies ``tokens``."""
    memory = state.request_memory[slot]
    step = state.replicas[r].step + 1
    if was_due:
        memory[DUE] = _next_due(state, slot, step)
    if state.requests[slot].phase == Phase.DECODING:
        if tokens < verified_tokens(state):
            held = computed_tokens(state, slot, step)
            note_start(state, r, slot, held, held + 1)
        earliest = state.replica_memory[r, EARLIEST]
        state.replica_memory[r, EARLIEST] = min(earliest, memory[DUE])


@inlined()
def note_waiting_start(state: State, r: int, slot: int):
    """Note where a decode stands that sits the next iteration out."""
    if state.requests[slot].phase == Phase.DECODING:
        held = computed_tokens(state, slot, state.replicas[r].step + 1)
        note_start(state, r, slot, held, state.request_memory[slot, KNOWN])
        state.replica_memory[r, EARLIEST] = 0.0


@inlined()
def nothing_due(state: State, r: int):
    """Return whether all decode and nobody has to be looked at."""
    replica = state.replicas[r]
    engine = state.engine[0]
    others = 0
    if engine.verifies != 0:
        others, _, _ = discarded(state, r)
    wanted = replica.decode_count * verified_tokens(state)
    replica.left_tokens = engine.max_num_batched_tokens - wanted
    same = replica.prefilling == NONE and others == 0 and replica.left_tokens >= 0
    if same and engine.recording == 0:
        return state.replica_memory[r, EARLIEST] > replica.step + 1
    return False


@inlined()
def iterations_to_due(state: State, r: int):
    """Return for how many iterations nobody has to be looked at, at least one."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    if replica.batch_tokens + replica.batch_extra_count > 0:
        memory[EARLIEST] = 0.0
    if replica.prefilling != NONE:
        return 1
    return max(1, int(memory[EARLIEST]) - replica.step - 1)


@inlined()
def _first_with(state: State, slot: int, tokens):
    """Return the first iteration before which a decoding request has ``tokens``."""
    if state.engine[0].verifies == 0:
        return tokens - computed_tokens(state, slot, 0)
    memory = state.request_memory[slot]
    more = tokens - int(memory[REQUEST.base])
    first = int(memory[REQUEST.began]) + 1
    gained = int(memory[REQUEST.gained])
    if more <= 0:
        return first
    if more > gained:
        return _NEVER
    return first + ceil_div(more * (int(memory[REQUEST.iterations]) - 1), gained)


@inlined()
def _next_due(state: State, slot: int, step):
    """Return the iteration after ``step`` in which its blocks may change, or earlier.

    Not in its first one: with two in flight it has decoded in the one before.
    """
    engine = state.engine[0]
    size = engine.block_size
    room = state.requests[slot].room_tokens
    if engine.verifies == 0:
        room = computed_tokens(state, slot, step) + 1
    lookahead = int(state.settings[SETTING.lookahead])
    verified = verified_tokens(state)
    enough = ceil_div(room, size) * size - lookahead
    enough = min(enough, ceil_div(room - lookahead, size) * size)
    flying = engine.depth - 1
    due = _first_with(state, slot, enough + 1 - (1 + flying) * verified) + flying
    oldest = oldest_state_tokens(state, slot)
    if oldest != NONE:
        due = min(due, _first_with(state, slot, oldest))
    return max(step + 1, due)


@inlined()
def _hashed_now(state: State, r: int, slot: int, step):
    """Return how many tokens of a decode the next iteration, ``step``, hashes; or NONE.

    The newest token is not known yet where it is in flight.
    """
    held = computed_tokens(state, slot, step)
    if state.engine[0].verifies == 0:
        return held + 1 - int(is_flying(state.replicas[r]))
    if int(state.request_memory[slot, REQUEST.sat_out]) == step:
        return NONE
    if not flies(state, r, slot, state.replicas[r].in_flight > 0):
        return held + 1
    if has_decoded(state, slot, step):
        return computed_tokens(state, slot, step - 1) + 1
    return int(state.request_memory[slot, KNOWN])


@compiled()
def hashes_state(state: State, r: int, slot: int, tokens):
    """Return whether the next iteration hashes a request's state at ``tokens``.

    It does where a chunk ends there. vLLM also hashes that of the last block that the
    prompt fills anew, as long as it is held and no block was filled since.
    """
    request = state.requests[slot]
    step = state.replicas[r].step + 1
    if request.phase == Phase.PREFILLING:
        if int(state.request_memory[slot, STEP]) != step:
            return False
        if request.computed_tokens == tokens:
            return True
        return hashes_again(state, slot, request.computed_tokens, tokens)
    decodes = request.phase == Phase.DECODING
    if state.engine[0].verifies != 0:
        decodes = decodes or is_discarded(state, r, slot)
    if not decodes:
        return False
    return hashes_again(state, slot, _hashed_now(state, r, slot, step), tokens)


@inlined()
def look_again(state: State, r: int):
    """Let the next iteration look at all: it has another batch, or hashed states."""
    state.replica_memory[r, EARLIEST] = 0.0


@inlined()
def note_start(state: State, r: int, slot: int, start, known):
    """Note where the next iteration begins in a request that is not on its line.

    And what is known of it. The one after looks at it.
    """
    memory = state.request_memory[slot]
    memory[STEP] = state.replicas[r].step + 1
    memory[START] = start
    memory[KNOWN] = known
    memory[DUE] = 0.0


@inlined()
def find_states(state: State, r: int, slot: int, cached):
    """Return how many of ``cached`` blocks need not be computed, and free states."""
    hits, free = count_state_hits(state, r, slot, cached)
    size = state.engine[0].block_size
    state.request_memory[slot, SHARED] = cached * size if cached > hits else 0
    return hits, free


@inlined()
def count_free(state: State, r: int, hits):
    """Return how many of the blocks that ``count_hits`` has found nobody holds."""
    free = 0
    for index in range(hits):
        label = state.spare[r, state.replicas[r].spare_count + index]
        free += int(state.blocks[r, label].references == 0)
    return free


@inlined()
def newest_unfinished(state: State, r: int):
    """Return the newest prompt that is not done, or NONE."""
    slot = state.replicas[r].running_tail
    while slot != NONE:
        request = state.requests[slot]
        unfinished = request.computed_tokens < request.known_tokens
        if request.phase == Phase.PREFILLING and unfinished:
            break
        slot = request.previous
    return slot
