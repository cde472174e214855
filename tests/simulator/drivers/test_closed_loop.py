"""Users who wait for their answers: the open simulation of what they ask."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.laws.cases import draw
from capplan.simulator.results.sketches import Sketches
from capplan.simulator.routers import ROUTERS
from capplan.simulator.schedulers import SCHEDULERS, parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.simulator.state import Count
from capplan.workload.trace import Trace
from capplan.workload.users import Users, parse_think
from tests.deployments import fleet_of
from tests.simulator.drivers.doors import Pool, Request

WHOLE = linear_tables(0.010, 1e-3, 0, 1e-3, 0, max_batch=8, max_tokens=64)
ROOM = EngineSettings(64, 8, kv_blocks=200, async_scheduling=False)


def random_case(policy, router, seed):
    """Return users who ask for random requests, their fleet and its SLO."""
    case = draw(policy, seed)
    if case is None:
        pytest.skip("the scheduler refuses every request of this case")
    rng = np.random.default_rng(seed)
    users = Users(int(rng.integers(1, 12)), float(rng.choice([1e-3, 0.05, 0.5])), True)
    process_s = float(rng.choice([0.0, 0.003]))
    tables = case.configuration.tables._replace(api_request_s=process_s)
    configuration = replace(case.configuration, tables=tables)
    fleet = Deployment.of(configuration, int(rng.integers(1, 4)), router)
    trace = replace(case.trace, arrival_s=None)
    return users.asking(trace, rng), fleet, case.slo


def assert_law(trace, fleet, slo):
    table = simulate(trace, fleet, slo=slo).table

    # A request is asked when an answer has been thought about, or at the start.
    answered_s = np.sort(table.finish_s)[: len(trace) - trace.users]
    asked_s = trace.think_s.copy()
    asked_s[trace.users :] += answered_s
    assert table.arrival_s == pytest.approx(np.sort(asked_s), abs=1e-9)
    again = simulate(replace(trace, users=0, arrival_s=table.arrival_s), fleet, slo=slo)
    assert table.finish_s == pytest.approx(again.table.finish_s.tolist(), abs=1e-9)
    assert table.first_token_s == pytest.approx(
        again.table.first_token_s.tolist(), abs=1e-9
    )


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:an iteration had")
@pytest.mark.parametrize("router", sorted(ROUTERS))
@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_a_closed_loop_is_the_open_simulation_of_its_arrivals(scheduler, router):
    policy = parse_scheduler(scheduler)

    for seed in range(3):
        assert_law(*random_case(policy, router, seed))


@pytest.mark.parametrize("seed", range(100))
def test_a_closed_loop_of_v1_is_the_open_simulation_of_its_arrivals(seed):
    router = ("jsq", "round-robin")[seed % 2]

    assert_law(*random_case(parse_scheduler("vllm-v1"), router, 1000 + seed))


def test_two_users_ask_when_they_have_thought():
    # Prompts of 10 tokens take 10 + 10 ms, a decode of one 10 + 1 ms. A asks at 0:
    # [0, 20), 31; thinks 100 ms, asks at 131. B asks at 50: [50, 70), 81; thinks 200.
    think_s = np.array([0.0, 0.050, 0.100, 0.200])
    trace = Trace(np.full(4, 10), np.full(4, 2), users=2, think_s=think_s)

    table = simulate(trace, fleet_of(WHOLE, ROOM)).table

    assert table.arrival_s == pytest.approx([0.0, 0.050, 0.131, 0.281])
    assert table.finish_s == pytest.approx([0.031, 0.081, 0.162, 0.312])


def test_an_answer_comes_after_the_front_ends_time_for_its_prompt():
    # 5 ms to the router, [5, 25), 36, and 10 tokens of 1 ms: answered at 46. The next
    # is asked at 146, and takes as long.
    tables = WHOLE._replace(request_s=0.005, prompt_token_s=0.001)
    trace = Trace(
        np.full(2, 10), np.full(2, 2), users=1, think_s=np.array([0.0, 0.100])
    )

    table = simulate(trace, fleet_of(tables, ROOM)).table

    assert table.arrival_s == pytest.approx([0.0, 0.146])
    assert table.finish_s == pytest.approx([0.046, 0.192])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_users_who_do_not_think_are_as_many_seats(asynchronous):
    engine = replace(ROOM, async_scheduling=asynchronous, max_num_seqs=5)
    rng = np.random.default_rng(0)
    prompts, outputs = rng.integers(1, 30, 60), rng.integers(2, 20, 60)
    trace = Users(5, 0.0).asking(Trace(prompts, outputs), rng)
    wide = replace(engine, max_num_seqs=8)

    closed = simulate(trace, fleet_of(WHOLE, wide)).table

    at_once = Trace(prompts, outputs, np.zeros(60))
    seated = simulate(at_once, fleet_of(WHOLE, engine)).table
    for name in ("scheduled_s", "first_token_s", "finish_s"):
        assert getattr(closed, name) == pytest.approx(getattr(seated, name))


def test_counts_of_a_closed_loop_are_those_of_its_table():
    rng = np.random.default_rng(1)
    requests = Trace(rng.integers(1, 40, 3000), rng.integers(1, 30, 3000))
    trace = Users(20, 0.5, True).asking(requests, rng)
    fleet = fleet_of(WHOLE, ROOM, 2)

    table = simulate(trace, fleet)
    counted = simulate(trace, fleet, sink=Sketches())

    assert counted.totals == table.totals
    assert counted.completed == table.completed == 3000
    # The series reaches to the last arrival, in windows of equal width.
    assert counted.series.start_s.tolist() == table.series.start_s.tolist()
    assert counted.series.busy_share == pytest.approx(table.series.busy_share)
    assert table.series.start_s[-1] <= table.table.arrival_s[-1]


def test_users_ask_no_more_from_a_moment_on():
    rng = np.random.default_rng(4)
    requests = Trace(rng.integers(1, 40, 3000), rng.integers(1, 30, 3000))
    whole = Users(20, 0.5, True).asking(requests, rng)
    short = replace(whole, asked_until_s=10.0)
    fleet = fleet_of(WHOLE, ROOM, 2)

    table = simulate(short, fleet).table

    before = simulate(whole, fleet).table.arrival_s < 10.0
    assert len(table) == before.sum() < 3000
    assert table.arrival_s.max() < 10.0
    assert not np.isnan(table.finish_s).any()


def test_what_had_been_asked_is_kept_when_it_is_stopped():
    rng = np.random.default_rng(2)
    requests = Trace(np.full(50_000, 10), np.full(50_000, 5))
    trace = Users(4, 0.1).asking(requests, rng)
    calls = iter(range(100))

    simulation = simulate(trace, fleet_of(WHOLE, ROOM), stopped=lambda: next(calls) > 0)

    assert 0 < simulation.completed < 50_000
    assert simulation.interrupted


def test_first_requests_come_after_the_rest_of_a_think_time():
    trace = Users(1000, 2.0).asking(
        Trace(np.ones(5000, int), np.ones(5000, int)), np.random.default_rng(3)
    )

    assert trace.users == 1000
    assert trace.think_s[:1000].max() < 2.0
    assert trace.think_s[:1000].mean() == pytest.approx(1.0, abs=0.1)
    assert set(trace.think_s[1000:]) == {2.0}


@pytest.mark.parametrize("text", ["-1s", "exp:-2s", "2", "exp:", "2 lightyears"])
def test_a_think_time_that_is_none_is_refused(text):
    with pytest.raises(InputError):
        parse_think(text)


def test_no_users_are_refused():
    with pytest.raises(InputError, match="users is 0"):
        Users(0, 1.0)


@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_a_closed_replica_finishes_what_it_has_and_takes_no_more(router):
    engine = EngineSettings(64, 8, kv_blocks=200, async_scheduling=False)
    tables = linear_tables(0.01, 1e-4, 0, 1e-3, 0, max_batch=8, max_tokens=64)
    pool = Pool(fleet_of(tables, engine, 3, router=router))
    first = [pool.arrive(Request(row, 40, 5), 0.0) for row in range(6)]
    before = pool.state.requests[first].replica.copy()
    pool.state.counts[Count.OPEN] = 2

    later = [pool.arrive(Request(row, 40, 5), 0.001) for row in range(6, 18)]
    done = []
    while pool.replicas["outstanding"].sum() > 0:
        r = int(np.argmin([pool.next_s(i) for i in range(3)]))
        done += pool.step(r, np.inf)[1].tolist()

    if router in ("jsq", "round-robin"):
        assert 2 in before
    assert max(pool.state.requests[later].replica) < 2
    assert len(done) == 18
