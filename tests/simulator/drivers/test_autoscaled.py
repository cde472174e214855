"""Fleets under an autoscaler: what they see, order, close and pay for."""

from dataclasses import fields, replace

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.autoscalers import AUTOSCALERS
from capplan.simulator.results.sketches import Sketches
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from capplan.workload.users import Users
from tests.deployments import fleet_of

TABLES = linear_tables(0.010, 1e-4, 0, 1e-3, 0, max_batch=8, max_tokens=64)
ENGINE = EngineSettings(64, 8, 16, kv_blocks=201, async_scheduling=True)
GIVEN = {
    "perfect": ":rate=20",
    "schedule": ":rate=20",
    "aladdin": ":rate=20",
    "hpa": ":target=4",
    "dynamo": ":rate=20",
}
"""Settings that some policies need where the fleet's capacity is not known."""


def fleet(autoscaler, replicas=2, cold_start_s=0.0, router="jsq"):
    deployment = fleet_of(TABLES, ENGINE, replicas, router=router)
    return replace(deployment, autoscaler=autoscaler, cold_start_s=cold_start_s)


def day(n=20_000, period_s=600.0, peak_per_s=100.0, seed=0):
    """Return requests whose rate swings between a tenth of the peak and the peak."""
    rng = np.random.default_rng(seed)
    candidates_s = np.sort(rng.uniform(0, 2 * n / peak_per_s, 2 * n))
    rate = 0.55 - 0.45 * np.cos(2 * np.pi * candidates_s / period_s)
    arrival_s = candidates_s[rng.uniform(size=2 * n) < rate]
    count = len(arrival_s)
    return Trace(rng.integers(1, 60, count), rng.integers(1, 40, count), arrival_s)


def hours(lives, end_s):
    """Return the seconds paid and ready of all replicas until a moment."""
    first_s = 0.0
    paid = np.clip(lives["gone_s"], first_s, end_s)
    paid -= np.clip(lives["ordered_s"], first_s, end_s)
    ready = np.clip(lives["gone_s"], first_s, end_s)
    ready -= np.clip(lives["ready_s"], first_s, end_s)
    return paid.sum(), np.maximum(ready, 0.0).sum()


@pytest.mark.parametrize("router", ["jsq", "round-robin", "power-of-two", "llm-d"])
def test_a_constant_schedule_is_a_static_fleet(router):
    trace = day(3000)

    scaled = simulate(trace, fleet("schedule:0=3", 3, router=router)).table

    static = simulate(trace, fleet("", 3, router=router)).table
    for field in fields(scaled):
        assert np.array_equal(getattr(scaled, field.name), getattr(static, field.name))


def test_the_schedule_orders_a_replica_a_cold_start_ahead():
    # Two replicas are wanted from 3600 s on; the second takes 60 s to come.
    trace = Trace(np.full(4, 9), np.full(4, 2), np.array([0.0, 3599, 3601, 3601.001]))

    simulation = simulate(trace, fleet("schedule:0=1,1=2", 1, 60.0))

    assert simulation.table.replica.tolist() == [0, 0, 0, 1]
    (came,) = simulation.lives[simulation.lives["ready_s"] > 0]
    assert came[["ordered_s", "ready_s"]].tolist() == (3540, 3600)


def test_replicas_leave_last_in_first_out_and_are_paid_until_they_are_empty():
    # Two from 0, one from 3600 on, where the second has a request of 6,000 s.
    tables = linear_tables(2.0, 0, 0, 0, 0, max_batch=8, max_tokens=64)
    trace = Trace(np.full(3, 9), np.array([1, 3000, 1]), np.array([0.0, 0, 3601]))
    deployment = replace(fleet_of(tables, ENGINE, 2), autoscaler="schedule:0=2,1=1")

    simulation = simulate(trace, deployment)

    assert simulation.table.replica.tolist() == [0, 1, 0]
    (closed,) = simulation.lives[np.isfinite(simulation.lives["closed_s"])]
    assert closed[["closed_s", "gone_s"]].tolist() == (3600, 6000)


@pytest.mark.parametrize("name", sorted(AUTOSCALERS))
def test_all_are_served_and_paid_is_no_less_than_ready_and_busy(name):
    trace = day()
    text = f"{name}{GIVEN.get(name, '')}"

    simulation = simulate(trace, fleet(text, 2, 20.0))

    table = simulation.table
    assert np.isfinite(table.finish_s).all()
    assert (table.first_token_s > table.arrival_s).all()
    paid_s, ready_s = hours(simulation.lives, table.finish_s.max())
    assert paid_s + 1e-6 >= ready_s >= simulation.busy_s - 1e-6


@pytest.mark.parametrize("name", ["hpa:target=4", "ray"])
def test_counts_without_a_table_are_the_same(name):
    trace = day()

    counted = simulate(trace, fleet(name), sink=Sketches())

    table = simulate(trace, fleet(name))
    assert counted.totals == table.totals
    assert counted.lives.tolist() == table.lives.tolist()


def test_users_are_served_by_a_fleet_that_grows():
    rng = np.random.default_rng(0)
    requests = Trace(rng.integers(1, 60, 5000), rng.integers(1, 40, 5000))
    trace = Users(60, 1.0, True).asking(requests, rng)

    simulation = simulate(trace, fleet("ray:target=4,up_delay=5s", 1, 10.0))

    assert np.isfinite(simulation.table.finish_s).all()
    assert simulation.replica_count > 1


def test_a_fleet_may_shrink_to_nothing_and_come_back():
    arrival_s = np.array([0.0, 0.1, 2000.0, 2000.1])
    trace = Trace(np.full(4, 9), np.full(4, 2), arrival_s)

    simulation = simulate(trace, fleet("keda:min=0", 1, 30.0))

    wait_s = simulation.table.scheduled_s - arrival_s
    assert wait_s[:2].max() < 1.0
    assert 30.0 <= wait_s[2] < 120.0
    paid_s, _ = hours(simulation.lives, simulation.table.finish_s.max())
    assert paid_s < 1000.0


def test_a_fleet_is_not_closed_before_the_first_request_can_have_come():
    # The first request takes half a second to come in, so that the tick at 0 sees none.
    trace = Trace(np.full(2, 9), np.full(2, 2), np.array([0.0, 20.0]))
    deployment = fleet_of(TABLES._replace(request_s=0.5), ENGINE, 1)

    simulation = simulate(trace, replace(deployment, autoscaler="keda:min=0"))

    wait_s = simulation.table.scheduled_s - trace.arrival_s
    assert wait_s == pytest.approx([0.5, 0.5])


def test_a_policy_that_lacks_what_it_needs_says_so():
    with pytest.raises(InputError, match="perfect"):
        simulate(day(100), fleet("perfect"))
