"""A trace placed heartbeat by heartbeat."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.heuristics.jsq import route
from capplan.placement.problem import violations
from capplan.placement.replay import replay
from capplan.placement.replica import affine_replica

TEMPLATE = affine_replica(
    2000,
    fixed_s=0.01,
    request_s=0.001,
    context_s=1e-5,
    max_batch=32,
    prefill_fixed_s=0.02,
    prefill_s_per_token=1e-4,
)


def trace(n=60, rate=10.0, seed=0):
    rng = np.random.default_rng(seed)
    return dict(
        arrival_s=np.cumsum(rng.exponential(1 / rate, n)),
        prompt_tokens=rng.integers(1, 200, n),
        output_tokens=rng.integers(1, 120, n),
        ttft_slo_s=3.0,
        tpot_slo_s=0.03,
    )


def one_request(prompt, output):
    return dict(
        arrival_s=np.zeros(1),
        prompt_tokens=np.array([prompt]),
        output_tokens=np.array([output]),
        ttft_slo_s=3.0,
        tpot_slo_s=0.03,
    )


def test_a_request_alone_takes_the_sum_of_its_iterations():
    found, _ = replay(TEMPLATE, **one_request(100, 4))

    # Heartbeat of 1 s, then 20 + 10 ms of prefill; contexts 102, 103, 104.
    assert found.ttft_s == pytest.approx([1.03])
    assert found.tpot_s == pytest.approx([(3 * 0.011 + 309e-5) / 3])
    assert found.replicas.tolist() == [1]
    assert found.attained.all()
    assert found.kv_overflows == 0


@pytest.mark.parametrize("heartbeat_s", [0.2, 1.0, 3.7])
def test_heartbeats_change_when_it_starts_but_not_what_an_iteration_takes(heartbeat_s):
    found, _ = replay(TEMPLATE, **one_request(100, 90), heartbeat_s=heartbeat_s)

    contexts = np.arange(102, 102 + 89)
    assert found.tpot_s == pytest.approx([(0.011 + 1e-5 * contexts).mean()])


def test_an_elastic_fleet_opens_and_drains():
    found, _ = replay(TEMPLATE, **trace(200, 60.0))

    assert found.peak_replicas > 1
    assert found.replicas[-1] < found.peak_replicas
    assert found.placed.sum() == 200


def test_every_request_ends_on_a_fixed_fleet_too():
    found, _ = replay(TEMPLATE, **trace(), route=route, replicas=2)

    assert np.isfinite(found.ttft_s).all()
    assert found.peak_replicas <= 2


def test_the_problem_of_a_moment_has_the_requests_then():
    whole = trace(200, 60.0)

    _, problem = replay(TEMPLATE, **whole, until_s=2.0)

    held = problem.replica >= 0
    assert held.any()
    assert not held.all()
    assert (problem.generated_tokens[held] > 0).all()
    assert (problem.generated_tokens[~held] == 0).all()
    placed = np.where(held, problem.replica, problem.replica_count + 1)
    assert all(line[:3] != "(f)" for line in violations(problem, placed))


def test_a_decode_pool_has_no_prefill():
    _, problem = replay(TEMPLATE, **trace(), decode_only=True, until_s=2.0)

    assert (problem.generated_tokens > 0).all()
    assert problem.replica.min() == -1


def test_a_fixed_fleet_needs_a_size():
    with pytest.raises(InputError, match="a router and a number of replicas"):
        replay(TEMPLATE, **trace(), route=route)
