"""A fleet that attains its target is paid for no less than the bound on its time."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_simulated import columns_of, random_case

from capplan.bounds.replica_time import STANDING, WORK, at_once, replica_time
from capplan.bounds.standing import standing_s
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.planning.evaluate.replica_hours import replica_hours
from capplan.simulator.checks import oversized
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from tests.deployments import fleet_of

ENGINE = EngineSettings(
    max_num_seqs=8,
    max_num_batched_tokens=256,
    kv_blocks=400,
    block_size=16,
    prefix_caching=False,
)
# An iteration takes 10 ms, whatever is in it.
TABLES = linear_tables(0.01, 0, 0, 0, 0, max_batch=8, max_tokens=256)


def bound_of(arrival_s, output_tokens, target=1.0, cold_start_s=0.0, **limits_s):
    n = len(arrival_s)
    limits = {"ttft_s": np.inf, "tpot_s": np.inf, "e2e_s": np.inf, **limits_s}
    columns = {
        "arrival_s": np.asarray(arrival_s, float),
        "prompt_tokens": np.full(n, 10),
        "output_tokens": np.full(n, output_tokens),
        **{name: np.full(n, limit_s) for name, limit_s in limits.items()},
    }
    return replica_time(columns, target, TABLES, ENGINE, cold_start_s)


def test_requests_that_never_meet_share_no_iteration():
    # Each has 20 iterations of 10 ms to itself: the next comes 100 s after it is due.
    bound = bound_of([0, 100, 200], 20, e2e_s=1.0)

    assert bound.replica_s == pytest.approx(3 * 0.2, rel=1e-3)
    assert bound.method == WORK


def test_requests_that_may_meet_share_their_iterations():
    bound = bound_of([0, 0, 200, 200], 20, e2e_s=1.0)

    assert bound.replica_s == pytest.approx(2 * 0.2, rel=1e-3)


def test_a_request_that_may_miss_its_slo_is_left_out():
    all_of, half = (bound_of([0, 100], 20, share, e2e_s=1.0) for share in (1.0, 0.5))

    assert all_of.droppable == 0
    assert half.droppable == 1
    assert half.replica_s <= all_of.replica_s / 2 + 1e-9


def test_replicas_that_cannot_be_ordered_in_time_must_stand():
    # Every second one request of 0.2 s; a new replica takes a minute.
    bound = bound_of(np.arange(600.0), 20, cold_start_s=60.0, e2e_s=0.5)

    # Of windows of 7.5 s the last ones need not be stood for: 600 s but for a minute.
    assert bound.method == STANDING
    assert 530 < bound.replica_s < 600


def test_what_is_needed_stands_for_a_cold_start():
    # Windows of 10 s; that from 50 s has 25 s of work: three are there at a moment of
    # it, and so from a cold start of 30 s before its end to its begin.
    work_s = np.full(5, 5.0)

    assert standing_s(np.full(5, 5), work_s, 10.0, 2, 0) == 3 * 20
    # One that is left out is too few for r = 1 (5 requests) and r = 2 (3), enough for
    # r = 3: of the two windows each it takes the part of 2 that 5 and 3 leave.
    assert standing_s(np.full(5, 5), work_s, 10.0, 2, 1) == pytest.approx(
        10 * (2 - 2 / 5) + 10 * (2 - 2 / 3)
    )


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=30)
)
@settings(deadline=None)
def test_the_most_at_once_is_that_of_all_moments(stays):
    release_s = np.array([start for start, _ in stays], float)
    due_s = release_s + np.array([lasts for _, lasts in stays])

    found = at_once(release_s, due_s)

    moments = np.arange(0, 40.0, 0.5)
    there = (release_s[:, None] <= moments) & (moments <= due_s[:, None])
    expected = np.where(there, there.sum(axis=0), 0).max(axis=1)
    assert found.tolist() == expected.tolist()


SCALERS = (
    "",
    "ray:period=0.1s,look_back=0.1s,up_delay=0s,down_delay=0.2s,target=4,max=6",
    "hpa:period=0.1s,target=3,max=6,down_window=0s",
)


def check(seed, autoscaler, cold_start_s):
    """Refuse a bound above what a run is paid for, with its own share as the target."""
    trace, tables, engine, slo, _ = random_case(seed)
    if oversized(trace, engine).any():
        engine = replace(engine, kv_blocks=400)
    fleet = fleet_of(tables, engine, 1 + seed % 3)
    fleet = replace(fleet, autoscaler=autoscaler, cold_start_s=cold_start_s)
    limits = Slo(RequestSlo(slo[0], slo[1], e2e_s=slo[2]))
    run = simulate(trace, fleet, slo=limits)
    times = run.times
    met = (times.ttft_s <= slo[0]) & ~(times.tpot_s > slo[1]) & (times.e2e_s <= slo[2])
    if not met.any():
        return 0.0

    columns, target = columns_of(trace, slo), float(met.mean())
    bound = replica_time(columns, target, tables, engine, cold_start_s)

    paid_s = fleet.replica_count * run.totals.makespan_s
    if autoscaler:
        paid_s = 3600 * replica_hours(run).paid_h
    assert bound.replica_s <= paid_s * (1 + 1e-9)
    if bound.method == WORK:
        assert bound.replica_s <= run.busy_s * (1 + 1e-9)
    return bound.replica_s / paid_s


@pytest.mark.parametrize("autoscaler", SCALERS, ids=["fixed", "ray", "hpa"])
@pytest.mark.parametrize("seed", range(6))
def test_no_fleet_is_paid_for_less_than_the_bound(seed, autoscaler):
    check(seed, autoscaler, (0.0, 0.3, 1.0)[seed % 3])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2200))
def test_many_fleets_are_paid_for_no_less_than_the_bound(seed):
    for autoscaler in SCALERS:
        for cold_start_s in (0.0, 0.2, 1.0):
            check(seed, autoscaler, cold_start_s)
