"""Requests that decode: one token each iteration, counted and not looked at.

A decoding request stands in the heap of ends, its context in a sum and its KV length
in a histogram, so that no iteration touches it until it ends.
"""

from capplan.simulator.engine.gaps import (
    end_gaps,
    enter_resuming,
    leaves_resuming,
    start_gaps,
)
from capplan.simulator.engine.queues import push_end, remove_end
from capplan.simulator.engine.speculation import (
    end_line,
    join_line,
    leave_line,
    tokens_before,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase, State


@inlined()
def residue(state: State, slot: int):
    """Return the column of ``residues`` that counts a decoding request.

    Its KV length less the iteration number, which stays the same while it
    decodes: both grow by one.
    """
    request = state.requests[slot]
    block_size = state.residues.shape[1]
    return (
        request.prompt_tokens + request.run_tokens - request.end_step - 2
    ) % block_size


@inlined()
def computed_tokens(state: State, slot: int, step):
    """Return the KV tokens that a decoding request holds before iteration ``step``."""
    if state.engine[0].verifies != 0:
        return tokens_before(state, slot, step)
    request = state.requests[slot]
    last = request.prompt_tokens + request.run_tokens - 1
    return last - (request.end_step - step) - 1


@inlined()
def leave_decoding(state: State, r: int, slot: int):
    """Take a request out of the counts of decoding requests."""
    replica = state.replicas[r]
    replica.decode_count -= 1
    if state.engine[0].verifies != 0:
        leave_line(state, r, slot)
        return
    state.residues[r, residue(state, slot)] -= 1
    replica.context_tokens -= computed_tokens(state, slot, replica.step + 1) + 1


@inlined()
def stop_decoding(state: State, r: int, slot: int):
    """Take a request out of the decoding ones; return the KV tokens it holds."""
    replica = state.replicas[r]
    request = state.requests[slot]
    held = computed_tokens(state, slot, replica.step + 1)
    if state.engine[0].verifies != 0:
        end_line(state, slot, replica.step)
    remove_end(state, r, slot)
    leave_decoding(state, r, slot)
    end_gaps(state, r, slot)
    request.known_tokens = held + 1
    if not leaves_resuming(state, r, slot):
        request.last_token_s = replica.decoded_s
    return held


@inlined()
def enter_decoding(state: State, r: int, slot: int, context):
    """Count a request among the decoding ones; its next token has this context.

    The iteration of its last token, ``end_step``, is known.
    """
    replica = state.replicas[r]
    state.requests[slot].phase = Phase.DECODING
    push_end(state, r, slot)
    replica.decode_count += 1
    if state.engine[0].verifies != 0:
        join_line(state, r, slot)
        return
    replica.context_tokens += context
    state.residues[r, residue(state, slot)] += 1


@inlined()
def decode_line(state: State, r: int):
    """Return the time of an iteration of the decodes alone, and how it grows. [s]"""
    replica = state.replicas[r]
    times = state.by_batch[replica.decode_count]
    first_s = times.decode_s + times.decode_context_s * replica.context_tokens
    return first_s, times.decode_context_s * replica.decode_count


@inlined()
def decode_again(state: State, r: int, slot: int):
    """Let a running request decode from the next iteration on: it did not for a time.

    It has the KV of all tokens that it knows but the newest.
    """
    replica = state.replicas[r]
    request = state.requests[slot]
    generated = request.known_tokens - request.prompt_tokens
    start_gaps(state, r, slot)
    request.end_step = replica.step + request.run_tokens - generated
    enter_decoding(state, r, slot, request.known_tokens)
    enter_resuming(state, r, slot)


@inlined()
def sit_out(state: State, r: int, slot: int):
    """Let a decode sit the next iteration out; return the KV tokens that it holds."""
    held = stop_decoding(state, r, slot)
    state.replicas[r].sitting += 1
    state.requests[slot].phase = Phase.PAUSED
    return held


@compiled()
def end_sitting(state: State, r: int):
    """Let those decode again that sat the iteration out."""
    slot = state.replicas[r].running_head
    while slot != NONE:
        if state.requests[slot].phase == Phase.PAUSED:
            decode_again(state, r, slot)
        slot = state.requests[slot].next
