"""Llumnix's dispatch: what it sees, and where requests of high priority gather."""

import numpy as np
import pytest
from worked import TABLES, engine

from capplan.simulator.simulate import simulate
from capplan.simulator.state import Setting
from capplan.workload.trace import Trace
from tests.deployments import fleet_of
from tests.simulator.asking import Asked


@pytest.mark.parametrize(("refresh", "places"), [("1s", [0, 0, 0]), ("0s", [0, 1, 0])])
def test_arrivals_within_one_refresh_all_go_to_the_replica_that_was_freest(
    refresh, places
):
    # Before the first look both are idle: one request each is worth more than two.
    trace = Trace(3 * [4], 3 * [200], np.array([0.001, 0.002, 0.003]))
    fleet = fleet_of(TABLES, engine(blocks=256), 2, router=f"llumnix:refresh={refresh}")

    times = simulate(trace, fleet).table

    assert times.replica.tolist() == places


def test_those_of_high_priority_gather_where_one_is_and_others_keep_away():
    asked = Asked("llumnix:target=6,high=1")
    replicas = asked.state.replicas
    replicas["seen_running"] = [3, 1]
    replicas["seen_kv_use"] = [0.5, 0.1]
    replicas["seen_high"] = [1, 0]

    known = [asked.ask(9, priority=priority) for priority in (0, 1)]
    asked.state.settings[Setting.HIGH] = -np.inf
    replicas["seen_high"] = 0
    unknown = [asked.ask(9, priority=priority) for priority in (0, 1)]

    assert (known, unknown) == ([0, 1], [1, 1])
