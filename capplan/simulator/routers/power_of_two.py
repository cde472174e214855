"""Power of two choices: the shorter queue of two replicas drawn at random."""

from capplan.routing import shorter_of_two
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import ROUTE, Count, Needs, State

NEEDS = Needs.COUNTS

_shorter_of_two = inlined()(shorter_of_two)


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica with fewer outstanding requests of two distinct ones."""
    draw = state.draws[state.counts[Count.DRAW]]
    outstanding = state.replicas.outstanding[: state.counts[Count.OPEN]]
    return _shorter_of_two(outstanding, draw[0], draw[1])
