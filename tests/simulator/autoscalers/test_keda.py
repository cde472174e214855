"""KEDA between none and one, and its HPA above, worked by hand."""

import math
from dataclasses import replace

import pytest

from tests.simulator.autoscalers.views import KNOWN, Instant, counts, decider, view


def test_requests_that_wait_over_their_threshold():
    # 3 replicas with 7, 0 and 11 waiting: ⌈18/5⌉; whether they are ready is not asked.
    wanted = [
        counts("keda:down_window=0s", [view(3, waiting=(7, 0, 11), arrived=1)]),
        counts("keda:down_window=0s", [view(1, 2, waiting=18, arrived=1)]),
    ]

    assert wanted == [[4], [4]]


def test_it_goes_to_none_after_the_cooldown():
    fleet = Instant("keda", 3)

    busy = fleet.ticks(3, arrived=4)
    idle = fleet.ticks(25)

    # Polls are at 0, 30, 60 s ... The last request is seen at 30 s, so that the trigger
    # of the last minute is on at the poll at 60 s and off at 90 s. More than 300 s
    # after 60 s is the poll at 390 s, 23 ticks after the last busy one.
    assert busy == [3, 3, 3]
    # The HPA takes its own window of 300 s, from the start, to come down to one.
    assert idle == 17 * [3] + 6 * [1] + 2 * [0]


def test_it_wakes_at_a_poll_and_scales_on():
    decide = decider("keda")
    seen = [
        view(0, now_s=0.0),
        view(0, now_s=15.0, arrived=9, held=9),
        view(0, now_s=30.0, held=9),
        view(0, 1, now_s=45.0, held=9),
        view(1, now_s=60.0, waiting=12),
    ]

    assert [decide(one) for one in seen] == [0, 0, 1, 1, 3]


def test_without_keepalive_a_fleet_without_a_queue_is_closed():
    fleet = Instant("keda:keepalive=off", 2)

    # It was never active, and then KEDA does not wait for the cooldown: only at the
    # poll at 0, when it has just begun.
    assert fleet.ticks(3, arrived=20, running=10) == [2, 2, 0]


@pytest.mark.parametrize(
    ("given", "start_s", "closed_s"),
    [
        ("keda", 0.0, 30.0),  # more than 0 s after 0 is the poll at 30 s
        ("keda", 14.0, 15.0),  # the first poll
        ("keda:initial_cooldown=60s", 0.0, 90.0),
        ("keda:initial_cooldown=60s,polling=15s", 0.0, 75.0),
        ("keda:initial_cooldown=60s,polling=15s", 14.0, 75.0),
        ("keda:initial_cooldown=60s,polling=15s", 15.0, 90.0),
    ],
)
def test_a_fleet_to_which_nothing_came_yet_is_closed_after_the_initial_cooldown(
    given, start_s, closed_s
):
    fleet = Instant(given, 3, known=replace(KNOWN, start_s=start_s))
    fleet.now_s = 15.0 * math.ceil(start_s / 15.0)

    found = [(fleet.now_s, fleet.tick()) for _ in range(12)]

    assert min(at_s for at_s, count in found if count == 0) == closed_s


def test_the_cooldown_counts_once_it_was_active():
    fleet = Instant("keda:initial_cooldown=3600s", 2)
    fleet.tick(arrived=4)

    # Seen at 0, so that the trigger is on at the polls at 0 and 30 s, not at 60 s.
    assert fleet.ticks(24)[-3:] == [1, 1, 0]


def test_with_a_least_count_it_never_goes_to_none():
    fleet = Instant("keda:min=2", 4)

    assert fleet.ticks(60)[-1] == 2


def test_the_example_of_production_stack_is_parsed():
    fleet = Instant("keda:min=1,max=3,polling=15s,cooldown=360s", 1)

    assert fleet.ticks(2, waiting=30, arrived=5) == [3, 3]
