"""A doubly linked list through the ``next`` and ``previous`` of records.

Its first and last element belong to whoever keeps the list; both functions take them
and return what they are afterwards. An element leaves from anywhere without a search.
"""

from capplan.simulator.jit import inlined
from capplan.simulator.state import NONE


@inlined()
def linked(nodes, first, last, node, following):
    """Put an element before another, or last where that is NONE."""
    before = last if following == NONE else nodes[following].previous
    nodes[node].previous = before
    nodes[node].next = following
    if before == NONE:
        first = node
    else:
        nodes[before].next = node
    if following == NONE:
        last = node
    else:
        nodes[following].previous = node
    return first, last


@inlined()
def unlinked(nodes, first, last, node):
    """Take an element out of the list."""
    before, following = nodes[node].previous, nodes[node].next
    if before == NONE:
        first = following
    else:
        nodes[before].next = following
    if following == NONE:
        last = before
    else:
        nodes[following].previous = before
    return first, last
