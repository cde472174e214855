"""Join the shortest queue: fewest requests arrived and not finished."""

from capplan.routing import shortest_queue
from capplan.simulator.fleet.tournament import first_of_fewest
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import ROUTE, Count, Needs, State

NEEDS = Needs.COUNTS

_shortest_queue = inlined()(shortest_queue)


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica with the fewest outstanding requests, the first of equals."""
    if state.trees.shape[1] > 0:
        return first_of_fewest(state)
    return _shortest_queue(state.replicas.outstanding[: state.counts[Count.OPEN]])
