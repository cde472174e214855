"""Drafts in fleets whose replicas come, die or hand requests on: by hand, and laws.

Iterations of 10 s; one draft that is always accepted unless said otherwise, so that an
iteration gives two tokens.
"""

from dataclasses import fields, replace

import numpy as np
import pytest

from capplan.deployment.changes import Change
from capplan.deployment.engine import EngineSettings
from capplan.deployment.speculation import Speculation
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

TABLES = linear_tables(10.0, 0, 0, 0, 0, max_batch=16, max_tokens=2048)
DRAFTS = Speculation("ngram", (1.0,))
ENGINE = EngineSettings(
    64, 8, 4, kv_blocks=21, async_scheduling=False, speculation=DRAFTS
)
AMPLE = replace(ENGINE, kv_blocks=10_001, max_num_batched_tokens=1024)
LLUMNIX = "llumnix:block=5s,handshake=0s,last=1,theta=6,period=22s"
OFTEN = "llumnix:block=1s,handshake=1s,theta=99999,period=7s"


def fleet(engine=ENGINE, replicas=2, router="round-robin", tables=TABLES, **moving):
    deployment = fleet_of(tables, engine, replicas, router=router)
    return replace(deployment, **moving)


def many(n=120, seed=3):
    """Return requests, several on a replica at once."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(12.0, n))
    return Trace(rng.integers(1, 25, n), rng.integers(1, 40, n), arrival_s)


def assert_same(one, other, rounding_s=0.0):
    for field in fields(one):
        found, expected = getattr(one, field.name), getattr(other, field.name)
        within = {"rtol": 0, "atol": rounding_s, "err_msg": field.name}
        np.testing.assert_allclose(found, expected, **within)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_request_whose_replica_dies_draws_on_from_the_tokens_it_was_given(
    asynchronous,
):
    # B has tokens 1 at 10 and 2, 3 at 20 on replica 1, which dies at 25. On replica 0
    # it computes 11 tokens in [30, 40), which gives token 4, and has 5 to 8 in two
    # iterations more. With async scheduling that replica is busy until 40.
    engine = replace(ENGINE, async_scheduling=asynchronous)
    trace = Trace(np.full(2, 8), np.full(2, 8), np.zeros(2))

    died = fleet(engine, changes=(Change(25, "fail"),))
    found = simulate(trace, died).table

    later = 10 if asynchronous else 0
    assert found.finish_s.tolist() == [50, 60 + later]
    assert found.first_token_s.tolist() == [10, 10]
    assert found.longest_gap_s.tolist() == [10, 20 + later]
    assert found.preemptions.tolist() == [0, 1]


def test_tokens_that_come_when_the_replica_dies_are_lost_and_drawn_again():
    # 20: tokens 2 and 3 are lost; 9 tokens are computed in [20, 30), which gives the
    # second, and two iterations give four of the six left to its 6.
    trace = Trace(np.full(2, 8), np.full(2, 6), np.zeros(2))

    found = simulate(trace, fleet(changes=(Change(20, "fail"),))).table

    assert found.finish_s.tolist() == [40, 50]


def test_a_request_goes_on_along_its_line_where_it_has_moved():
    # A has 8 + 2 KV at 20, 12 at 30. At 22 two of three blocks go until 32; at 32 it
    # will have 14 in four, of which one more goes until 37, and it leaves at 40 with
    # the last one, there at 45. Three of its six iterations are left: 75, not 70.
    trace = Trace(np.array([8, 1, 32]), np.array([12, 1, 20]), np.zeros(3))

    simulation = simulate(trace, fleet(rebalancer=LLUMNIX))

    assert simulation.table.finish_s.tolist() == [75, 10, 110]
    assert simulation.table.longest_gap_s.tolist() == [15, 0, 10]
    (move,) = simulation.moved
    assert (move["began_s"], move["left_s"], move["ended_s"]) == (22, 40, 45)
    assert (move["stage"], move["sent_blocks"], move["joined"]) == (3, 4, 1)


SHARES = (0.75, 0.5, 0.25)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("router", ["jsq", "round-robin", "power-of-two"])
@pytest.mark.parametrize(
    "moving",
    [
        {"changes": (Change(1e9, "up"),)},
        {"rebalancer": "llumnix:block=1s,theta=-1000"},
        {"autoscaler": "hpa:target=1000,min=3,max=3"},
    ],
)
def test_a_fleet_in_which_nothing_moves_is_the_fixed_one(moving, router, asynchronous):
    drafts = Speculation("mtp", SHARES, draft_s=1.0)
    engine = replace(AMPLE, async_scheduling=asynchronous, speculation=drafts)
    fixed = fleet(engine, 3, router)

    moved = simulate(many(), replace(fixed, **moving), seed=5)

    still = simulate(many(), fixed, seed=5)
    # A tick cuts a jump, and rounds.
    assert_same(moved.table, still.table, 0.0 if "changes" in moving else 1e-9)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "moving",
    [
        {"changes": (Change(95, "fail"), Change(300, "up"), Change(700, "fail", 2))},
        {"autoscaler": "hpa:target=3,min=1,max=5,period=30s"},
    ],
)
def test_drafts_that_are_all_rejected_are_none_in_their_time(moving, asynchronous):
    # An iteration takes as long with them, and there is KV for all their slots.
    rejected = replace(
        AMPLE, async_scheduling=asynchronous, speculation=Speculation("mtp", (0, 0))
    )
    plain = replace(rejected, speculation=None)

    one, other = (
        simulate(many(), fleet(engine, 3, **moving)).table
        for engine in (rejected, plain)
    )

    assert_same(one, other)
    assert one.preemptions.any() or "autoscaler" in moving


def iterations_of(simulation, trace):
    """Return in how many iterations each request verified drafts."""
    entries = simulation.iterations.entries
    decodes = entries[entries["computed"] >= trace.prompt_tokens[entries["row"]]]
    return np.bincount(decodes["row"], minlength=len(trace))


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_a_request_takes_the_same_iterations_wherever_it_runs(replicas):
    engine = replace(AMPLE, speculation=Speculation("mtp", SHARES))
    alone = simulate(many(), fleet(engine, 1), seed=7, record_iterations=True)

    moving = fleet(engine, replicas, rebalancer=OFTEN)
    found = simulate(many(), moving, seed=7, record_iterations=True)

    expected = iterations_of(alone, many()).tolist()
    assert iterations_of(found, many()).tolist() == expected
    assert (found.table.migrations.sum() > 10) == (replicas > 1)


@pytest.mark.parametrize("longest_jump", [1, 3])
@pytest.mark.parametrize(
    "moving",
    [
        {"rebalancer": OFTEN},
        {"changes": (Change(95, "fail"), Change(300, "up"), Change(700, "fail", 2))},
        {"autoscaler": "keda:max=5,period=20s"},
        {"dispatcher": "aladdin:beat=11s"},
    ],
)
def test_a_fleet_in_motion_jumps_as_it_steps(moving, longest_jump):
    tables = linear_tables(10.0, 0.5, 0, 0.25, 2.0**-7, max_batch=16, max_tokens=2048)
    engine = replace(ENGINE, kv_blocks=60, speculation=Speculation("mtp", SHARES))
    deployment = fleet(engine, 3, "jsq", tables, **moving)

    stepped = simulate(many(), deployment, longest_jump=longest_jump).table

    jumped = simulate(many(), deployment).table
    for name in ("first_token_s", "finish_s", "longest_gap_s", "preemptions"):
        one, other = getattr(stepped, name), getattr(jumped, name)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)
