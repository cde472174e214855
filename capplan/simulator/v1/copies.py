"""KV that a decode replica of vLLM V1 pulls from prefill replicas.

vLLM 0.32, v1/core/sched/scheduler.py with a KV connector that loads asynchronously, as
NIXL's (kv_connector/v1/nixl/pull_scheduler.py): ``simulator/kv/copies.py``. A copy
begins when there is a seat and the prompt fits the free blocks, less those that an
unfinished prompt still needs. When it is here the last prompt token is computed again,
like a decode. Preempted the request is computed here.

With two iterations in flight a request whose last one is not collected is not
preempted, since a copy could overwrite what it still writes. Where it would have been,
the request that lacks a block sits the iteration out with all behind it.

By priority, those whose copy has begun stand before all others, each in the order of
priority and of arrival here. If the one to preempt may not be, none is.

With drafts a copy begins where blocks stay free for the first iteration of all whose
copy has begun, of an unfinished prompt, and of one request more
(``_spec_decode_step_blocks``). The last prompt token is computed again beside drafts
that are none. The blocks of a request that the iteration in flight discards are free
when that is collected (``defer_block_free``).

With ``recomputes=0`` the first token has come from the prefill replica, and the request
decodes at once, as in DistServe.
"""

import math

from capplan.simulator.capable import Capability
from capplan.simulator.engine import speculation
from capplan.simulator.engine.decoding import decode_again
from capplan.simulator.engine.gaps import is_resuming
from capplan.simulator.engine.log import log_entry
from capplan.simulator.engine.queues import is_flying
from capplan.simulator.engine.replica import run_iterations
from capplan.simulator.engine.speculation import flies, verified_tokens
from capplan.simulator.engine.verifying import is_discarded
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.copies import (
    REPLICA,
    REQUEST,
    SETTING,
    SETTINGS,
    join_copied,
)
from capplan.simulator.kv.kvcache import blocks_held_too, ceil_div, take_blocks
from capplan.simulator.state import NONE, Phase, State
from capplan.simulator.v1.drafts import lookahead_tokens, note_padding
from capplan.simulator.v1.priority import place_arrivals, place_waiting

CAPABILITY = Capability(settings=SETTINGS, keeps_batch=True)
"""Of a replica that pulls prompts' KV, whatever its engine; its settings are given."""
_AHEAD = 2.0**33
"""More than priorities differ by."""
_NOBODY = 2.0**62


@inlined()
def place_received(state: State, r: int):
    """Place the arrivals in the order of priority and of arrival here."""
    placed = int(state.replica_memory[r, REPLICA.placed])
    state.replica_memory[r, REPLICA.placed] += place_arrivals(state, r, placed)


@inlined()
def place_ahead(state: State, r: int, slot: int):
    """Let a request whose copy has begun stand before those of which none has."""
    place_waiting(state, r, slot, NONE, _AHEAD)


@inlined()
def note_chunk_before(state: State, slot: int):
    """Note the iteration with the last chunk of a prompt, which gets another."""
    step = state.requests[slot].chunk_step
    state.request_memory[slot, REQUEST.chunk] = step


@inlined()
def recomputes(state: State):
    """Return whether a request computes its last prompt token when its KV is here."""
    return state.settings[SETTING.recomputes] != 0


