"""A ring of hashes, on which each replica has its points.

What is hashed to a place of the ring goes to the replica of the next point. A replica
that closes leaves its keys to the next points, and the others keep theirs (Karger et
al., "Consistent hashing and random trees", STOC 1997). One that comes later, in its row
or another, is a new one, with points of its own.
"""

import hashlib
from functools import cache

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import Count, State

POINTS = 160
"""Points of a replica, as in uhashring 2.3, which vLLM production-stack uses."""
PLACES = 2**32
_LOW = PLACES - 1
_REPLICA_BITS = 24


def place_points(state: State) -> None:
    """Give each replica the points of its number: place, then row, in one number."""
    points = []
    for r, number in enumerate(state.replicas["number"].tolist()):
        points += [(place << _REPLICA_BITS) + r for place in _places(number)]
    state.runs["point"][: len(points)] = sorted(points)
    state.counts[Count.POINTS] = len(points)


@cache
def _places(number: int) -> tuple[int, ...]:
    """Return the places of a replica's points: from md5, as there, of number-point."""
    digests = (
        hashlib.md5(f"{number}-{point}".encode(), usedforsecurity=False).digest()
        for point in range(POINTS)
    )
    return tuple(int.from_bytes(digest[:4], "big") for digest in digests)


@inlined()
def mixed(number):
    """Return a number below 2**32 in which each bit depends on all of another."""
    # The product of 32 and 27 bits fits an int64.
    number = ((number >> 16) ^ number) * 0x45D9F3B & _LOW
    number = ((number >> 16) ^ number) * 0x45D9F3B & _LOW
    return (number >> 16) ^ number


@inlined()
def place_of(key, salt):
    """Return the place of a key, a number below 2**62; ``salt`` is below 2**32."""
    return mixed(mixed(key & _LOW) ^ mixed((key >> 32) ^ salt))


@compiled()
def replica_at(state: State, place):
    """Return the open replica of the next point behind a place."""
    ring = state.runs.point
    points = state.counts[Count.POINTS]
    low, high = 0, points
    while low < high:
        middle = (low + high) // 2
        if ring[middle] >> _REPLICA_BITS <= place:
            low = middle + 1
        else:
            high = middle
    while True:
        if low == points:
            low = 0
        r = ring[low] & ((1 << _REPLICA_BITS) - 1)
        if r < state.counts[Count.OPEN]:
            return r
        low += 1
