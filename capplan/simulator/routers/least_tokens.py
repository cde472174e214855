"""Fewest tokens outstanding: prompts and predicted answers of unfinished requests."""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.records import Replica
from capplan.simulator.state import ROUTE, Count, Needs, State

NEEDS = Needs.COUNTS


@inlined()
def _tokens(replica: Replica):
    return replica.outstanding_prompt_tokens + replica.outstanding_output_tokens


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica with the fewest outstanding tokens, the first of equals."""
    best = 0
    for r in range(1, state.counts[Count.OPEN]):
        if _tokens(state.replicas[r]) < _tokens(state.replicas[best]):
            best = r
    return best