@inlined()
def begin_call(state: State, r: int):
    """Count a call of the scheduler, which knows of no copy yet."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    memory[REPLICA.calls] += 1.0
    memory[REPLICA.unknown] = 0.0
    replica.idle_until_s = math.inf  # until the next copy is here


@inlined()
def when_ready_s(state: State, slot: int):
    """Return when the copy of a request is here; 0 where it has not begun. [s]"""
    return state.request_memory[slot, REQUEST.ready_s]


@inlined()
def has_begun(state: State, slot: int):
    """Return whether the copy of a request has begun."""
    return when_ready_s(state, slot) != 0.0


@inlined()
def note_unknown(state: State, r: int):
    """Note that a copy is here of which the scheduler does not know."""
    state.replica_memory[r, REPLICA.unknown] = 1.0


@inlined()
def compute_last(state: State, r: int, slot: int):
    """Let a request compute its last prompt token, which costs as a decode."""
    replica = state.replicas[r]
    request = state.requests[slot]
    join_copied(state, r, slot, NONE)
    request.phase = Phase.PREFILLING
    log_entry(state, request.row, request.prompt_tokens - 1, 1)
    replica.batch_extra_count += 1
    replica.batch_extra_tokens += request.prompt_tokens
    request.next_in_list = replica.joining
    replica.joining = slot


@inlined()
def decode_at_once(state: State, r: int, slot: int):
    """Let a request decode whose first token has come with its KV."""
    request = state.requests[slot]
    join_copied(state, r, slot, state.replicas[r].prefilling)
    request.known_tokens = request.prompt_tokens + 1
    decode_again(state, r, slot)


@inlined()
def outrun_prompt(state: State, r: int):
    """Return whether requests stand behind an unfinished prompt that sat out."""
    replica = state.replicas[r]
    return replica.prefilling != NONE and replica.prefilling != replica.running_tail


@compiled()
def may_not_preempt(state: State, r: int, slot: int):
    """Return whether the request to preempt is in the iteration in flight."""
    replica = state.replicas[r]
    if not is_flying(replica):
        return False
    request = state.requests[slot]
    if request.phase == Phase.PREFILLING:
        step = request.chunk_step
        if step > replica.step:  # it had its turn, by priority
            step = int(state.request_memory[slot, REQUEST.chunk])
        return step == replica.step
    if state.engine[0].verifies != 0:
        return flies(state, r, slot, True)
    return request.phase != Phase.DECODING or not is_resuming(state, r, slot)


@inlined()
def wants_copy(state: State, slot: int):
    """Return whether the KV of a waiting request comes from a prefill replica."""
    return state.request_memory[slot, REQUEST.source] != 0.0


@inlined()
def note_next_copy(state: State, r: int, slot: int):
    """Note that a copy has begun, which may be the next to be here."""
    replica = state.replicas[r]
    replica.idle_until_s = min(replica.idle_until_s, when_ready_s(state, slot))


@inlined()
def blocks_wanted(state: State, r: int):
    """Return the blocks that the unfinished prompt of a replica will take."""
    slot = state.replicas[r].prefilling
    if slot == NONE:
        return 0
    request = state.requests[slot]
    block_size = state.engine[0].block_size
    held = ceil_div(request.computed_tokens, block_size)
    return ceil_div(request.known_tokens, block_size) - held


@inlined()
def copies_change(state: State, r: int):
    """Return whether a copy is found next, or a request goes on that sits out."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    found = memory[REPLICA.unknown] + memory[REPLICA.withheld] > 0.0
    return found or replica.sitting > 0 or replica.prefilling != NONE


@inlined()
def may_find_copy(state: State, r: int):
    """Return whether a copy is here that an idle replica knows at once."""
    replica = state.replicas[r]
    unknown = state.replica_memory[r, REPLICA.unknown] != 0.0
    return unknown and replica.in_flight == 0 and replica.preempted == 0


@inlined()
def run_until_next_copy(state: State, r: int):
    """Let iterations be scheduled only before the next copy is here.

    Where nothing runs, the replica is idle until then.
    """
    replica = state.replicas[r]
    next_s = replica.idle_until_s
    replica.until_s = min(replica.until_s, next_s)
    if next_s == math.inf or replica.preempted > 0:
        replica.idle_until_s = 0.0  # preempted: there is a seat now, look at once


@inlined()
def withhold_discarded(state: State, r: int):
    """Hold back the blocks of requests that the iteration in flight discards."""
    memory = state.replica_memory[r]
    replica = state.replicas[r]
    if replica.in_flight == 0:
        memory[REPLICA.withheld] = 0.0
    replica.free_blocks -= int(memory[REPLICA.withheld])
    memory[REPLICA.starting] = 0.0
    memory[REPLICA.unfinished] = replica.prefilling
    memory[REPLICA.waiting_behind] = _NOBODY


@compiled()
def _blocks_of_discarded(state: State, r: int):
    """Return the blocks that only requests hold which are computed and discarded."""
    count = 0
    slot = state.replicas[r].oldest_finishing
    while slot != NONE:
        request = state.requests[slot]
        if is_discarded(state, r, slot):
            count += ceil_div(request.room_tokens, state.engine[0].block_size)
            count += request.bounded_blocks
            count -= blocks_held_too(state, r, slot)
        slot = request.next_in_list
    return count


