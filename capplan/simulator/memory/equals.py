"""One of the replicas that a router holds to be equally good."""

from capplan.simulator.jit import inlined
from capplan.simulator.state import Count, State


@inlined()
def one_of_equals(state: State, n, value):
    """Return one of n replicas that have a value in ``scratch``, by the first draw."""
    values = state.scratch[0]
    equals = 0
    for r in range(n):
        equals += int(values[r] == value)
    left = int(state.draws[state.counts[Count.DRAW], 0] * equals)
    for r in range(n):
        if values[r] == value:
            if left == 0:
                return r
            left -= 1
    return 0
