"""Nodes by the hour: those that replicas take, and those that are paid meanwhile."""

import itertools
import math
from collections.abc import Callable

import numpy as np

from capplan.fleet.nodes import nodes_for
from capplan.planning.money.commitments import Hours

_HOUR_S = 3600.0


def each_count(replicas: np.ndarray, nodes_of: Callable[[int], float]) -> np.ndarray:
    """Return the nodes of each count of replicas, asked once, shape (n,), int64."""
    counts, where = np.unique(np.asarray(replicas, np.int64), return_inverse=True)
    nodes = [nodes_of(count) for count in counts.tolist()]
    return np.array(nodes, np.int64)[where.ravel()]


def whole_nodes(replicas: np.ndarray, tp: int, gpus_per_node: int) -> np.ndarray:
    """Return the whole nodes that replicas of one size take, shape (n,), int64.

    Several replicas fit a node, or one takes several nodes.

    Examples
    --------
    >>> whole_nodes(np.array([1, 2, 5]), 4, 8), whole_nodes(np.array([1, 3]), 16, 8)
    (array([1, 1, 3]), array([2, 6]))
    """
    return each_count(replicas, lambda n: nodes_for([(tp, n)], gpus_per_node)[0])


def paid_hours(
    nodes: np.ndarray, cold_start_s: float, drain_s: float, step_s: float = 1.0
) -> Hours:
    """Return how long each number of nodes is paid, of hours that come again.

    A node is ordered a cold start before the hour that needs it and is paid from then
    on; after its last hour it is paid while its requests end. With a billing step of an
    hour or more, parts of hours are paid as whole ones.
    """
    ahead, after = cold_start_s / _HOUR_S, drain_s / _HOUR_S
    if step_s >= _HOUR_S:
        ahead, after = float(math.ceil(ahead)), float(math.ceil(after))
    count = len(nodes)
    cuts = sorted({0.0, after % 1.0, (1.0 - ahead % 1.0) % 1.0, 1.0})
    levels, weights = [], []
    for low, high in itertools.pairwise(cuts):
        if high - low < 1e-12:
            continue
        middle = (low + high) / 2
        first, last = math.floor(middle - after), math.floor(middle + ahead)
        shifts = range(first, min(last, first + count - 1) + 1)
        paid = np.max([np.roll(nodes, -shift) for shift in shifts], axis=0)
        levels.append(paid)
        weights.append(np.full(count, high - low))
    return Hours.of(np.concatenate(levels), np.concatenate(weights))
