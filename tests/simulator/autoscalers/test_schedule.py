"""Replicas by the hour: given, proposed from the trace, and known from it."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.simulator.autoscalers import Known, parse_autoscaler
from capplan.simulator.autoscalers.perfect import highest_ahead, needed
from capplan.simulator.autoscalers.schedule import given_hours, proposed_hours
from tests.simulator.autoscalers.views import counts, view

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def at(given, hours, known=None):
    """Return the counts at hours from the start of the trace."""
    known = known or Known(cold_start_s=0.0)
    return counts(given, [view(now_s=hour * HOUR_S) for hour in hours], known)


def test_a_day_is_repeated():
    found = at("schedule:0=3,8=10,20=4,period=1s", [0, 7.9, 8, 19.9, 20, 24, 32, 47])

    assert found == [3, 3, 10, 10, 4, 3, 10, 4]


def test_hours_before_the_first_have_the_last():
    assert at("schedule:8=10,20=4,period=1s", [0, 7.9, 8, 25]) == [4, 4, 10, 4]


def test_an_hour_of_a_later_day_makes_it_a_week():
    given = "schedule:0=3,120=1,period=1s"  # less from the sixth day on

    assert at(given, [0, 119.9, 120, 167.9, 168, 288]) == [3, 3, 1, 1, 3, 1]


def test_replicas_are_ordered_a_cold_start_ahead_and_kept_until_their_hour_ends():
    known = Known(cold_start_s=600.0)
    given = "schedule:0=3,8=10,20=4"
    hours = [7 + 49 / 60, 7 + 49.5 / 60, 7 + 50 / 60, 19.99, 20]

    # A tick a minute after 7:49 is in time, one after 7:49:30 is not.
    assert at(given, hours, known) == [3, 10, 10, 10, 4]
    assert at(f"{given},ahead=0s,period=1s", [7.99, 8], known) == [3, 10]


def test_hours_count_from_the_start_of_the_trace():
    known = Known(start_s=HOUR_S / 2)

    assert at("schedule:0=3,8=10,period=1s", [8.4, 8.5], known) == [3, 10]


def test_the_text_names_the_hours_that_are_given():
    policy = parse_autoscaler("schedule:8=10,0=3,min=2")

    assert str(policy) == "schedule:min=2,max=100,period=60.0s,0=3,8=10"
    assert parse_autoscaler(str(policy)) == policy
    assert policy != parse_autoscaler("schedule:9=10,0=3,min=2")
    assert given_hours(parse_autoscaler("schedule").settings) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("schedule:168=3", "'168' is not a setting .* ahead, 0 to 167"),
        ("schedule:8=0", "8 is '0'; expected a number from 1 .* as in schedule:8=1"),
        ("schedule:8=2.5", "8 is '2.5'"),
        ("schedule:rate=0", "rate is '0'"),
    ],
)
def test_wrong_hours_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        parse_autoscaler(given)


def test_an_hour_of_the_week_has_what_its_busiest_quarter_needs():
    # 900 requests in the second quarter of hour 1, 1,801 in that of the week after;
    # 90 in the last quarter of hour 2, the trace's end.
    arrival_s = np.concatenate(
        [
            np.linspace(HOUR_S + 900, HOUR_S + 1799, 900),
            np.linspace(7 * DAY_S + HOUR_S + 900, 7 * DAY_S + HOUR_S + 1799, 1801),
            np.linspace(7 * DAY_S + 2.5 * HOUR_S, 7 * DAY_S + 2.5 * HOUR_S + 899, 90),
        ]
    )

    hours = proposed_hours(arrival_s, 0.0, 0.5)

    assert hours[:4] == [0, 5, 1, 0]
    assert sum(hours) == 6


def test_without_hours_the_proposal_is_followed():
    # 1/s, and 8/s in hour 2; a replica serves 2/s.
    rates = np.repeat([1, 1, 8, 1], 3600)
    arrival_s = np.repeat(np.arange(len(rates)), rates).astype(float)
    known = Known(2.0, arrival_s, cold_start_s=300.0)

    found = at("schedule", [0, 1.9, 1.91, 2, 2.9, 3.0], known)

    assert found == [1, 1, 4, 4, 4, 1]
    with pytest.raises(InputError, match=r"schedule:rate=4.2, or .* schedule:0=3,8=10"):
        at("schedule", [0])


def test_perfect_has_what_the_arrivals_of_its_period_need():
    arrival_s = np.array([0.0, 1.0, 59.9, 60.0, 200.0, 201.0, 202.0, 203.0, 204.0])

    need = needed(arrival_s, 60.0, 2 / 60)

    assert need.tolist() == [2, 1, 0, 3]
    assert highest_ahead(need, 1).tolist() == [2, 1, 0, 3]
    assert highest_ahead(need, 3).tolist() == [2, 3, 3, 3]


def test_perfect_orders_a_cold_start_ahead():
    rates = np.repeat([1, 8, 1, 0], 600)
    arrival_s = np.repeat(np.arange(len(rates)), rates).astype(float)

    def found(cold_start_s):
        known = Known(2.0, arrival_s, cold_start_s=cold_start_s)
        seen = [view(now_s=60.0 * tick) for tick in range(32)]
        return counts("perfect", seen, known)

    assert found(0.0) == 10 * [1] + 10 * [4] + 12 * [1]
    # Ready at 600 s: ordered at 300 s, or at 240 s where that is not a tick's time.
    assert found(300.0) == 5 * [1] + 15 * [4] + 12 * [1]
    assert found(301.0) == 4 * [1] + 16 * [4] + 12 * [1]
