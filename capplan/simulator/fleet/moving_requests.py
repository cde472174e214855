"""Requests that leave their replica or lose it, with drafts or without.

One that decodes elsewhere goes on along the line of its draws, as one does that sat
iterations out (speculation.py). One whose replica died knows the tokens that it was
given, and what is left is drawn anew from there, as after a preemption.
"""

from capplan.simulator.engine.decoding import (
    computed_tokens,
    decode_again,
    enter_decoding,
    stop_decoding,
)
from capplan.simulator.engine.gaps import enter_resuming, start_gaps
from capplan.simulator.engine.speculation import (
    REQUEST,
    findable_tokens,
    run_after,
    tokens_before,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase, State


@inlined()
def decoded_tokens(state: State, slot: int):
    """Return the KV tokens on which a running request of vLLM V1 decodes next, or NONE.

    Also one that sits the last iteration out (PAUSED).
    """
    request = state.requests[slot]
    if request.phase == Phase.DECODING:
        step = state.replicas[request.replica].step + 1
        return computed_tokens(state, slot, step)
    return request.computed_tokens if request.phase == Phase.PAUSED else NONE


@inlined()
def leave_iterations(state: State, r: int, slot: int):
    """Take a decoding request out of a replica's; return the KV tokens that it holds.

    ``unhashed_tokens`` are those that the replica never enters in its prefix cache.
    """
    if state.engine[0].verifies == 0:
        return stop_decoding(state, r, slot)
    found = findable_tokens(state, r, slot, False)
    held = stop_decoding(state, r, slot)
    state.requests[slot].unhashed_tokens = held - found
    state.replicas[r].quiet_s = 0.0
    return held


@inlined()
def _verify_again(state: State, r: int, slot: int, left_step):
    """Let a request go on with its draws that left a replica after ``left_step``."""
    replica = state.replicas[r]
    memory = state.request_memory[slot]
    done = left_step - memory[REQUEST.began]
    memory[REQUEST.drawn] -= done
    memory[REQUEST.began] = replica.step - done
    run_after(state, slot, replica.step)
    start_gaps(state, r, slot)
    request = state.requests[slot]
    request.room_tokens = request.computed_tokens
    request.unhashed_tokens = 0
    request.end_step = int(memory[REQUEST.began] + memory[REQUEST.iterations])
    enter_decoding(state, r, slot, 0)
    enter_resuming(state, r, slot)
    replica.quiet_s = 0.0


@inlined()
def join_iterations(state: State, r: int, slot: int, left_step):
    """Let a request decode on a replica that has the KV of what it computed.

    It was in no iteration of its source after ``left_step``.
    """
    if state.engine[0].verifies == 0:
        decode_again(state, r, slot)
    else:
        _verify_again(state, r, slot, left_step)


@compiled()
def lose_draws(state: State, r: int, slot: int, last, collected):
    """Let a request know only what iterations up to ``collected`` gave it.

    ``last`` is the last one of its replica that it was scheduled for or sat out; its
    draws are noted as done up to there. Its last token was given then, if it was.
    """
    request = state.requests[slot]
    memory = state.request_memory[slot]
    since, out = int(memory[REQUEST.sat_since]), int(memory[REQUEST.sat_out])
    done = last - int(memory[REQUEST.began])
    given = done
    for step in range(collected + 1, last + 1):
        given -= int(step < since or step > out)
    base, before = int(memory[REQUEST.base]), int(memory[REQUEST.before])
    earlier = int(memory[REQUEST.earlier])
    if given >= 0:
        step = int(memory[REQUEST.began]) + given + 1
        request.known_tokens = tokens_before(state, slot, step) + 1
    elif before == base:  # not even the prompt's, which is not drawn
        request.known_tokens = base
        given = 0
    elif given == -1:
        request.known_tokens = before + 1
    elif earlier < before:
        request.known_tokens = earlier + 1
    else:
        request.known_tokens = before
        given = -1
    memory[REQUEST.drawn] += given - done
    request.last_token_s = state.replicas[r].now_s
    if since <= collected <= out:
        request.last_token_s = memory[REQUEST.sat_s]


@compiled()
def lose_verifying(state: State, r: int, slot: int):
    """Let a request of a replica that dies know what it has been given."""
    replica = state.replicas[r]
    request = state.requests[slot]
    memory = state.request_memory[slot]
    collected = replica.step - replica.in_flight
    if request.phase == Phase.DECODING:
        stop_decoding(state, r, slot)
        lose_draws(state, r, slot, replica.step, collected)
    elif request.phase == Phase.DRAINING or request.phase == Phase.PREEMPTED_DRAINING:
        memory[REQUEST.drawn] += request.end_step - memory[REQUEST.began]
        lose_draws(state, r, slot, request.end_step, collected)
    elif request.phase == Phase.WAITING and request.preemptions > 0:
        # Preempted for iteration ``token_step``; the one before may be in flight.
        last = request.token_step - 1
        if last > collected:
            lose_draws(state, r, slot, last, collected)
    memory[REQUEST.padded] = 0.0
    request.room_tokens = 0
