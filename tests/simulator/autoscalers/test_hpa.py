"""HPA: metrics, replicas that start, windows and rates, worked by hand."""

import pytest

from capplan.errors import InputError
from capplan.simulator.autoscalers import Known
from tests.simulator.autoscalers.views import Instant, counts, decider, view


@pytest.mark.parametrize(
    ("given", "seen", "expected"),
    [
        # 25 in flight on a replica at its SLO's edge: 20 are the target.
        ("hpa", {"running": 20, "waiting": 10}, 6),
        ("hpa:metric=running", {"running": 40, "waiting": 10}, 8),
        ("hpa:metric=waiting", {"running": 40, "waiting": 10}, 8),
        ("hpa:metric=kv", {"kv_share": 0.92}, 5),
        ("hpa:metric=rate", {"arrived": 120}, 5),  # 8/s over 0.8 of 2/s
        ("hpa:metric=rate,target=4", {"arrived": 120}, 2),
        ("hpa:target=7.5", {"running": 20, "waiting": 10}, 8),  # at most +4, or +100 %
    ],
)
def test_a_metric_over_its_target(given, seen, expected):
    wanted = counts(
        given + (":" if ":" not in given else ",") + "down_window=0s", [view(4, **seen)]
    )

    assert wanted == [expected]


def test_replicas_that_start_hold_back_what_is_added():
    # 2 ready and 3 starting. 120 in flight are 1.2 of 5 times 20, so 6; 100 are 1.0
    # and 80 are 0.8 of them, which is down where those ready alone are above: dropped.
    wanted = [counts("hpa", [view(2, 3, running=n)])[0] for n in (60, 50, 40, 21)]

    assert wanted == [6, 5, 5, 5]


def test_replicas_that_start_are_pending_pods_or_pods_without_a_metric():
    # 3 ready with 10 of 20: as pending ones the other 2 are left out, 1.5 of 3 are 2;
    # as ones without a metric they count 20 each, (30 + 40)/5/20 of 5 are 4.
    seen = view(3, 2, running=10)

    pending = counts("hpa:down_window=0s", [seen])
    missing = counts("hpa:down_window=0s,starting=missing", [seen])

    assert (pending, missing) == ([2], [4])


def test_it_doubles_each_period_and_comes_down_after_the_window():
    fleet = Instant("hpa", 2)

    up = fleet.ticks(4, running=200)
    down = fleet.ticks(21, running=0)

    # +4 while that is more than double; 2 -> 6 -> 12 -> 24 -> 48.
    assert up == [6, 12, 24, 48]
    # The last time it wanted more than there were was 45 s into the run. The window of
    # 300 s is open at its end, so that it counts until 330 s, 19 ticks later.
    assert down == 19 * [48] + 2 * [1]


def test_a_short_rise_does_not_end_the_window():
    fleet = Instant("hpa", 10)

    seen = [
        fleet.ticks(10, running=4),
        fleet.tick(running=14),
        fleet.ticks(22, running=4),
    ]

    # From 10 that are there, 7 are the highest recommendation from 285 s on, until
    # that is 300 s old, at 450 s.
    assert seen[0] == 10 * [10]
    assert seen[1] == 10
    assert seen[2] == 9 * [10] + 10 * [7] + 3 * [2]


def test_within_tolerance_nothing_moves():
    fleet = Instant("hpa", 5)

    assert set(fleet.ticks(50, running=22) + fleet.ticks(50, running=18)) == {5}


def test_up_limits_hold_over_their_period():
    fleet = Instant("hpa:up_pods=1,up_percent=0,up_period=60s", 2)

    assert fleet.ticks(9, running=1000) == [3, 3, 3, 3, 4, 4, 4, 4, 5]


def test_a_replica_that_was_lost_is_asked_for_again():
    decide = decider("hpa")

    wanted = [
        decide(view(5, running=20)),
        decide(view(3, running=33, now_s=15.0)),
        decide(view(3, 2, running=33, now_s=30.0)),
    ]

    assert wanted == [5, 5, 5]


def test_without_replicas_that_are_ready_nothing_is_known():
    assert counts("hpa", [view(0, 3, held=50), view(0, 3, held=50)]) == [3, 3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("hpa", "hpa:metric=in-flight,target=20"),
        ("hpa:metric=running", "hpa:metric=running,target=20"),
        ("hpa:metric=rate", "hpa:metric=rate,target=20"),
        ("keda:metric=rate", "keda:metric=rate,target=20"),
    ],
)
def test_a_target_that_rests_on_what_is_not_known_is_asked_for(given, message):
    with pytest.raises(InputError, match=f"autoscaler .* not known.*{message}"):
        decider(given, Known())


def test_targets_of_queue_and_kv_need_nothing_known():
    seen = view(2, kv_share=0.8, waiting=5)

    assert counts("hpa:metric=kv", [seen], Known()) == [2]
    assert counts("hpa:metric=waiting", [seen], Known()) == [2]
