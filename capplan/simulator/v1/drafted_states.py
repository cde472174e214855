"""Recurrent states of requests whose drafts are verified, under prefix caching.

vLLM 0.32 (``MambaManager`` with speculative blocks): beside the states of ``states.py``
a request holds blocks for those of its drafts, which it gives back when it leaves. It
enters a state's block with the first token there that may be kept, accepted or not; a
rejected one does not give it back. The draft's lookahead needs KV, but no states.

Contexts grow on a line, so that the iteration in which a request enters a block, or a
state of it is free, is known: until it is ``due`` nothing is done for it.
"""

from capplan.simulator.engine.speculation import (
    REPLICA,
    REQUEST,
    SETTING,
    flies,
    has_decoded,
    tokens_before,
    verified_tokens,
)
from capplan.simulator.engine.verifying import is_discarded
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import ceil_div
from capplan.simulator.kv.states import (
    DUE,
    KNOWN,
    START,
    STEP,
    free_old_states,
    hashes_again,
    oldest_state_tokens,
)
from capplan.simulator.state import NONE, Phase
from capplan.simulator.v1.drafts import discarded

EARLIEST = REPLICA.earliest
_NEVER = 2**62


@inlined()
def drops_block(state):
    """Return whether the draft has KV: the last block found is computed again."""
    return state.settings[SETTING.drops_block] != 0.0


@inlined()
def collected_before(state, r, slot, step):
    """Return the tokens of a request that verifies of which no result is in flight."""
    replica = state.replicas[r]
    if replica.in_flight == 0:
        return tokens_before(state, slot, step)
    if int(state.request_memory[slot, STEP]) == replica.step:
        return int(state.request_memory[slot, START])
    return tokens_before(state, slot, step - 1)


@inlined()
def hashed_before(state, slot, step):
    """Return the tokens that were hashed of a request before an iteration.

    With one iteration in flight it hashes what it knew at the one before; with two what
    was collected since, which is all that it can free.
    """
    if state.engine[0].depth == 2:
        return tokens_before(state, slot, step)
    if has_decoded(state, slot, step):
        return tokens_before(state, slot, step - 1) + 1
    return int(state.request_memory[slot, KNOWN])


@inlined()
def is_due(state, r, slot):
    """Return whether the blocks of a request may change; its old states are free then.

    One whose tokens are discarded always is.
    """
    step = state.replicas[r].step + 1
    decodes = state.requests[slot].phase == Phase.DECODING
    if decodes and state.request_memory[slot, DUE] > step:
        return False
    collected = collected_before(state, r, slot, step)
    free_old_states(state, r, slot, collected, hashed_before(state, slot, step))
    return True


@inlined()
def note_due(state, r, slot, tokens, was_due):
    """Note when a request is due again that verifies ``tokens``."""
    memory = state.request_memory[slot]
    step = state.replicas[r].step + 1
    if was_due:
        memory[DUE] = next_due(state, slot, step)
    if state.requests[slot].phase == Phase.DECODING:
        if tokens < verified_tokens(state):
            held = tokens_before(state, slot, step)
            note_start(state, r, slot, held, held + 1)
        earliest = state.replica_memory[r, EARLIEST]
        state.replica_memory[r, EARLIEST] = min(earliest, memory[DUE])


@inlined()
def note_waiting_start(state, r, slot):
    """Note where a decode stands that sits the next iteration out."""
    if state.requests[slot].phase == Phase.DECODING:
        held = tokens_before(state, slot, state.replicas[r].step + 1)
        note_start(state, r, slot, held, state.request_memory[slot, KNOWN])
        state.replica_memory[r, EARLIEST] = 0.0


@inlined()
def nothing_due(state, r):
    """Return whether all verify their drafts and nobody has to be looked at."""
    replica = state.replicas[r]
    engine = state.engine[0]
    others, _, _ = discarded(state, r)
    wanted = replica.decode_count * verified_tokens(state)
    replica.left_tokens = engine.max_num_batched_tokens - wanted
    same = replica.prefilling == NONE and others == 0 and replica.left_tokens >= 0
    if same and engine.recording == 0:
        return state.replica_memory[r, EARLIEST] > replica.step + 1
    return False


@inlined()
def iterations_to_due(state, r):
    """Return for how many iterations nobody has to be looked at, at least one."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    if replica.batch_tokens + replica.batch_extra_count > 0:
        memory[EARLIEST] = 0.0
    if replica.prefilling != NONE:
        return 1
    return max(1, int(memory[EARLIEST]) - replica.step - 1)


@inlined()
def _first_with(state, slot, tokens):
    """Return the first iteration before which a decoding request has ``tokens``."""
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
def next_due(state, slot, step):
    """Return the iteration after ``step`` in which its blocks may change, or earlier.

    Not in its first one: with two in flight it has decoded in the one before.
    """
    engine = state.engine[0]
    size = engine.block_size
    room = state.requests[slot].room_tokens
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


@compiled()
def hashes_drafted(state, r, slot, tokens):
    """Return whether the next iteration hashes a request's state at ``tokens``."""
    request = state.requests[slot]
    step = state.replicas[r].step + 1
    if request.phase == Phase.PREFILLING:
        hashed = request.computed_tokens
        if int(state.request_memory[slot, STEP]) != step:
            return False
        if hashed == tokens:
            return True
    elif request.phase == Phase.DECODING or is_discarded(state, r, slot):
        if int(state.request_memory[slot, REQUEST.sat_out]) == step:
            return False
        # The newest token is not known yet where it is in flight.
        hashed = tokens_before(state, slot, step) + 1
        if flies(state, r, slot, state.replicas[r].in_flight > 0):
            hashed = int(state.request_memory[slot, KNOWN])
            if has_decoded(state, slot, step):
                hashed = tokens_before(state, slot, step - 1) + 1
    else:
        return False
    return hashes_again(state, slot, hashed, tokens, drops_block(state))


@inlined()
def look_again(state, r):
    """Let the next iteration look at all: one waits for a state that is hashed now."""
    state.replica_memory[r, EARLIEST] = 0.0


@inlined()
def note_start(state, r, slot, start, known):
    """Note where the next iteration begins in a request that is not on its line.

    And what is known of it. The one after looks at it.
    """
    memory = state.request_memory[slot]
    memory[STEP] = state.replicas[r].step + 1
    memory[START] = start
    memory[KNOWN] = known
    memory[DUE] = 0.0
