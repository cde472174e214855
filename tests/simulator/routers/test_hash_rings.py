"""Sessions and prefixes on a ring of hashes."""

import numpy as np
import pytest
from asking import Asked
from worked import TABLES, engine

from capplan.errors import InputError
from capplan.planning.evaluate.inputs import plan_inputs
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.simulate import simulate
from capplan.simulator.state import Count
from capplan.workload.trace import Trace
from tests.deployments import fleet_of


def test_a_session_stays_where_it_is_and_a_group_stands_for_one():
    asked = Asked("session", 5)

    of_sessions = [asked.ask(4, session=3, loads=range(5)) for _ in range(9)]
    of_groups = [asked.ask(4, 4, loads=range(5)) for _ in range(9)]

    assert len(set(of_sessions)) == len(set(of_groups)) == 1


def test_sessions_are_spread_as_the_arcs_of_160_points_are():
    # The share of a replica is the sum of 160 of 1280 exponential arcs: its standard
    # deviation is 1/sqrt(160) = 7.9 % of the mean, of which it is not further off.
    asked = Asked("session", 8)

    served_by = [asked.ask(4, session=session) for session in range(40_000)]

    got = np.bincount(served_by, minlength=8)

    assert abs(got / 5000 - 1).max() < 4 * 0.079
    assert np.std(got / 5000) > 0.02  # not equal shares


def test_a_replica_that_closes_loses_its_sessions_and_no_other_does():
    asked = Asked("session", 4)
    before = np.array([asked.ask(4, session=s) for s in range(500)])
    asked.state.counts[Count.OPEN] = 3
    after = np.array([asked.ask(4, session=s) for s in range(500)])
    asked.state.counts[Count.OPEN] = 4
    again = np.array([asked.ask(4, session=s) for s in range(500)])

    assert (before == 3).any()
    assert (after[before < 3] == before[before < 3]).all()
    assert (after < 3).all()
    assert (again == before).all()


def test_without_a_session_the_fewest_queries_of_a_minute_decide():
    asked = Asked("session", 3)
    first = [asked.ask(4, at_s=0.0) for _ in range(4)]

    later = [asked.ask(4, at_s=at_s) for at_s in (59.0, 60.0, 60.1)]

    # They have 2, 1 and 1, then 2, 2 and 1; at 60.1 s those of 0 s are over.
    assert first == [0, 1, 2, 0]
    assert later == [1, 2, 0]


@pytest.mark.parametrize(
    ("loads", "moves"),
    [
        ((3, 1), False),  # (4 + 1) / 2 * 1.25 = 3.125
        ((5, 2), False),  # 8 / 2 * 1.25 = 5
        ((6, 2), True),  # 9 / 2 * 1.25 = 5.6
    ],
)
def test_a_prefix_leaves_a_replica_above_its_share_of_the_load(loads, moves):
    asked = Asked("consistent-hash:tokens=4")
    home = asked.ask(9, 4, loads=(0, 0))
    busy = loads if home == 0 else loads[::-1]

    assert asked.ask(7, 4, loads=busy) == (1 - home if moves else home)


def test_prompts_that_share_less_than_the_first_tokens_are_spread():
    asked = Asked("consistent-hash:tokens=8", 2)

    alike = {asked.ask(20, 8, loads=(0, 0), draw=d / 10) for d in range(10)}
    unlike = {asked.ask(20, 7, loads=(0, 0), draw=d / 10) for d in range(10)}

    assert len(alike) == 1
    assert unlike == {0, 1}


def test_requests_without_session_and_group_are_refused_before_they_are_served():
    trace = Trace([5, 6], [1, 1], [0.0, 0.1], source="log.csv")

    with pytest.raises(
        InputError, match=r"log\.csv: no request has a session .*column"
    ):
        simulate(trace, fleet_of(TABLES, engine(), 2, router="session"))


def test_a_plan_without_sessions_is_refused_for_the_router_that_needs_them():
    settings = PlanSettings(
        workload="synthetic:prompt=100,output=20,n=1200",
        rate=20.0,
        llm="Llama-3.1-8B",
        gpu=("H100-SXM",),
        tp=(1,),
        slo="ttft=1s,tpot=50ms",
        router="session",
    )

    with pytest.raises(InputError, match="no request has a session or a prefix group"):
        plan_inputs(settings)
