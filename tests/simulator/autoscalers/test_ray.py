"""Ray Serve's look-back, delays and factors, worked by hand."""

import pytest

from capplan.simulator.autoscalers.ray import scaled
from tests.simulator.autoscalers.views import Instant, counts, view


@pytest.mark.parametrize(
    ("desired", "ready", "up", "down", "expected"),
    [
        (7.2, 4, 1.0, 1.0, 8),
        (8.0, 4, 0.5, 1.0, 6),
        (8.0, 4, 2.0, 1.0, 12),
        (2.0, 6, 1.0, 0.5, 4),
        (5.0, 6, 1.0, 0.1, 5),  # ⌈5.9⌉ would be stuck at 6
        (5.5, 6, 1.0, 0.5, 6),
    ],
)
def test_a_factor_of_the_way(desired, ready, up, down, expected):
    assert scaled(desired, ready, up, down) == expected


def test_up_after_the_delay_down_after_a_longer_one():
    fleet = Instant("ray:target=10", 2, period_s=10.0)

    up = fleet.ticks(5, running=20)
    down = fleet.ticks(64, running=1)

    # Wanted at 0, 10, 20 and 30 s: 4 then; at 40 s it is wanted anew.
    assert up == [2, 2, 2, 4, 4]
    # The mean of three ticks is 80, 80, 4 at 50 s, 80, 4, 4 at 60 s and 4 at 70 s; it
    # is below 4 * 10 for the first time at 60 s, and 600 s later.
    assert down[:61] == 61 * [4]
    assert down[61:] == [1, 1, 1]


def test_a_wish_that_turns_starts_its_delay_anew():
    fleet = Instant("ray:target=10,look_back=1s", 2, period_s=10.0)

    seen = [fleet.tick(running=n) for n in (20, 20, 5, 20, 20, 20, 20)]

    assert seen == [2, 2, 2, 2, 2, 2, 4]


def test_the_mean_is_over_the_look_back():
    fleet = Instant("ray:target=10,up_delay=0s", 1, period_s=10.0)

    # 30, then 30 and 0, then 30, 0 and 0.
    assert fleet.tick(running=30) == 3
    assert [fleet.tick(), fleet.tick()] == [3, 3]
    assert fleet.tick(running=40) == 4  # 0, 0 and 3 * 40


def test_held_requests_count_and_wake_a_fleet_of_none():
    assert counts("ray:up_delay=0s", [view(2, running=1, held=6)]) == [4]
    assert counts("ray", [view(0, held=5)]) == [1]
    assert counts("ray:up_factor=3", [view(0, held=5)]) == [3]
    assert counts("ray", [view(0, 2, held=5)]) == [2]
