"""Live migration of a decoding request: copied in stages while it runs on.

Llumnix (AlibabaPAI/llumnix, llumlet/migration_coordinator.py): a stage copies the
blocks that are full, the last stage all that are left; for that the request leaves its
source. A stage of at most ``last`` blocks is the last one. What a stage copies is taken
at the destination when it begins; with the last one a seat too. Nothing is exchanged
between the replicas in between, so the end of a stage is known when it begins, and so
is the time at which the request joins. The copies do not slow the replicas.
"""

import math

from capplan.simulator.engine.queues import (
    count_outstanding,
    join_running,
    push_waiting_back,
    remove_running,
)
from capplan.simulator.engine.replica import end_idling
from capplan.simulator.engine.wake import set_wake
from capplan.simulator.fleet.motion import JOIN, STAGE_END, Index, push_event
from capplan.simulator.fleet.moving_requests import (
    decoded_tokens,
    join_iterations,
    leave_iterations,
    lose_draws,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import (
    ceil_div,
    give_blocks,
    return_blocks,
    share_full_blocks,
    take_blocks,
)
from capplan.simulator.memory.active_blocks import recharge
from capplan.simulator.records import Request
from capplan.simulator.state import NONE, Phase, State

BLOCK_S, HANDSHAKE_S, STAGES, LAST = range(4)
"""Settings of every rebalancer, the first of ``Motion.settings``: the time to copy a
block and of a stage's handshake, the most stages, and the blocks of the last one."""


@inlined()
def resume(state: State, r: int, now_s):
    """Let a replica look again that could run nothing before something came."""
    if state.replicas[r].now_s == math.inf:
        state.replicas[r].now_s = now_s
    set_wake(state, r)


@inlined()
def forget_tokens(request: Request):
    """Let a request have no token yet that it was given."""
    request.first_token_s = math.nan
    request.longest_gap_s = 0.0
    request.late_gaps = 0


@inlined()
def forget_kv(request: Request):
    """Let a request hold no KV."""
    request.computed_tokens = 0
    request.shared_blocks = 0
    request.hit_blocks = 0
    request.token_step = NONE


@inlined()
def _end(state: State, motion, source, now_s, joined):
    move = motion.moves[source]
    for r in (source, move.destination):
        if r != NONE:
            motion.busy[r] = 0
            state.replicas[r].awaited -= 1
            resume(state, r, now_s)
    move.source = source
    move.ended_s = now_s
    move.joined = joined
    motion.moved[motion.counts[Index.MOVED]] = move
    motion.counts[Index.MOVED] += 1
    move.slot = NONE


@compiled()
def abort(state: State, motion, source, now_s):
    """Give back what was taken at the destination; the request runs on."""
    move = motion.moves[source]
    give_blocks(state, move.destination, move.sent_blocks)
    _end(state, motion, source, now_s, 0)


@inlined()
def _is_there(state: State, motion, source):
    """Return whether the request still decodes at its source, and always has."""
    move = motion.moves[source]
    request = state.requests[move.slot]
    return (
        request.row == move.row
        and decoded_tokens(state, move.slot) != NONE
        and request.replica == source
        and request.admission == move.admission
    )


@inlined()
def _leave(state: State, motion, source, blocks, now_s):
    """Take a request out of the iterations from here on; its last blocks follow it."""
    move = motion.moves[source]
    replica = state.replicas[source]
    slot = move.slot
    request = state.requests[slot]
    move.known_tokens = request.known_tokens
    move.last_token_s = request.last_token_s
    if request.phase == Phase.DECODING:
        request.computed_tokens = leave_iterations(state, source, slot)
    else:  # it sits an iteration out, and its replica need not look for it any more
        replica.paused -= 1
    remove_running(state, source, slot)
    request.phase = Phase.EXPECTED
    state.replicas[move.destination].running_count += 1
    move.is_last = 1
    move.step = replica.step
    move.left_s = replica.gpu_s if replica.in_flight > 0 else now_s
    settings = motion.settings
    join_s = move.left_s + settings[HANDSHAKE_S] + blocks * settings[BLOCK_S]
    move.event = push_event(motion, join_s, JOIN, source, slot)


@compiled()
def begin_stage(state: State, motion, source, now_s):
    """Begin the next stage of a migration; both replicas stand at ``now_s``."""
    move = motion.moves[source]
    target = state.replicas[move.destination]
    settings = motion.settings
    slot = move.slot
    blocks = ceil_div(decoded_tokens(state, slot), state.engine[0].block_size)
    blocks -= move.sent_blocks
    move.stage += 1
    is_last = blocks <= settings[LAST]
    taken = blocks - 1
    if is_last:
        taken = blocks + state.requests[slot].bounded_blocks
    full = is_last and target.running_count >= state.engine[0].max_num_seqs
    if move.stage > settings[STAGES] or taken > target.free_blocks or full:
        abort(state, motion, source, now_s)
        return
    take_blocks(state, move.destination, taken)
    move.sent_blocks += taken
    if is_last:
        _leave(state, motion, source, blocks, now_s)
    else:
        end_s = now_s + settings[HANDSHAKE_S] + taken * settings[BLOCK_S]
        move.event = push_event(motion, end_s, STAGE_END, source, slot)
    set_wake(state, source)
    set_wake(state, move.destination)


@compiled()
def begin(state: State, motion, source, destination, slot: int, now_s):
    """Begin a migration; all replicas stand at ``now_s``."""
    request = state.requests[slot]
    move = motion.moves[source]
    move.slot = slot
    move.destination = destination
    move.admission = request.admission
    move.row = request.row
    move.stage = 0
    move.is_last = 0
    move.sent_blocks = 0
    move.began_s = now_s
    move.left_s = math.nan
    for r in (source, destination):
        motion.busy[r] = 1
        state.replicas[r].awaited += 1
    begin_stage(state, motion, source, now_s)


@compiled()
def end_stage(state: State, motion, source, now_s):
    """Go on after a stage; both replicas stand at ``now_s``."""
    if _is_there(state, motion, source):
        begin_stage(state, motion, source, now_s)
    else:
        abort(state, motion, source, now_s)


@compiled()
def lose_source(state: State, motion, r: int, now_s):
    """End the migration from a replica that dies; return the request if it has left.

    What is in flight of its tokens is lost.
    """
    move = motion.moves[r]
    slot = move.slot
    if slot == NONE:
        return NONE
    if move.is_last == 0:
        abort(state, motion, r, now_s)
        return NONE
    replica = state.replicas[r]
    request = state.requests[slot]
    if move.destination != NONE:  # else it died before, with what was taken there
        state.replicas[move.destination].running_count -= 1
        give_blocks(state, move.destination, move.sent_blocks)
    if replica.in_flight > 0 and move.left_s >= replica.oldest_end_s:
        lost = 1 + int(move.left_s > replica.oldest_end_s)
        if state.engine[0].verifies != 0:
            lose_draws(state, r, slot, move.step, move.step - lost)
        else:
            request.known_tokens -= min(lost, request.known_tokens - move.known_tokens)
            request.last_token_s = replica.now_s
            if request.known_tokens == move.known_tokens:  # it got none here
                request.last_token_s = move.last_token_s
        if request.known_tokens == request.prompt_tokens:
            forget_tokens(request)
    request.preemptions += 1
    request.unhashed_tokens = 0
    forget_kv(request)
    _end(state, motion, r, now_s, 0)
    return slot


@compiled()
def lose_destination(state: State, motion, r: int, now_s):
    """End the migration to a replica that dies.

    A request that has left its source for it goes back to the queue there, when it
    would have joined.
    """
    for source in range(motion.moves.shape[0]):
        move = motion.moves[source]
        if move.slot == NONE or move.destination != r:
            continue
        if move.is_last == 0:
            abort(state, motion, source, now_s)
        else:
            motion.busy[r] = 0
            move.destination = NONE


@compiled()
def turn_back(state: State, motion, source, now_s):
    """Put a request whose destination has died into the queue of its source."""
    move = motion.moves[source]
    slot = move.slot
    request = state.requests[slot]
    replica = state.replicas[source]
    held = request.computed_tokens
    return_blocks(state, source, slot, held, held - request.unhashed_tokens, True)
    request.preemptions += 1
    request.computed_tokens = 0
    request.unhashed_tokens = 0
    request.token_step = NONE
    request.phase = Phase.WAITING
    replica.prefill_tokens += request.known_tokens
    if replica.running_count + replica.waiting_count == 0:  # it has idled
        replica.now_s = max(replica.now_s, now_s)
    push_waiting_back(state, source, slot)
    _end(state, motion, source, now_s, 0)


@compiled()
def join(state: State, motion, source, now_s):
    """Let a request decode at its destination; both replicas stand at ``now_s``."""
    move = motion.moves[source]
    slot = move.slot
    request = state.requests[slot]
    held = request.computed_tokens
    return_blocks(state, source, slot, held, held - request.unhashed_tokens, True)
    target = state.replicas[move.destination]
    if target.outstanding == 0:
        end_idling(state, move.destination, now_s)
    target.running_count -= 1  # the seat that was kept
    count_outstanding(state, source, slot, -1)
    count_outstanding(state, move.destination, slot, 1)
    join_running(state, move.destination, slot, target.prefilling)
    recharge(state, move.destination, slot)
    request.replica = move.destination
    request.migrations += 1
    request.joined_tokens = held
    if state.engine[0].prefix_caching != 0:
        share_full_blocks(state, move.destination, slot, held)
    join_iterations(state, move.destination, slot, move.step)
    _end(state, motion, source, now_s, 1)
