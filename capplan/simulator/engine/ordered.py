"""Requests of a replica in order of (key, tie_break): a treap through their slots.

A scheduler places each of its requests by a ``key`` and a ``tie_break``, kept in
``state.orders``; the first, the last and those beside another are found in logarithmic
time. Waiting and running requests may both be in it. Nothing is allocated. The
depth is kept by weights from a hash of the row, so that it is the same in every run.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, State


@inlined()
def precedes(state: State, one, other):
    """Return whether a request stands before another."""
    a = state.orders[one]
    b = state.orders[other]
    return a.key < b.key or (a.key == b.key and a.tie_break < b.tie_break)


@inlined()
def _weight(state: State, slot: int):
    return (state.requests[slot].row * 0x9E3779B1) & 0x7FFFFFFF


@inlined()
def _put_below(state: State, r: int, up, before, slot: int):
    """Let ``slot`` stand where ``before`` stood below ``up``."""
    if up == NONE:
        state.replicas[r].root = slot
    elif state.orders[up].left == before:
        state.orders[up].left = slot
    else:
        state.orders[up].right = slot
    if slot != NONE:
        state.orders[slot].up = up


@compiled()
def _rotate_up(state: State, r: int, slot: int):
    """Let a request change places with the one above it; the order stays."""
    above = state.orders[slot].up
    _put_below(state, r, state.orders[above].up, above, slot)
    if state.orders[above].left == slot:
        inner = state.orders[slot].right
        state.orders[above].left = inner
        state.orders[slot].right = above
    else:
        inner = state.orders[slot].left
        state.orders[above].right = inner
        state.orders[slot].left = above
    state.orders[above].up = slot
    if inner != NONE:
        state.orders[inner].up = above


@compiled()
def insert_ordered(state: State, r: int, slot: int):
    """Put a request with key and tie_break into the order."""
    order = state.orders[slot]
    order.left = NONE
    order.right = NONE
    order.ordered = 1
    up = NONE
    at = state.replicas[r].root
    left = False
    while at != NONE:
        up = at
        left = precedes(state, slot, at)
        at = state.orders[at].left if left else state.orders[at].right
    order.up = up
    if up == NONE:
        state.replicas[r].root = slot
    elif left:
        state.orders[up].left = slot
    else:
        state.orders[up].right = slot
    while order.up != NONE and _weight(state, slot) > _weight(state, order.up):
        _rotate_up(state, r, slot)


@compiled()
def remove_ordered(state: State, r: int, slot: int):
    """Take a request out of the order."""
    order = state.orders[slot]
    while order.left != NONE and order.right != NONE:
        heavier = _weight(state, order.left) > _weight(state, order.right)
        _rotate_up(state, r, order.left if heavier else order.right)
    child = order.left if order.right == NONE else order.right
    _put_below(state, r, order.up, slot, child)
    order.ordered = 0


@compiled()
def place(state: State, r: int, slot: int, key, tie_break):
    """Let a request stand where key and tie-break put it."""
    order = state.orders[slot]
    if order.ordered != 0:
        remove_ordered(state, r, slot)
    order.key = key
    order.tie_break = tie_break
    insert_ordered(state, r, slot)


@inlined()
def first_ordered(state: State, r: int):
    """Return the request that stands first, or NONE."""
    slot = state.replicas[r].root
    if slot != NONE:
        while state.orders[slot].left != NONE:
            slot = state.orders[slot].left
    return slot


@inlined()
def last_ordered(state: State, r: int):
    """Return the request that stands last, or NONE."""
    slot = state.replicas[r].root
    if slot != NONE:
        while state.orders[slot].right != NONE:
            slot = state.orders[slot].right
    return slot


@inlined()
def previous_ordered(state: State, slot: int):
    """Return the request before, or NONE."""
    at = state.orders[slot].left
    if at != NONE:
        while state.orders[at].right != NONE:
            at = state.orders[at].right
        return at
    at = state.orders[slot].up
    while at != NONE and state.orders[at].left == slot:
        slot = at
        at = state.orders[at].up
    return at


@inlined()
def first_at(state: State, r: int, key):
    """Return the first request whose key is at least ``key``, or NONE."""
    found = NONE
    at = state.replicas[r].root
    while at != NONE:
        if state.orders[at].key >= key:
            found = at
            at = state.orders[at].left
        else:
            at = state.orders[at].right
    return found


@inlined()
def next_ordered(state: State, slot: int):
    """Return the request that follows, or NONE."""
    at = state.orders[slot].right
    if at != NONE:
        while state.orders[at].left != NONE:
            at = state.orders[at].left
        return at
    at = state.orders[slot].up
    while at != NONE and state.orders[at].right == slot:
        slot = at
        at = state.orders[at].up
    return at


@inlined()
def last_before(state: State, r: int, key):
    """Return the last request whose key is less than ``key``, or NONE."""
    found = NONE
    at = state.replicas[r].root
    while at != NONE:
        if state.orders[at].key < key:
            found = at
            at = state.orders[at].right
        else:
            at = state.orders[at].left
    return found
