"""Groups of ranks that come, close and die: by hand, as their judge, and by laws.

By hand an iteration takes 10 s: 6 of each rank and 4 of the experts.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from moving_group_cases import differences, drawn

from capplan.deployment.changes import Change
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.deployment.speculation import Speculation
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.latency.rank_tables import RankTables
from capplan.simulator.fleet.observing import freeness_of
from capplan.simulator.fleet.pool_state import Options
from capplan.simulator.fleet.serving_pool import ServingPool
from capplan.simulator.jit import from_python
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of
from tests.rest_slow import rest_slow

BUDGET = 256


def configuration(ranks=2, experts_s=4.0, rank_s=6.0, **given):
    rank = linear_tables(rank_s, 0, 0, 0, 0, max_batch=64, max_tokens=2048)
    experts = np.full(ranks * BUDGET + 1, experts_s)
    nothing = np.zeros(BUDGET + 1)
    engine = EngineSettings(
        BUDGET, 8, 4, kv_blocks=101, data_parallel_size=ranks, **given
    )
    tables = RankTables(rank, ranks, experts, experts, nothing, nothing)
    return Configuration(engine, rank, rank_tables=tables)


def fleet(*changes, count=2, **given):
    given = {"async_scheduling": False, "dp_balance": "round-robin"} | given
    fixed = Deployment.of(configuration(**given), count, "jsq")
    return replace(fixed, changes=changes)


def many(n=150, seed=3):
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(6.0, n))
    return Trace(rng.integers(1, 25, n), rng.integers(1, 40, n), arrival_s)


def assert_same(one, other):
    for field in fields(one):
        found, expected = getattr(one, field.name), getattr(other, field.name)
        np.testing.assert_array_equal(found, expected, err_msg=field.name)


@pytest.mark.parametrize(
    ("drafts", "outputs"), [(None, 5), (Speculation("ngram", (1.0,)), 8)]
)
def test_an_outage_takes_all_ranks_of_a_group(drafts, outputs):
    # A and C are on the ranks of the first group, B and D on those of the second, which
    # dies at 25 in its third iteration. They have 2 tokens of 5 (with drafts 3 of 8),
    # compute these and their prompts in [30, 40), which gives one more, and need two
    # iterations for the rest.
    trace = Trace(np.full(4, 8), np.full(4, outputs), np.zeros(4))

    simulation = simulate(trace, fleet(Change(25, "fail"), speculation=drafts))

    found = simulation.table
    assert found.finish_s.tolist() == [50, 60, 50, 60]
    assert found.first_token_s.tolist() == [10] * 4
    assert found.longest_gap_s.tolist() == [10, 20, 10, 20]
    assert found.preemptions.tolist() == [0, 1, 0, 1]
    gone = simulation.lives[np.isfinite(simulation.lives["gone_s"])]
    assert gone["gone_s"].tolist() == [25]


def test_a_rank_without_work_loses_nothing_by_its_dummies():
    # Only the first rank of the second group has a request; the other computes dummies.
    trace = Trace(np.full(3, 8), np.array([5, 5, 1]), np.array([0.0, 0.0, 21.0]))
    asynchronous = fleet(Change(25, "fail"), async_scheduling=True)

    found = simulate(trace, asynchronous).table

    # The second has tokens at 10 and 20; the third is in flight at 30.
    assert found.preemptions.tolist() == [0, 1, 0]
    assert found.finish_s[1] == 70


def test_groups_come_and_are_paid_and_counted_as_replicas():
    came = fleet(Change(15, "up", ordered_s=5), count=1)
    trace = Trace(np.full(3, 8), np.full(3, 3), np.array([0.0, 16.0, 17.0]))

    simulation = simulate(trace, came)

    assert simulation.table.replica.tolist() == [0, 1, 0]
    (life,) = simulation.lives[np.isfinite(simulation.lives["ready_s"])]
    assert (life["ordered_s"], life["ready_s"]) == (5, 15)
    assert came.gpu_count == came.pool.configuration.gpus


def compare(number):
    assert differences(drawn(number)) == []


@pytest.mark.filterwarnings("ignore")
def test_groups_in_motion_are_simulated_as_they_are_judged():
    for number in range(20):
        compare(number)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", rest_slow(range(2), lambda part: part == 0))
def test_many_groups_in_motion_are_simulated_as_they_are_judged(part):
    for number in range(20 + 50 * part, 70 + 50 * part):
        compare(number)


DRAFTS = Speculation("mtp", (0.75, 0.5), draft_s=1.0)


@pytest.mark.parametrize("drafts", [None, DRAFTS])
@pytest.mark.parametrize("balance", ["vllm", "shortest-queue"])
def test_groups_of_which_none_moves_are_the_fixed_ones(drafts, balance):
    given = {"speculation": drafts, "dp_balance": balance, "async_scheduling": True}

    moving = simulate(many(), fleet(Change(1e9, "up"), **given), seed=2)

    assert_same(moving.table, simulate(many(), fleet(**given), seed=2).table)


@pytest.mark.parametrize("drafts", [None, DRAFTS])
def test_a_group_of_one_rank_is_a_replica_in_motion(drafts):
    changes = Change(95, "fail"), Change(200, "up", 2), Change(400, "fail", 2)
    given = {"speculation": drafts, "async_scheduling": True}
    groups = fleet(*changes, ranks=1, experts_s=0.0, rank_s=10.0, **given)
    of_one = groups.pool.configuration
    alone = fleet_of(of_one.tables, of_one.engine, 2, router="jsq")

    found = simulate(many(), groups, seed=4).table

    expected = simulate(many(), replace(alone, changes=changes), seed=4).table
    for name in ("scheduled_s", "first_token_s", "finish_s", "preemptions"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize(
    "policy", ["hpa:target=6", "keda", "llumnix", "dynamo:rate=0.05"]
)
@pytest.mark.parametrize("drafts", [None, DRAFTS])
def test_an_autoscaler_orders_whole_groups(policy, drafts):
    given = {"speculation": drafts, "count": 1}
    bounded = f"{policy}{',' if ':' in policy else ':'}max=4,period=20s"
    scaled = replace(fleet(**given), autoscaler=bounded, cold_start_s=10.0)

    simulation = simulate(many(), scaled)

    found = simulation.table
    assert (found.finish_s > found.arrival_s).all()
    assert len(simulation.lives) > 1
    assert found.preemptions.sum() == 0
    assert (simulation.lives["gone_s"] >= simulation.lives["ready_s"]).all()


@pytest.mark.parametrize("drafts", [None, DRAFTS])
@pytest.mark.parametrize("seed", range(3))
def test_an_autoscaled_fleet_is_that_of_its_changes(drafts, seed):
    base = fleet(speculation=drafts, count=1, async_scheduling=seed % 2 == 0)
    policy = "hpa:target=4,max=4,period=15s"

    scaled = simulate(many(100, seed), replace(base, autoscaler=policy))

    lives = scaled.lives
    came = [Change(at_s, "up") for at_s in lives["ready_s"] if np.isfinite(at_s)]
    left = [Change(at_s, "close") for at_s in lives["closed_s"] if np.isfinite(at_s)]
    found = simulate(many(100, seed), replace(base, changes=(*came, *left)))
    assert came
    for name in ("first_token_s", "finish_s", "longest_gap_s"):
        one, other = getattr(scaled.table, name), getattr(found.table, name)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)


def test_the_freeness_of_a_group_is_that_of_all_its_ranks():
    pool = fleet().pool
    state = ServingPool(pool, "jsq", Options(bin_width_s=1.0, chunk=9)).state
    freeness = from_python(freeness_of)

    assert freeness(state, 0) == np.inf
    state.ranks["running_count"][:2] = 2, 1
    state.ranks["free_blocks"][:2] = 40, 20
    assert freeness(state, 0) == (40 + 20) / 3


def test_what_moves_requests_of_ranks_is_refused():
    for moving in ({"rebalancer": "llumnix:block=1ms"}, {"dispatcher": "aladdin"}):
        with pytest.raises(InputError, match="data_parallel_size 2 with"):
            simulate(many(), replace(fleet(), **moving))


def test_busy_time_that_a_dead_group_would_have_had_is_taken_back():
    # Two ranks are busy until the group dies at 25, the other two until 310: the second
    # and the fourth have 2 of 30 tokens then, and 28 iterations from 30 on.
    trace = Trace(np.full(4, 8), np.full(4, 30), np.zeros(4))

    simulation = simulate(trace, fleet(Change(25, "fail")))

    assert simulation.table.finish_s.tolist() == [300, 310, 300, 310]
    assert simulation.busy_s == pytest.approx(25 + 310)
