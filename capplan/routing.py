"""Rules that choose a replica for a request, shared by simulator and placement.

``capplan.simulator.routers`` compiles them with numba, ``capplan.placement.heuristics``
calls them as they are. They raise nothing and build no lists.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Amount = TypeVar("Amount", float, np.ndarray)


def round_robin(turn: Amount, replica_count: int) -> Amount:
    """Return the replica of the arrival number ``turn``, counted from 0."""
    return turn % replica_count


def shortest_queue(outstanding: Sequence[int] | np.ndarray) -> int:
    """Return the replica with the fewest outstanding requests, the first of equals."""
    best = 0
    fewest = outstanding[0]
    for replica in range(1, len(outstanding)):
        if outstanding[replica] < fewest:
            fewest = outstanding[replica]
            best = replica
    return best


def shorter_of_two(
    outstanding: Sequence[int] | np.ndarray, first_draw: float, second_draw: float
) -> int:
    """Return the replica with fewer requests of two distinct ones drawn at random.

    Mitzenmacher, "The power of two choices in randomized load balancing", IEEE
    TPDS 12(10), 2001. ``outstanding`` are the requests on each replica, shape
    (replicas,). The draws are uniform on [0, 1); the second chooses among the other
    replicas. The first choice wins a tie.
    """
    n = len(outstanding)
    first = min(int(first_draw * n), n - 1)
    if n == 1:
        return first
    second = min(int(second_draw * (n - 1)), n - 2)
    if second >= first:
        second += 1
    if outstanding[second] < outstanding[first]:
        return second
    return first


GAMMA = 0.5
"""Aladdin's share of the predicted output in a request's context."""


def squared_capacity_norm(requests: Amount, context_tokens: Amount) -> Amount:
    """Return how full a replica is: the square of Aladdin's capacity norm.

    Nie et al., "Aladdin: Joint Placement and Scaling for SLO-Aware LLM Serving",
    arXiv:2405.06856, Algorithm 1: the L2 norm of the batch size and the weighted
    context. As in the paper it adds requests to tokens, so the context decides.
    """
    return requests * requests + context_tokens * context_tokens
