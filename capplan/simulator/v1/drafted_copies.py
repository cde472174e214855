"""KV that is pulled by a replica that verifies drafts.

vLLM 0.32: a copy begins where blocks stay free for the first iteration of all whose
copy has begun, of an unfinished prompt, and of one request more
(``_spec_decode_step_blocks``). When it is here, the last prompt token is computed again
beside drafts that are none. The blocks of a request that the iteration in flight
discards are free when that is collected (``defer_block_free``).
"""

import math

from capplan.simulator.engine.replica import run_iterations
from capplan.simulator.engine.speculation import (
    REPLICA,
    REQUEST,
    SETTING,
    flies,
    verified_tokens,
)
from capplan.simulator.engine.verifying import is_discarded
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.copies import REPLICA as COPIES
from capplan.simulator.kv.kvcache import ceil_div, take_blocks
from capplan.simulator.state import NONE, Phase
from capplan.simulator.v1.drafts import note_padding

_NOBODY = 2.0**62


@inlined()
def withhold_discarded(state, r):
    """Hold back the blocks of requests that the iteration in flight discards."""
    memory = state.replica_memory[r]
    replica = state.replicas[r]
    if replica.in_flight == 0:
        memory[COPIES.withheld] = 0.0
    replica.free_blocks -= int(memory[COPIES.withheld])
    memory[COPIES.starting] = 0.0
    memory[COPIES.unfinished] = replica.prefilling
    memory[COPIES.waiting_behind] = _NOBODY


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
def flies_with_drafts(state, r, slot):
    """Return whether a running request is in the iteration in flight."""
    replica = state.replicas[r]
    if state.requests[slot].phase == Phase.PREFILLING:
        chunk_step = state.requests[slot].chunk_step
        return replica.in_flight > 0 and chunk_step == replica.step
    return flies(state, r, slot, replica.in_flight > 0)


@inlined()
def has_nobody(state, r):
    """Return whether the iteration has nobody, neither decodes nor prompts."""
    replica = state.replicas[r]
    pads = state.replica_memory[r, REPLICA.pads]
    return pads == 2.0 and replica.batch_tokens + replica.batch_extra_count == 0


@inlined()
def wait_behind(state, r, admission):
    """Note behind which admission requests sit the iteration out, if there is one."""
    state.replica_memory[r, COPIES.waiting_behind] = admission


@inlined()
def waiting_behind(state, r):
    """Return that admission."""
    return state.replica_memory[r, COPIES.waiting_behind]


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
def blocks_reserved(state, r):
    """Return the blocks that are to stay free where another copy begins."""
    memory = state.replica_memory[r]
    blocks = int(memory[COPIES.reserved] + memory[COPIES.starting])
    slot = int(memory[COPIES.unfinished])
    if slot != NONE:
        request = state.requests[slot]
        blocks += _more_with_drafts(state, request.known_tokens, request.room_tokens)
    return blocks + _first_blocks(state, 0)


@inlined()
def reserve_blocks(state, r, slot):
    """Reserve what a request takes when it runs, whose copy has begun."""
    tokens = state.requests[slot].prompt_tokens
    more = _more_with_drafts(state, tokens, tokens)
    state.replica_memory[r, COPIES.reserved] += more


@inlined()
def take_copied_room(state, r, slot, padding):
    """Take the blocks of a last token beside drafts that are none, if they are free."""
    request = state.requests[slot]
    size = state.engine[0].block_size
    prompt = request.prompt_tokens
    room = prompt + padding + int(state.settings[SETTING.lookahead])
    blocks = ceil_div(room, size) - ceil_div(prompt, size)
    if blocks > state.replicas[r].free_blocks:
        return False
    take_blocks(state, r, blocks)
    memory = state.replica_memory[r]
    memory[COPIES.reserved] -= _more_with_drafts(state, prompt, prompt)
    memory[COPIES.starting] += _more_with_drafts(state, prompt, room)
    request.room_tokens = room
    return True


@inlined()
def pad_copied(state, r, slot, padding):
    """Note the drafts beside the token that a request computes again."""
    state.request_memory[slot, REQUEST.padded] = 0.0
    if padding > 0:
        note_padding(state, r, slot, padding)


@inlined()
def run_until_next_copy(state, r):
    """Let iterations be scheduled only before the next copy is here."""
    replica = state.replicas[r]
    next_s = replica.idle_until_s
    replica.until_s = min(replica.until_s, next_s)
    if next_s == math.inf or replica.preempted > 0:
        replica.idle_until_s = 0.0  # preempted: there is a seat now, look at once


@inlined()
def run_withholding(state, r, horizon):
    """Run what was put together; hold back the blocks that this iteration discards.

    Return -1, or ``horizon`` where that is 0 or of a rank, whose group runs it.
    """
    memory = state.replica_memory[r]
    withheld = 0
    if horizon > 0:
        withheld = _blocks_of_discarded(state, r)
        if state.engine[0].ranks == 0:
            run_iterations(state, r, horizon)
            horizon = -1
    state.replicas[r].free_blocks += int(memory[COPIES.withheld])
    memory[COPIES.withheld] = withheld
    return horizon
