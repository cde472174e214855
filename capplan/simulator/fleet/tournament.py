"""Tournament trees over replicas: the first with the least value, in O(log n) a change.

A tree of ``n`` values, padded to a power of two, is an array of twice as many: node
``k`` holds the less of nodes ``2k`` and ``2k + 1``, and the values stand last.
"""

import numpy as np

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, State


def with_trees(state: State) -> State:
    """Return the state with trees of what routers ask of replicas."""
    leaves = 1 << max(len(state.replicas) - 1, 0).bit_length()
    return state._replace(trees=np.full((2, 2 * leaves), np.inf))


@inlined()
def _put(tree, k, value):
    """Set the k-th value of a tree."""
    node = tree.shape[0] // 2 + k
    tree[node] = value
    while node > 1:
        node //= 2
        least = min(tree[2 * node], tree[2 * node + 1])
        if tree[node] == least:
            return
        tree[node] = least


@compiled()
def watch(state: State, r: int):
    """Enter into the trees when a replica wakes and how many requests it has."""
    _put(state.trees[0], r, state.replicas[r].wake_s)
    _put(state.trees[1], r, float(state.replicas[r].outstanding))


@inlined()
def first_that_wakes(state: State, until_s):
    """Return the first replica that wakes before ``until_s``, or NONE."""
    tree = state.trees[0]
    if not tree[1] < until_s:
        return NONE
    node = 1
    while 2 * node < tree.shape[0]:
        node *= 2
        if not tree[node] < until_s:
            node += 1
    return node - tree.shape[0] // 2


@inlined()
def first_of_fewest(state: State):
    """Return the replica with the fewest outstanding requests, the first of equals."""
    tree = state.trees[1]
    node = 1
    while 2 * node < tree.shape[0]:
        node *= 2
        if tree[node + 1] < tree[node]:
            node += 1
    return node - tree.shape[0] // 2
