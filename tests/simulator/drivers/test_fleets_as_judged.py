"""Random fleets in motion, as the drivers and a judge with one clock see them."""

from dataclasses import replace

import numpy as np
import pytest
from fleet_cases import KINDS, draw
from simulated_fleet import differences, simulated

from capplan.deployment.changes import Change
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of
from tests.rest_slow import rest_slow

FEW = 20


def compared(kind, number):
    """Compare one random fleet, if the order of its events is known."""
    case = draw(kind, number)
    fails = any(event.kind == "fail" for event in case.moving.get("events", ()))
    if fails and case.pools[0][2] != "vllm-v1":
        return  # refused
    verdict = case.judged()
    if verdict.counted["ticks at which several drain"]:
        return  # in which order their rows are looked at is not told

    simulation = simulated(case)

    assert differences(case, verdict, simulation) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_fleet_in_motion_is_simulated_as_it_is_judged(kind):
    for number in range(FEW):
        compared(kind, number)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", rest_slow(range(4), lambda part: part == 0))
def test_many_fleets_in_motion_are_simulated_as_they_are_judged(kind, part):
    for number in range(FEW + 25 * part, FEW + 25 * part + 25):
        compared(kind, number)


def test_more_replicas_than_requests_may_come():
    tables = linear_tables(10.0, 0, 0, 0, 0, max_batch=4, max_tokens=64)
    engine = EngineSettings(64, 4, 4, kv_blocks=20)
    trace = Trace(np.array([3, 3]), np.array([1, 1]), np.array([5.0, 6.0]))
    came = tuple(Change(float(k), "up", 2) for k in range(1, 4))

    simulation = simulate(trace, replace(fleet_of(tables, engine, 1), changes=came))

    assert simulation.table.finish_s.tolist() == [15.0, 16.0]
