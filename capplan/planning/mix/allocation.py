"""The allocation of a mix: what it is asked, and what it proposes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.placement.mix import Allocation, MixProblem, NodeKind, ReplicaKind
from capplan.placement.result import Status
from capplan.planning.mix.fleet import MIN_REPLICAS
from capplan.planning.mix.pairs import Proposal
from capplan.planning.mix.result import Mix

SLICES = 4
"""Equal parts of a band that go to one kind each."""


def problem_of(
    kinds: Sequence[Configuration],
    rates_per_s: np.ndarray,
    sustained: np.ndarray,
    max_nodes: Mapping[str, int],
) -> MixProblem:
    """Return the allocation to be made: kinds of replicas on kinds of nodes.

    ``rates_per_s`` has shape (bands,), ``sustained`` by a replica (bands, kinds).
    """
    nodes: dict[object, NodeKind] = {}
    replicas = []
    for kind in kinds:
        price = kind.price
        assert price is not None
        size = price.gpus_per_node or 1
        key = kind.gpu, price.bought
        if key not in nodes:
            most = max_nodes.get(kind.gpu)
            usd = size * price.usd_per_gpu_h
            nodes[key] = NodeKind(f"{kind.gpu} {len(nodes)}", size, usd, most)
        replicas.append(ReplicaKind(str(kind), kind.gpus, list(nodes).index(key)))
    return MixProblem(
        rates_per_s,
        tuple(replicas),
        tuple(nodes.values()),
        sustained,
        SLICES,
        MIN_REPLICAS,
    )


def unusable(
    allocation: Allocation, kinds: Sequence[Configuration], max_nodes: Mapping[str, int]
) -> str | None:
    """Return why an allocation is no mix, or None."""
    if allocation.status == Status.INFEASIBLE:
        quota = ",".join(f"{gpu}={count}" for gpu, count in max_nodes.items())
        return f"no mix has enough nodes within --max-nodes {quota}"
    if allocation.replica_count is None:
        return "the solver found no allocation in time, or none that fits the nodes"
    used = np.flatnonzero(allocation.replica_count)
    if len(used) < 2:
        return f"the cheapest allocation has replicas of one kind, {kinds[used[0]]}"
    return None


def with_allocation(known: Mix, allocation: Allocation) -> Mix:
    """Return a mix with what its allocation says."""
    bound = allocation.lower_bound_usd_per_h
    return replace(
        known,
        allocation_status=str(allocation.status),
        allocation_usd_per_h=allocation.usd_per_h,
        allocation_lower_bound_usd_per_h=None if math.isinf(bound) else bound,
    )


def proposal_of(allocation: Allocation) -> Proposal:
    """Return the kinds that an allocation uses, and how."""
    assert allocation.replica_count is not None
    assert allocation.slices is not None
    used = np.flatnonzero(allocation.replica_count)
    return Proposal(
        tuple(used.tolist()),
        tuple(tuple(row) for row in allocation.slices[:, used].tolist()),
        tuple(allocation.replica_count[used].tolist()),
    )
