"""Recurrent states on pipeline stages, of which several chunks may be in flight.

Each step in flight has its columns of a request (``v1/stages.py``), by which states are
free and hashed. All running requests are looked at in each step: there is no worklist.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.states import free_old_states, hashes_again, shares_tokens
from capplan.simulator.state import NONE, Phase
from capplan.simulator.v1.stages import collected_step, next_step, was_in


@compiled()
def collected_on_stages(state, r, slot, computed):
    """Return how many of the tokens scheduled before this step are not in flight."""
    depth = state.engine[0].depth
    memory = state.request_memory[slot]
    for step in range(collected_step(state, r) + 1, next_step(state, r)):
        if was_in(state, slot, step):
            return int(memory[memory.shape[0] - 2 * depth + step % depth])
    return computed


@inlined()
def free_states_on_stages(state, r, slot, computed):
    """Free the states that a request no longer needs; it has ``computed`` tokens."""
    collected = collected_on_stages(state, r, slot, computed)
    free_old_states(state, r, slot, collected, computed)


@compiled()
def _hashes_now(state, r, slot, tokens):
    """Return whether the step hashes the state of a request at ``tokens``."""
    step = next_step(state, r)
    if not was_in(state, slot, step):
        return False
    request = state.requests[slot]
    if request.phase == Phase.PREFILLING:
        if request.computed_tokens == tokens:
            return True
        return hashes_again(state, slot, request.computed_tokens, tokens, False)
    depth = state.engine[0].depth
    memory = state.request_memory[slot]
    before = int(memory[memory.shape[0] - 2 * depth + step % depth])
    # The newest token is not known yet where it is in flight.
    flying = int(collected_on_stages(state, r, slot, before) < before)
    return hashes_again(state, slot, before + 1 - flying, tokens, False)


@compiled()
def is_hashed_on_stages(state, r, slot, tokens):
    """Return whether the step hashes the state that a request would use."""
    other = state.replicas[r].running_head
    while other != NONE:
        shares = shares_tokens(state, slot, other, tokens)
        if shares and _hashes_now(state, r, other, tokens):
            return True
        other = state.requests[other].next
    return False
