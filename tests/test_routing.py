"""The rules that choose a replica, and that simulator and placement follow the same."""

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.placement.heuristics.blind import route_in_turn, route_jsq
from capplan.routing import round_robin as turn_of
from capplan.routing import shorter_of_two, shortest_queue, squared_capacity_norm
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of


def replicas_chosen(router, requests, replica_count):
    """Route requests that arrive together, so that none finishes in between."""
    engine = EngineSettings(max_num_batched_tokens=64, max_num_seqs=8, kv_blocks=9)
    tables = linear_tables(0.01, 1e-4, 0, 1e-3, 0, max_batch=8, max_tokens=64)
    trace = Trace(
        np.full(requests, 5), np.full(requests, 3), np.zeros(requests), source="tie"
    )
    simulation = simulate(
        trace, fleet_of(tables, engine, replica_count, router=router), seed=3
    )
    return simulation.times.replica.tolist()


def test_turns_wrap_around():
    assert [turn_of(turn, 3) for turn in range(5)] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("outstanding", "expected"), [([4], 0), ([2, 1, 3], 1), ([2, 1, 1], 1), ([0, 0], 0)]
)
def test_the_shortest_queue_is_the_first_of_equals(outstanding, expected):
    assert shortest_queue(outstanding) == expected


@pytest.mark.parametrize(
    ("outstanding", "draws", "expected"),
    [
        ([7], (0.9, 0.9), 0),
        ([0, 5, 9], (0.5, 0.0), 0),  # 1 and 0
        ([0, 5, 9], (0.5, 0.5), 1),  # 1 and 2
        ([3, 3], (0.9, 0.1), 1),  # 1 and 0: the first choice wins a tie
    ],
)
def test_the_shorter_of_two_drawn_replicas_is_chosen(outstanding, draws, expected):
    assert shorter_of_two(outstanding, *draws) == expected


def test_two_draws_choose_each_pair_of_distinct_replicas_alike():
    n = 4
    centers = (np.arange(12) + 0.5) / 12  # 12 draws: 3 for each of 4, 4 of each of 3
    counts = np.zeros((n, n), int)

    for first in centers:
        for second in centers:
            chosen = shorter_of_two([1] * n, first, second)
            others = [r for r in range(n) if r != chosen]
            rival = next(
                r
                for r in others
                if shorter_of_two([0 if i == r else 1 for i in range(n)], first, second)
                == r
            )
            counts[chosen, rival] += 1

    assert (counts == 12 * (1 - np.eye(n, dtype=int))).all()


def test_the_capacity_norm_is_that_of_requests_and_context():
    assert squared_capacity_norm(3.0, 4.0) == 25.0
    squares = squared_capacity_norm(np.array([1.0, 2.0]), np.array([0.0, 1.0]))
    assert squares.tolist() == [1.0, 5.0]


@pytest.mark.parametrize("replica_count", [1, 2, 5])
@pytest.mark.parametrize(
    ("router", "route"), [("jsq", route_jsq), ("round-robin", route_in_turn)]
)
def test_simulator_and_placement_choose_the_same_replicas(router, route, replica_count):
    placed = route(np.zeros(replica_count, np.int64), 23)

    routed = replicas_chosen(router, 23, replica_count)

    assert routed == placed.tolist()


@pytest.mark.parametrize("replica_count", [1, 2, 5])
def test_the_compiled_power_of_two_follows_the_plain_rule(replica_count):
    draws = np.random.default_rng(3).random((40, 2))
    queue = [0] * replica_count
    expected = []
    for first, second in draws:
        expected.append(shorter_of_two(queue, first, second))
        queue[expected[-1]] += 1

    routed = replicas_chosen("power-of-two", 40, replica_count)

    assert routed == expected
