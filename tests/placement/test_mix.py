"""Mélange's allocation against optima proven elsewhere and cases worked by hand."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.placement.mix import (
    MixProblem,
    NodeKind,
    ReplicaKind,
    allocate_mix,
    replicas_for,
)
from capplan.placement.result import Status

FILE = Path(__file__).parent / "data" / "mix_allocation.json"
KINDS = (ReplicaKind("a", 1, 0), ReplicaKind("b", 1, 1))
CONTENT = json.loads(FILE.read_text())
PROVEN = CONTENT["proven_optimum_usd_per_h"]


def melange(requests_per_s, slices):
    """Return the paper's problem at a rate, each bucket in so many slices."""
    gpus = CONTENT["gpus"]
    capacity = np.array([gpu["requests_per_s"] for gpu in gpus.values()], float)
    return MixProblem(
        np.ravel(CONTENT["share_of_requests"]) * requests_per_s,
        tuple(ReplicaKind(name, 1, index) for index, name in enumerate(gpus)),
        tuple(NodeKind(name, 1, gpu["usd_per_h"]) for name, gpu in gpus.items()),
        capacity.reshape(len(gpus), -1).T,
        slices,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("case", PROVEN, ids=lambda case: f"{case['rate']}")
def test_proven_optimum_is_found_and_proven(case):
    problem = melange(case["rate"], case["slices"])

    mix = allocate_mix(problem)

    assert mix.status == Status.OPTIMAL
    assert mix.usd_per_h == pytest.approx(case["usd_per_h"], abs=1e-3)
    assert (replicas_for(problem, mix.slices) == mix.replica_count).all()


def test_a_cheap_gpu_takes_what_it_can_and_the_rest_goes_to_the_other():
    # One $1 GPU serves bucket 0 alone; bucket 1 needs the $3 type, which has room for
    # half of bucket 0 as well, but not for all: 1 + 3 beats 3 + 3.
    problem = MixProblem(
        np.array([1.0, 1.0]),
        (ReplicaKind("small", 1, 0), ReplicaKind("large", 1, 1)),
        (NodeKind("small", 1, 1.0), NodeKind("large", 1, 3.0)),
        np.array([[1.0, 2.5], [0.0, 1.25]]),
        slices=2,
    )

    mix = allocate_mix(problem)

    assert mix.replica_count.tolist() == [1, 1]
    assert mix.usd_per_h == 4
    assert mix.lower_bound_usd_per_h == pytest.approx(4)


def test_an_allocation_that_leaves_a_slice_out_is_refused():
    problem = melange(32, 4)
    mix = allocate_mix(problem)
    spoiled = mix.slices.copy()
    spoiled[np.argwhere(spoiled > 0)[0][0]] = 0

    with pytest.raises(InputError, match="sum"):
        replicas_for(problem, spoiled)


@st.composite
def toys(draw):
    """Return a problem so small that all of its allocations can be tried."""
    nodes = tuple(
        NodeKind(f"node {k}", gpus, usd, most)
        for k, (gpus, usd, most) in enumerate(
            draw(
                st.lists(
                    st.tuples(
                        st.sampled_from([1, 2, 4, 6, 8]),
                        st.sampled_from([1.0, 2.5, 4.0, 7.0]),
                        st.sampled_from([None, 1, 2]),
                    ),
                    min_size=1,
                    max_size=2,
                )
            )
        )
    )
    # Of 2, 3 and 4 GPUs together, largest first may take more nodes than are needed.
    sizes = draw(st.sampled_from([(1, 2, 4), (1, 2, 3), (1, 3, 4), (3, 6, 12)]))
    replicas = tuple(
        ReplicaKind(f"replica {k}", gpus, node)
        for k, (gpus, node) in enumerate(
            draw(
                st.lists(
                    st.tuples(st.sampled_from(sizes), st.integers(0, 1)),
                    min_size=1,
                    max_size=3,
                )
            )
        )
        for node in [node % len(nodes)]
    )
    buckets = draw(st.integers(1, 2))
    capacity = draw(
        st.lists(
            st.sampled_from([0.0, 0.5, 1.0, 1.7, 3.0]),
            min_size=buckets * len(replicas),
            max_size=buckets * len(replicas),
        )
    )
    capacity = np.array(capacity).reshape(buckets, len(replicas))
    capacity[~(capacity > 0).any(axis=1), 0] = 1.0
    rates = draw(st.lists(st.sampled_from([0.0, 1.0, 2.2]), min_size=2, max_size=2))
    return MixProblem(
        np.array(rates[:buckets]),
        replicas,
        nodes,
        capacity,
        slices=draw(st.integers(1, 2)),
        min_replicas=draw(st.integers(1, 2)),
    )


def cheapest_of_all(problem):
    """Return the least cost over all allocations, infinite where none is allowed."""
    kinds = range(len(problem.replicas))
    of_bucket = [
        [
            split
            for split in itertools.product(range(problem.slices + 1), repeat=len(kinds))
            if sum(split) == (problem.slices if rate else 0)
            and not any(split[k] for k in kinds if problem.capacity_per_s[b, k] == 0)
        ]
        for b, rate in enumerate(problem.requests_per_s)
    ]
    best = math.inf
    for slices in itertools.product(*of_bucket):
        counts = replicas_for(problem, np.array(slices))
        taken = problem.nodes_of(counts)
        if all(
            node.max_count is None or count <= node.max_count
            for node, count in zip(problem.nodes, taken, strict=True)
        ):
            best = min(best, problem.usd_per_h(counts))
    return best


@given(toys())
@settings(deadline=None, max_examples=60)
def test_an_allocation_costs_what_the_cheapest_of_all_costs(problem):
    expected = cheapest_of_all(problem)

    found = allocate_mix(problem)

    if math.isinf(expected):
        assert found.status == Status.INFEASIBLE
        return
    assert found.usd_per_h == pytest.approx(expected)
    assert found.status == Status.OPTIMAL
    assert found.lower_bound_usd_per_h == pytest.approx(expected)


def test_replicas_that_share_no_node_are_not_taken_together():
    # Nodes of 6 GPUs hold one replica of 4. 2.2 requests/s take 5 replicas of one kind
    # for $5; half of them each, 3 and 3 for $6.
    problem = MixProblem(
        np.array([2.2]),
        (ReplicaKind("a", 4, 0), ReplicaKind("b", 4, 0)),
        (NodeKind("node", 6, 1.0),),
        np.array([[0.5, 0.5]]),
        slices=2,
    )

    found = allocate_mix(problem)

    assert found.usd_per_h == 5
    assert found.lower_bound_usd_per_h == pytest.approx(5)
    assert found.status == Status.OPTIMAL


@pytest.mark.parametrize(("most", "status"), [(3, "feasible"), (2, "unknown")])
def test_sizes_that_are_not_placed_in_the_fewest_nodes_are_not_called_optimal(
    most, status
):
    # 3 + 3 + 2 and 4 + 2 + 2 would fill two nodes; largest first takes three.
    problem = MixProblem(
        np.array([1.0, 2.0, 3.0]),
        tuple(ReplicaKind(f"{gpus}", gpus, 0) for gpus in (4, 3, 2)),
        (NodeKind("node", 8, 1.0, most),),
        np.eye(3),
    )

    found = allocate_mix(problem)

    assert found.status == status
    assert found.usd_per_h == (3 if most == 3 else None)
    assert found.lower_bound_usd_per_h == pytest.approx(2)


def test_replicas_of_two_sizes_share_the_nodes_that_are_paid():
    # One replica of 4 GPUs and two of 2 fill a node of 8 for $8.
    problem = MixProblem(
        np.array([1.0, 2.0]),
        (ReplicaKind("large", 4, 0), ReplicaKind("small", 2, 0)),
        (NodeKind("node", 8, 8.0),),
        np.array([[1.0, 0.0], [0.0, 1.0]]),
    )

    found = allocate_mix(problem)

    assert found.replica_count.tolist() == [1, 2]
    assert found.usd_per_h == 8


def test_too_few_nodes_are_infeasible():
    node = NodeKind("node", 1, 1.0, max_count=1)

    found = allocate_mix(
        MixProblem(np.array([2.0]), KINDS[:1], (node,), np.array([[1.0]]))
    )

    assert found.status == Status.INFEASIBLE


def test_replicas_that_share_no_node_are_infeasible_beyond_the_nodes_there_are():
    # Two replicas of 4 GPUs of each kind: 16 GPUs, but three nodes of 6 hold only 3.
    node = NodeKind("node", 6, 1.0, max_count=3)
    kinds = (ReplicaKind("a", 4, 0), ReplicaKind("b", 4, 0))

    found = allocate_mix(MixProblem(np.full(2, 2.0), kinds, (node,), np.eye(2)))

    assert found.status == Status.INFEASIBLE
