"""Replica-hours of lives worked by hand, and their laws."""

from types import SimpleNamespace

import numpy as np
import pytest

from capplan.planning.evaluate.replica_hours import replica_hours
from capplan.simulator.fleet.lifecycle import LIFE

INF = np.inf


def simulation(lives, first_s=0.0, makespan_s=7200.0, busy_s=3600.0):
    """Return what replica hours are read from."""
    return SimpleNamespace(
        lives=np.array(lives, LIFE),
        table=SimpleNamespace(arrival_s=np.array([first_s])),
        totals=SimpleNamespace(makespan_s=makespan_s),
        busy_s=busy_s,
    )


def test_hours_are_those_from_the_first_arrival_to_the_last_token():
    # One always; one ordered at 0.5 h, ready at 1 h, closed at 1.5 h, gone at 1.75 h.
    hours = replica_hours(
        simulation([(-INF, -INF, INF, INF), (1800, 3600, 5400, 6300)])
    )

    assert hours.paid_h == pytest.approx(2 + 1.25)
    assert hours.ready_h == pytest.approx(2 + 0.75)
    assert hours.busy_h == 1.0
    assert hours.mean_replicas == pytest.approx(3.25 / 2)
    assert hours.peak_replicas == 2
    assert (hours.ordered, hours.closed) == (1, 1)
    assert hours.actions_per_day == pytest.approx(2 * 24 / 2)
    assert hours.start_s.tolist() == [0, 1800, 3600, 5400, 6300, 7200]
    assert hours.paid.tolist() == [1, 2, 2, 2, 1, 1]
    assert hours.ready.tolist() == [1, 1, 2, 1, 1, 1]


def test_what_is_ordered_after_the_last_token_is_not_there():
    hours = replica_hours(simulation([(-INF, -INF, INF, INF), (7200, 9000, INF, INF)]))

    assert (hours.paid_h, hours.peak_replicas, hours.ordered) == (2.0, 1, 0)


def test_an_order_that_is_taken_back_is_paid_until_then():
    hours = replica_hours(simulation([(-INF, -INF, INF, INF), (0.0, INF, INF, 1800.0)]))

    assert hours.paid_h == pytest.approx(2.5)
    assert hours.ready_h == pytest.approx(2.0)
    assert hours.closed == 1


def test_replicas_that_are_away_are_paid_where_they_are_the_user_s():
    # Two; one dies after half an hour, another comes half an hour later.
    lives = [(-INF, -INF, INF, INF), (-INF, -INF, 1800, 1800), (3600, 3600, INF, INF)]

    asked = replica_hours(simulation(lives), always_paid=2)

    assert asked.paid_h == pytest.approx(4.0)
    assert asked.ready_h == pytest.approx(3.5)
    assert replica_hours(simulation(lives)).paid_h == pytest.approx(3.5)
