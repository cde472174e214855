"""Recurrent states on pipeline stages, of which several chunks may be in flight.

Each step in flight has its columns of a request (``v1/stages.py``), by which states are
free and hashed. All running requests are looked at in each step.
"""

from capplan.simulator.engine.in_flight import collected_step
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.states import free_old_states, hashes_again
from capplan.simulator.state import Phase, State
from capplan.simulator.v1.stages import next_step, turn_of, was_in


@inlined()
def _start_in(state: State, slot: int, step):
    """Return the tokens before those of a request in a step in flight."""
    column = turn_of(state, step) - state.engine[0].depth
    return int(state.request_memory[slot, column])


@compiled()
def collected_on_stages(state: State, r: int, slot: int, computed):
    """Return how many of the tokens scheduled before this step are not in flight."""
    for step in range(collected_step(state, r) + 1, next_step(state, r)):
        if was_in(state, slot, step):
            return _start_in(state, slot, step)
    return computed


@inlined()
def free_states_on_stages(state: State, r: int, slot: int, computed):
    """Free the states that a request no longer needs; it has ``computed`` tokens."""
    collected = collected_on_stages(state, r, slot, computed)
    free_old_states(state, r, slot, collected, computed)


@compiled()
def hashes_on_stages(state: State, r: int, slot: int, tokens):
    """Return whether the step hashes the state of a request at ``tokens``."""
    step = next_step(state, r)
    if not was_in(state, slot, step):
        return False
    request = state.requests[slot]
    if request.phase == Phase.PREFILLING:
        if request.computed_tokens == tokens:
            return True
        return hashes_again(state, slot, request.computed_tokens, tokens)
    # Known is the token behind those that are not in flight, and all of its prompt.
    collected = collected_on_stages(state, r, slot, _start_in(state, slot, step))
    known = max(collected + 1, request.known_tokens)
    return hashes_again(state, slot, known, tokens)
