"""A replica that dies: its requests lose their KV and wait for another one.

For vLLM V1's scheduler. What the iterations in flight would have given is lost; the
longest gap between two tokens of a request may still be the one before such a result.
"""

from numba import types

from capplan.simulator.engine.decoding import computed_tokens, stop_decoding
from capplan.simulator.fleet.migration import (
    forget_kv,
    forget_tokens,
    lose_destination,
    lose_source,
)
from capplan.simulator.fleet.motion import MOTION, Index
from capplan.simulator.fleet.moving_requests import lose_verifying
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.memory.active_blocks import discharge
from capplan.simulator.state import NONE, STATE, Phase, State


@inlined()
def _is_newest(state: State, r: int, slot: int):
    """Return whether the last token of a request is in the second iteration."""
    other = state.replicas[r].newest_finishing
    while other != NONE:
        if other == slot:
            return True
        other = state.requests[other].next_in_list
    return False


@compiled()
def _tokens_in_flight(state: State, r: int, slot: int):
    """Return the tokens given to a request since it ran last, and those in flight."""
    replica = state.replicas[r]
    request = state.requests[slot]
    given = 0
    in_flight = replica.in_flight
    if request.phase == Phase.DECODING:
        held = computed_tokens(state, slot, replica.step + 1)
        given = held + 1 - request.known_tokens
    elif request.phase == Phase.DRAINING:
        given = request.prompt_tokens + request.run_tokens - request.known_tokens
        if not _is_newest(state, r, slot):
            in_flight = 1
    elif request.phase == Phase.PREEMPTED_DRAINING:
        return 1, 1
    elif request.phase == Phase.WAITING and request.preemptions > 0:
        # Preempted for iteration ``token_step``; the one before may be in flight.
        given = int(request.token_step - 1 > replica.step - replica.in_flight)
    return given, min(in_flight, given)


@compiled()
def _lose(state: State, r: int, slot: int):
    """Let a request know only what it has been given, and hold nothing."""
    request = state.requests[slot]
    ran = request.phase != Phase.WAITING and request.phase != Phase.PREEMPTED_DRAINING
    request.preemptions += int(ran)
    if state.engine[0].verifies != 0:
        lose_verifying(state, r, slot)
    else:
        _lose_in_flight(state, r, slot, ran)
    if request.known_tokens == request.prompt_tokens:
        forget_tokens(request)
    forget_kv(request)
    request.phase = Phase.EXPECTED


@inlined()
def _lose_in_flight(state: State, r: int, slot: int, ran):
    """Let a request know only what it has been given; ``ran``: it was running."""
    replica = state.replicas[r]
    request = state.requests[slot]
    given, in_flight = _tokens_in_flight(state, r, slot)
    last_token_s = request.last_token_s
    if request.phase == Phase.DECODING:
        stop_decoding(state, r, slot)
    elif request.phase == Phase.DRAINING:
        request.known_tokens = request.prompt_tokens + request.run_tokens
    # One preempted has lost the token before which the replica scheduled last.
    is_newer = given > in_flight or (given > 0 and not ran)
    request.last_token_s = replica.now_s if is_newer else last_token_s
    request.known_tokens -= in_flight


@inlined()
def _hold_in_order(state: State, motion, before, slot: int):
    """Let a request wait for a replica, behind ``before`` and in order of rows."""
    row = state.requests[slot].row
    following = motion.counts[Index.HELD_FIRST]
    if before != NONE:
        following = state.requests[before].next_in_list
    while following != NONE and state.requests[following].row < row:
        before = following
        following = state.requests[following].next_in_list
    state.requests[slot].next_in_list = following
    if before == NONE:
        motion.counts[Index.HELD_FIRST] = slot
    else:
        state.requests[before].next_in_list = slot
    if following == NONE:
        motion.counts[Index.HELD_LAST] = slot


@inlined()
def _give_up_charge(state: State, slot: int):
    """Let the router take a request off a replica; the next one is charged anew."""
    request = state.requests[slot]
    if request.charged_holder != NONE:
        discharge(state, slot)
    request.charged_tokens = 0


@compiled()
def _lose_all(state: State, motion, r: int, last):
    """Take all requests off a replica or a rank, and hold them behind ``last``."""
    for hold in (False, True):  # the lists of what is in flight are read before
        for head in (state.replicas[r].running_head, state.replicas[r].waiting_head):
            slot = head
            while slot != NONE:
                if hold:
                    _give_up_charge(state, slot)
                    _hold_in_order(state, motion, last, slot)
                else:
                    _lose(state, r, slot)
                slot = state.requests[slot].next


@inlined()
def _forget_dummies(rank):
    """Let a rank have in flight what it computes for requests, which comes first."""
    if rank.in_flight > 0 and rank.decoded_s < rank.oldest_end_s:
        rank.in_flight = 0
    elif rank.in_flight == 2 and rank.decoded_s < rank.newest_end_s:
        rank.in_flight = 1


@compiled(types.void(STATE, MOTION, types.int64, types.float64))
def fail(state: State, motion, r: int, now_s):
    """Take all requests off a replica, which stands at ``now_s``, in order of rows."""
    last = motion.counts[Index.HELD_LAST]
    count = state.engine[0].ranks
    if count > 0:
        ranks = state.by_rank
        for row in range(r * count, (r + 1) * count):
            _forget_dummies(ranks.replicas[row])
            _lose_all(ranks, motion, row, last)
        return
    moving = lose_source(state, motion, r, now_s)
    if moving != NONE:
        _give_up_charge(state, moving)
        _hold_in_order(state, motion, last, moving)
    lose_destination(state, motion, r, now_s)
    _lose_all(state, motion, r, last)