@inlined()
def has_nobody(state: State, r: int):
    """Return whether the iteration has nobody, neither decodes nor prompts."""
    replica = state.replicas[r]
    pads = state.replica_memory[r, speculation.REPLICA.pads]
    return pads == 2.0 and replica.batch_tokens + replica.batch_extra_count == 0


@inlined()
def wait_behind(state: State, r: int, admission):
    """Note behind which admission requests sit the iteration out, if there is one."""
    state.replica_memory[r, REPLICA.waiting_behind] = admission


@inlined()
def waiting_behind(state: State, r: int):
    """Return that admission."""
    return state.replica_memory[r, REPLICA.waiting_behind]


@inlined()
def is_waiting_behind(state: State, r: int, slot: int):
    """Return whether a request that decodes stands behind it."""
    request = state.requests[slot]
    decodes = request.phase == Phase.DECODING
    return decodes and request.admission > waiting_behind(state, r)


@inlined()
def _first_blocks(state: State, tokens):
    """Return the blocks of a request that knows so many tokens and verifies drafts."""
    tokens += verified_tokens(state) + int(
        state.settings[speculation.SETTING.lookahead]
    )
    return ceil_div(tokens, state.engine[0].block_size)


@inlined()
def _more_with_drafts(state: State, known_tokens, room_tokens):
    """Return the blocks that a request takes until it verifies drafts."""
    held = ceil_div(room_tokens, state.engine[0].block_size)
    return _first_blocks(state, known_tokens) - held


@inlined()
def blocks_reserved(state: State, r: int):
    """Return the blocks that are to stay free where another copy begins."""
    memory = state.replica_memory[r]
    blocks = int(memory[REPLICA.reserved] + memory[REPLICA.starting])
    slot = int(memory[REPLICA.unfinished])
    if slot != NONE:
        request = state.requests[slot]
        blocks += _more_with_drafts(state, request.known_tokens, request.room_tokens)
    return blocks + _first_blocks(state, 0)


@inlined()
def reserve_blocks(state: State, r: int, slot: int):
    """Reserve what a request takes when it runs, whose copy has begun."""
    tokens = state.requests[slot].prompt_tokens
    more = _more_with_drafts(state, tokens, tokens)
    state.replica_memory[r, REPLICA.reserved] += more


@inlined()
def take_copied_room(state: State, r: int, slot: int, padding):
    """Take the blocks of a last token beside drafts that are none, if they are free."""
    request = state.requests[slot]
    size = state.engine[0].block_size
    prompt = request.prompt_tokens
    room = prompt + padding + lookahead_tokens(state)
    blocks = ceil_div(room, size) - ceil_div(prompt, size)
    if blocks > state.replicas[r].free_blocks:
        return False
    take_blocks(state, r, blocks)
    memory = state.replica_memory[r]
    memory[REPLICA.reserved] -= _more_with_drafts(state, prompt, prompt)
    memory[REPLICA.starting] += _more_with_drafts(state, prompt, room)
    request.room_tokens = room
    return True


@inlined()
def pad_copied(state: State, r: int, slot: int, padding):
    """Note the drafts beside the token that a request computes again."""
    state.request_memory[slot, speculation.REQUEST.padded] = 0.0
    if padding > 0:
        note_padding(state, r, slot, padding)


@inlined()
def run_withholding(state: State, r: int, horizon):
    """Run what was put together; hold back the blocks that this iteration discards.

    Return -1, or ``horizon`` where that is 0 or of a rank, whose group runs it.
    """
    memory = state.replica_memory[r]
    withheld = 0
    if horizon > 0:
        if state.engine[0].blocks_per_chunk == 0:
            withheld = _blocks_of_discarded(state, r)
        if state.engine[0].ranks == 0:
            run_iterations(state, r, horizon)
            horizon = -1
    state.replicas[r].free_blocks += int(memory[REPLICA.withheld])
    memory[REPLICA.withheld] = withheld
    return horizon
