"""Replicas that come, close and die, worked by hand: iterations of 10 s."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.deployment.changes import Change
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

TABLES = linear_tables(10.0, 0, 0, 0, 0, max_batch=8, max_tokens=64)
ENGINE = EngineSettings(64, 8, 4, kv_blocks=101, async_scheduling=False)


def fleet(*changes, engine=ENGINE, replicas=2):
    deployment = fleet_of(TABLES, engine, replicas, router="round-robin")
    return replace(deployment, changes=changes)


def served(deployment, arrival_s, outputs):
    n = len(arrival_s)
    trace = Trace(np.full(n, 8), np.array(outputs), np.array(arrival_s, float))
    return simulate(trace, deployment)


def test_a_closed_replica_finishes_what_it_has():
    # Replica 1 has B from 0 to 50 and takes no more from 15 on; C and D go to 0.
    found = served(fleet(Change(15, "close")), [0, 0, 20, 30], [5, 5, 2, 2])

    assert found.table.replica.tolist() == [0, 1, 0, 0]
    assert found.table.finish_s.tolist() == [50, 50, 40, 50]
    closed = found.lives[np.isfinite(found.lives["closed_s"])]
    assert closed[["closed_s", "gone_s"]].tolist() == [(15, 50)]


def test_a_replica_that_comes_up_takes_requests_from_then_on():
    found = served(
        fleet(Change(15, "up", ordered_s=5), replicas=1), [0, 15, 16], [1, 1, 1]
    )

    assert found.table.replica.tolist() == [0, 1, 0]
    (came,) = found.lives[np.isfinite(found.lives["ready_s"])]
    assert (came["ordered_s"], came["ready_s"]) == (5, 15)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_requests_of_a_replica_that_dies_are_computed_again_on_another(asynchronous):
    # B has its tokens at 10 and 20 on replica 1, which dies at 25 in its third; so on
    # replica 0 it computes 10 tokens in [30, 40), which gives the third, and 2 more.
    # With async scheduling the iteration to 40 is on its way at 25: it joins at 40.
    engine = replace(ENGINE, async_scheduling=asynchronous)

    found = served(fleet(Change(25, "fail"), engine=engine), [0, 0], [8, 5])

    later = 10 if asynchronous else 0
    assert found.table.finish_s.tolist() == [80, 60 + later]
    assert found.table.first_token_s.tolist() == [10, 10]
    assert found.table.longest_gap_s.tolist() == [10, 20 + later]
    assert found.table.preemptions.tolist() == [0, 1]


def test_a_token_that_comes_when_the_replica_dies_is_lost():
    found = served(fleet(Change(10, "fail")), [0, 0], [8, 1])

    assert found.table.finish_s.tolist() == [80, 20]
    assert found.table.first_token_s.tolist() == [10, 20]


def test_requests_wait_while_no_replica_is_there():
    # Both die at 5; C comes at 7. A new one is there at 30 and takes them in order.
    found = served(fleet(Change(5, "fail", 2), Change(30, "up")), [0, 0, 7], [1, 2, 1])

    assert found.table.finish_s.tolist() == [40, 50, 40]
    assert found.table.replica.tolist() == [0, 0, 0]


def test_the_oldest_replica_is_renewed():
    # With a prefix cache: A's prefix is on replica 0, which is renewed, B's on 1.
    engine = replace(ENGINE, prefix_caching=True)
    changes = (Change(100, "renew"), Change(150, "up"))
    trace = Trace(
        np.full(4, 9),
        np.full(4, 1),
        np.array([0.0, 0.0, 200.0, 200.0]),
        prefix_group=np.array([1, 2, 2, 1]),
        prefix_tokens=np.full(4, 8),
    )

    table = simulate(trace, fleet(*changes, engine=engine)).table

    # The one with B's prefix is the first now; the renewed one knows nothing.
    assert table.cached_tokens.tolist() == [0, 0, 8, 0]


def test_a_new_replica_is_seen_empty_until_the_router_looks():
    # All 8 are on the one replica, whose KV the router sees at 20; it dies at 25. Of
    # the two that come then the router knows nothing: equals, among which it draws.
    changes = (Change(25, "fail"), Change(25, "up", 2))
    deployment = replace(
        fleet(*changes, replicas=1), router="llm-d:refresh=10s,queue=0"
    )

    found = served(deployment, [0] * 8, [8] * 8)

    assert set(found.table.replica.tolist()) == {0, 1}


def test_a_request_that_comes_later_changes_nothing_of_those_before():
    # At 25 a replica dies; what the router saw of the others is of 20 in both cases.
    rng = np.random.default_rng(0)
    deployment = replace(
        fleet(Change(25, "fail"), replicas=3), router="llm-d:refresh=10s,queue=0"
    )
    for _ in range(20):
        prompts = rng.integers(5, 10, 13)
        arrival_s = np.array([0.0] * 12 + [1000.0])

        both = [
            simulate(Trace(prompts[:n], np.full(n, 8), arrival_s[:n]), deployment)
            .table.replica[:12]
            .tolist()
            for n in (12, 13)
        ]

        assert both[0] == both[1]


def test_more_replicas_than_there_are_cannot_leave():
    with pytest.raises(InputError, match="3 replicas leave at 5 s; expected at most"):
        served(fleet(Change(5, "close", 3)), [0, 7], [1, 1])


def test_a_fleet_that_never_comes_back_is_an_error():
    with pytest.raises(InputError, match="no replica is left"):
        served(fleet(Change(5, "fail", 2)), [0, 7], [1, 1])
