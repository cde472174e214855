"""A trace placed heartbeat by heartbeat."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.problem import violations
from capplan.placement.replay import Replay
from capplan.placement.replica import affine_replica
from capplan.workload.trace import Trace

TEMPLATE = affine_replica(
    2000,
    fixed_s=0.01,
    request_s=0.001,
    context_s=1e-5,
    max_batch=32,
    prefill_fixed_s=0.02,
    prefill_s_per_token=1e-4,
)
SLO_S = (3.0, 0.03)


def a_trace(n, rate):
    rng = np.random.default_rng(0)
    arrival_s = np.cumsum(rng.exponential(1 / rate, n))
    return Trace(rng.integers(1, 200, n), rng.integers(1, 120, n), arrival_s)


def one_request(prompt, output):
    return Trace(np.array([prompt]), np.array([output]), np.zeros(1))


def served(trace, heartbeat_s=1.0):
    """Return the replay of a trace, and the replicas in use after each heartbeat."""
    fleet, used = Replay(TEMPLATE, trace, SLO_S), []
    for now_s, new in fleet.heartbeats(heartbeat_s):
        fleet.place(new, now_s)
        used.append(fleet.advance(now_s, heartbeat_s))
    return fleet, used


def test_a_request_alone_takes_the_sum_of_its_iterations():
    fleet, used = served(one_request(100, 4))

    # Heartbeat of 1 s, then 20 + 10 ms of prefill; contexts 102, 103, 104.
    assert fleet.first_s == pytest.approx([1.03])
    assert fleet.end_s - fleet.first_s == pytest.approx([3 * 0.011 + 309e-5])
    assert used == [1]


@pytest.mark.parametrize("heartbeat_s", [0.2, 1.0, 3.7])
def test_heartbeats_change_when_it_starts_but_not_what_an_iteration_takes(heartbeat_s):
    fleet, _ = served(one_request(100, 90), heartbeat_s)

    contexts = np.arange(102, 102 + 89)
    taken_s = (0.011 + 1e-5 * contexts).sum()
    assert fleet.end_s - fleet.first_s == pytest.approx([taken_s])


def test_an_elastic_fleet_opens_and_drains():
    fleet, used = served(a_trace(200, 60.0))

    assert max(used) > 1
    assert used[-1] < max(used)
    assert np.isfinite(fleet.end_s).all()
    assert (fleet.generated == fleet.output).all()


def test_the_problem_of_a_moment_has_the_requests_then():
    fleet = Replay(TEMPLATE, a_trace(200, 60.0), SLO_S)
    beats = fleet.heartbeats(1.0)
    now_s, new = next(beats)
    fleet.place(new, now_s)
    fleet.advance(now_s, 1.0)

    now_s, new = next(beats)
    problem = fleet.problem(new, now_s)

    held = problem.replica >= 0
    assert held.any()
    assert (~held).sum() == len(new) > 0
    assert (problem.generated_tokens[held] > 0).all()
    assert (problem.generated_tokens[~held] == 0).all()
    placed = np.where(held, problem.replica, problem.replica_count + 1)
    assert all(line[:3] != "(f)" for line in violations(problem, placed))


def test_after_the_last_request_there_is_no_problem():
    fleet, _ = served(one_request(10, 3))

    assert fleet.problem(np.arange(0), 99.0) is None


@pytest.mark.parametrize("heartbeat_s", [0.0, -1.0])
def test_a_heartbeat_takes_time(heartbeat_s):
    with pytest.raises(InputError, match="expected more than 0"):
        served(one_request(1, 1), heartbeat_s)
