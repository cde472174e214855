"""Dynamo's two planners, worked by hand and by the package's own cases."""

import pytest

from capplan.errors import InputError
from capplan.simulator.autoscalers import Known
from capplan.simulator.autoscalers.dynamo_load import desired
from capplan.simulator.autoscalers.forecasts import Kalman
from tests.simulator.autoscalers.views import Instant, counts, decider, view


def test_the_rate_of_the_last_period_over_what_a_replica_serves():
    fleet = Instant("dynamo", 3, period_s=180.0)

    # 2 requests/s a replica: 360 each period.
    assert fleet.tick(arrived=1441) == 5
    assert fleet.tick(arrived=1440) == 4
    assert fleet.tick(arrived=0) == 1


def test_it_moves_by_at_most_eight_of_those_ready():
    fleet = Instant("dynamo", 40, period_s=180.0)

    assert fleet.tick(arrived=360 * 180) == 48
    assert fleet.ticks(2, arrived=0) == [40, 32]


def test_while_replicas_start_it_only_goes_down():
    decide = decider("dynamo")
    seen = [
        view(2, now_s=0.0, arrived=1440, since_s=180.0),
        view(2, 2, now_s=180.0, arrived=3600, since_s=180.0),
        view(2, 2, now_s=360.0, arrived=720, since_s=180.0),
    ]

    assert [decide(one) for one in seen] == [4, 4, 2]


def test_a_short_first_period_is_scaled():
    assert counts("dynamo", [view(1, arrived=80, since_s=10.0)]) == [4]
    assert counts("dynamo", [view(2, arrived=80, since_s=0.0)]) == [2]


def test_a_given_rate_goes_before_the_known_one():
    seen = [view(1, arrived=180, since_s=180.0)]

    assert counts("dynamo:rate=0.25", seen, Known()) == [4]
    with pytest.raises(InputError, match="as in dynamo:rate="):
        counts("dynamo", seen, Known())


def test_the_kalman_filter_equals_filterpy():
    # filterpy 1.4.5, stepped as in ai-dynamo 1.6.1.
    forecast = Kalman()
    seen = (0, 0, 100, 130, 90, 160, 150, 170, 60, 40, 20, 5, 0, 0)

    found = [forecast(count) for count in seen]

    assert found[:6] == [0, 0, 100, 130, 90, 160]
    assert found[6:] == pytest.approx(
        [164.898643, 181.956589, 108.671508, 59.937387, 23.158077, 0, 0, 0], abs=1e-6
    )


def test_the_kalman_filter_is_ahead_of_a_ramp():
    ramp = [360 * n for n in range(1, 9)]
    last = Instant("dynamo", 1, period_s=180.0)
    ahead = Instant("dynamo:forecast=kalman", 1, period_s=180.0)

    assert [last.tick(arrived=n) for n in ramp] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [ahead.tick(arrived=n) for n in ramp] == [1, 2, 3, 4, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("highest", "ready", "lacking", "goal", "expected"),
    [
        (1.01, 2, 0, 0, 3),
        (1.00, 2, 0, 0, None),
        (0.60, 2, 0, 0, None),
        (0.49, 2, 0, 0, 1),
        (0.55, 2, 0, 0, 2),  # one alone would have 1.1
        (0.55, 2, 1, 0, 2),  # the case of test_pending_startup_scaling.py
        (0.50, 3, 0, 0, 2),
        (0.30, 1, 0, 0, None),
        (0.30, 1, 1, 0, 1),
        (0.41, 2, 0, 1, 3),
        (0.09, 2, 0, 1, 1),
        (0.10, 2, 0, 1, None),
    ],
)
def test_one_more_or_one_fewer_by_the_fullest(highest, ready, lacking, goal, expected):
    assert desired(highest, ready, lacking, goal, 1) == expected


def test_prompts_that_wait_count_with_the_mean_length():
    # 16,000 tokens of KV. 0.9 are in use, and 20 prompts of 100 tokens are 0.125.
    seen = {"kv_share": (0.2, 0.9), "arrived": 10}

    assert counts("dynamo-load", [view(2, waiting=(0, 20), **seen)]) == [3]
    assert counts("dynamo-load", [view(2, waiting=(0, 16), **seen)]) == [2]


def test_nothing_while_replicas_drain():
    assert counts("dynamo-load", [view(3, kv_share=0.1, draining=1)]) == [3]


def test_replicas_that_start_are_cancelled_when_a_period_long_not_wanted():
    decide = decider("dynamo-load")
    low, high = {"kv_share": 0.1}, {"kv_share": 0.8}

    wanted = [
        decide(view(2, 2, now_s=0.0, since_s=5.0, **low)),
        decide(view(2, 2, now_s=5.0, since_s=5.0, **high)),  # not wanted anew
        decide(view(2, 2, now_s=10.0, since_s=5.0, **low)),
        decide(view(2, 2, now_s=15.0, since_s=5.0, **low)),
        decide(view(1, now_s=20.0, since_s=5.0, **low)),
    ]

    assert wanted == [4, 4, 4, 1, 1]
    assert counts("dynamo-load", [view(2, 2, kv_share=1.1)]) == [4]
