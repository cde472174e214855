"""A trace placed heartbeat by heartbeat."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.heuristics import heuristic
from capplan.placement.heuristics.blind import route_jsq as route
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


@pytest.mark.parametrize("heartbeat_s", [0.2, 0.7, 1.0])
def test_the_peak_is_the_heartbeat_in_which_best_fit_uses_most_replicas(heartbeat_s):
    whole = trace(300, 60.0, seed=2)

    served, problem = replay(TEMPLATE, **whole, heartbeat_s=heartbeat_s)

    placed = heuristic("best-fit")(problem, 0)
    assert len(np.unique(placed)) == served.peak_replicas
    assert (problem.replica < 0).sum() == served.placed[served.peak_heartbeat]


def test_the_peak_is_the_moment_when_the_replay_is_stopped_there():
    whole = trace(200, 60.0)
    served, at_peak = replay(TEMPLATE, **whole)

    _, stopped = replay(
        TEMPLATE,
        **whole,
        until_s=whole["arrival_s"][0] + 1.0 * (served.peak_heartbeat + 1),
    )

    assert at_peak.names == stopped.names
    assert at_peak.replica.tolist() == stopped.replica.tolist()
    assert at_peak.generated_tokens.tolist() == stopped.generated_tokens.tolist()


def test_after_the_last_request_there_is_no_problem():
    _, problem = replay(TEMPLATE, **one_request(10, 3), until_s=99.0)

    assert problem is None


def test_a_replica_with_too_little_kv_is_counted_as_overflowing():
    # A router looks at no constraint: five requests of 500 tokens on 2000 of KV.
    five = dict(
        arrival_s=np.zeros(5),
        prompt_tokens=np.full(5, 500),
        output_tokens=np.full(5, 10),
        ttft_slo_s=3.0,
        tpot_slo_s=0.05,
    )

    crowded, _ = replay(TEMPLATE, **five, route=route, replicas=1)
    spread, _ = replay(TEMPLATE, **five, route=route, replicas=2)

    assert crowded.kv_overflows > 0
    assert spread.kv_overflows == 0


def test_a_request_that_waits_too_long_for_the_heartbeat_misses_its_ttft():
    # 1 s of heartbeat and 30 ms of prefill against a TTFT of 1.02 s.
    late = one_request(100, 4) | dict(ttft_slo_s=1.02)

    served, _ = replay(TEMPLATE, **late)

    assert served.attained.tolist() == [False]
    assert served.attainment == 0


def test_one_token_outputs_have_no_tpot():
    served, _ = replay(TEMPLATE, **one_request(100, 1))

    assert np.isnan(served.tpot_s).tolist() == [True]
    assert served.attained.tolist() == [True]


@pytest.mark.parametrize("heartbeat_s", [0.0, -1.0])
def test_a_heartbeat_takes_time(heartbeat_s):
    with pytest.raises(InputError, match="expected more than 0"):
        replay(TEMPLATE, **one_request(1, 1), heartbeat_s=heartbeat_s)


def test_a_decode_pool_has_no_prefill():
    _, problem = replay(TEMPLATE, **trace(), decode_only=True, until_s=2.0)

    assert (problem.generated_tokens > 0).all()
    assert problem.replica.min() == -1


def test_a_fixed_fleet_needs_a_size():
    with pytest.raises(InputError, match="a router and a number of replicas"):
        replay(TEMPLATE, **trace(), route=route)
