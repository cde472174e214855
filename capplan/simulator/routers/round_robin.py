"""Each replica in turn."""

from capplan.routing import round_robin
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import ROUTE, Count, Needs, State

NEEDS = Needs.NOTHING

_round_robin = inlined()(round_robin)


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica after the one that got the arrival before."""
    return _round_robin(state.counts[Count.ROUTED], state.counts[Count.OPEN])
