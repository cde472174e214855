"""Requests of a replica in order of (key, turn): a treap through their slots.

A scheduler gives each of its requests a ``key`` and a ``turn`` in ``state.plans`` and
inserts it; the first, the last and those beside another are found in logarithmic
time. Waiting and running requests may both be in it. Nothing is allocated. The
depth is kept by weights from a hash of the row, so that it is the same in every run.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE


@inlined()
def precedes(state, one, other):
    """Return whether a request stands before another."""
    a = state.plans[one]
    b = state.plans[other]
    return a.key < b.key or (a.key == b.key and a.turn < b.turn)


@inlined()
def _weight(state, slot):
    return (state.requests[slot].row * 0x9E3779B1) & 0x7FFFFFFF


@inlined()
def _put_below(state, r, up, before, slot):
    """Let ``slot`` stand where ``before`` stood below ``up``."""
    if up == NONE:
        state.replicas[r].root = slot
    elif state.plans[up].left == before:
        state.plans[up].left = slot
    else:
        state.plans[up].right = slot
    if slot != NONE:
        state.plans[slot].up = up


@compiled()
def _rotate_up(state, r, slot):
    """Let a request change places with the one above it; the order stays."""
    above = state.plans[slot].up
    _put_below(state, r, state.plans[above].up, above, slot)
    if state.plans[above].left == slot:
        inner = state.plans[slot].right
        state.plans[above].left = inner
        state.plans[slot].right = above
    else:
        inner = state.plans[slot].left
        state.plans[above].right = inner
        state.plans[slot].left = above
    state.plans[above].up = slot
    if inner != NONE:
        state.plans[inner].up = above


@compiled()
def insert_ordered(state, r, slot):
    """Put a request with key and turn into the order."""
    plan = state.plans[slot]
    plan.left = NONE
    plan.right = NONE
    plan.ordered = 1
    up = NONE
    at = state.replicas[r].root
    left = False
    while at != NONE:
        up = at
        left = precedes(state, slot, at)
        at = state.plans[at].left if left else state.plans[at].right
    plan.up = up
    if up == NONE:
        state.replicas[r].root = slot
    elif left:
        state.plans[up].left = slot
    else:
        state.plans[up].right = slot
    while plan.up != NONE and _weight(state, slot) > _weight(state, plan.up):
        _rotate_up(state, r, slot)


@compiled()
def remove_ordered(state, r, slot):
    """Take a request out of the order."""
    plan = state.plans[slot]
    while plan.left != NONE and plan.right != NONE:
        heavier = _weight(state, plan.left) > _weight(state, plan.right)
        _rotate_up(state, r, plan.left if heavier else plan.right)
    child = plan.left if plan.right == NONE else plan.right
    _put_below(state, r, plan.up, slot, child)
    plan.ordered = 0


@inlined()
def first_ordered(state, r):
    """Return the request that stands first, or NONE."""
    slot = state.replicas[r].root
    if slot != NONE:
        while state.plans[slot].left != NONE:
            slot = state.plans[slot].left
    return slot


@inlined()
def last_ordered(state, r):
    """Return the request that stands last, or NONE."""
    slot = state.replicas[r].root
    if slot != NONE:
        while state.plans[slot].right != NONE:
            slot = state.plans[slot].right
    return slot


@inlined()
def previous_ordered(state, slot):
    """Return the request before, or NONE."""
    at = state.plans[slot].left
    if at != NONE:
        while state.plans[at].right != NONE:
            at = state.plans[at].right
        return at
    at = state.plans[slot].up
    while at != NONE and state.plans[at].left == slot:
        slot = at
        at = state.plans[at].up
    return at


@inlined()
def first_at(state, r, key):
    """Return the first request whose key is at least ``key``, or NONE."""
    found = NONE
    at = state.replicas[r].root
    while at != NONE:
        if state.plans[at].key >= key:
            found = at
            at = state.plans[at].left
        else:
            at = state.plans[at].right
    return found


@inlined()
def next_ordered(state, slot):
    """Return the request that follows, or NONE."""
    at = state.plans[slot].right
    if at != NONE:
        while state.plans[at].left != NONE:
            at = state.plans[at].left
        return at
    at = state.plans[slot].up
    while at != NONE and state.plans[at].right == slot:
        slot = at
        at = state.plans[at].up
    return at


@inlined()
def last_before(state, r, key):
    """Return the last request whose key is less than ``key``, or NONE."""
    found = NONE
    at = state.replicas[r].root
    while at != NONE:
        if state.plans[at].key < key:
            found = at
            at = state.plans[at].right
        else:
            at = state.plans[at].left
    return found
