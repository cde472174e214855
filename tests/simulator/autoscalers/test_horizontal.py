"""Kubernetes' own test cases: counts, limits and windows.

Figures of pkg/controller/podautoscaler/replica_calculator_test.go and
horizontal_test.go, those that hold for metrics of pods and for ``selectPolicy: Max``.
"""

import pytest

from capplan.simulator.autoscalers.horizontal import (
    DEFAULT,
    down_limit,
    external_replicas,
    normalizer,
    pod_replicas,
    up_limit,
)

MINUTE = 60.0


@pytest.mark.parametrize(
    ("case", "levels", "unready", "missing", "target", "expected"),
    [
        ("scale up", (20, 10, 30), 0, 0, 15, 4),
        ("scale up, pods counted ready", (50, 10, 30), 0, 0, 15, 6),
        ("scale up, pods counted ready", (50, 15, 30), 0, 0, 15, 7),
        ("scale up: unready pod scales less", (500, 700), 1, 0, 300, 4),
        ("no scale: unready pods ignored", (400,), 2, 0, 300, 3),
        ("scale up: failed pods ignored", (500, 700), 0, 0, 300, 4),
        ("scale down", (12, 12, 12, 12, 12), 0, 0, 20, 3),
        ("scale down", (100, 300, 500, 250, 250), 0, 0, 500, 3),
        ("scale down: exclude unready pods", (100, 300, 500), 2, 0, 500, 2),
        ("scale down: exclude unscheduled pods", (100,), 4, 0, 500, 1),
        ("within default tolerance", (20, 21, 21), 0, 0, 20, 3),
        ("within default tolerance", (1010, 1030, 1020), 0, 0, 1000, 3),
        ("no change: missing metrics", (20, 19, 21), 0, 2, 20, 5),
        ("some pods missing metrics scales down", (400, 95), 0, 2, 1000, 3),
        ("no change: metric equal to target", (1000,), 0, 1, 1000, 2),
        ("no change: metric above target", (1900,), 0, 1, 1000, 2),
        ("no change: metric below target", (600,), 0, 1, 1000, 2),
        ("scale up: unready pod metric missing", (2000,), 1, 1, 500, 4),
    ],
)
def test_the_count_by_a_metric_of_pods(
    case, levels, unready, missing, target, expected
):
    ready = len(levels)
    current = ready + unready + missing

    found = pod_replicas(sum(levels), current, ready, unready, missing, target, 0.1)

    assert found == expected, case


def test_a_rolling_update_with_a_pod_more_does_not_scale_up():
    # Two pods of 10 and a third without metrics: (10 + 10 + 17)/3/17 gives 3, down.
    found = pod_replicas(20, 2, 2, 0, 1, 17, 0.1)

    assert found == 2


@pytest.mark.parametrize(
    ("levels", "target", "tolerance", "expected"),
    [
        ((20, 21, 21), 20, 0.01, 4),
        ((909, 1010, 1111), 1000, 0.0, 4),
        ((1890, 1910, 1900), 1000, 2.0, 3),
        ((1100, 1080, 1090), 1000, 0.08, 4),
        ((660, 640, 650), 1000, 0.36, 3),
        ((660, 640, 650), 1000, 0.34, 2),
    ],
)
def test_the_tolerance_is_what_is_given(levels, target, tolerance, expected):
    found = pod_replicas(sum(levels), 3, 3, 0, 0, target, tolerance)

    assert found == expected


def test_without_a_metric_of_any_pod_nothing_changes():
    assert pod_replicas(0, 4, 0, 4, 0, 15, 0.1) == 4


@pytest.mark.parametrize(
    ("total", "current", "target", "tolerance", "expected"),
    [
        (8.6, 3, 2.15, 0.1, 4),
        (8.6, 5, 2.867, 0.1, 3),
        (8.6, 3, 2.9, 0.1, 3),
        (8.6, 3, 2.8, 0.01, 4),
        (20, 0, 5, 0.1, 4),
        (0, 0, 5, 0.1, 0),
        (20, 3, 5, 0.1, 4),
        (6, 5, 2, 0.1, 3),
        (20.166, 4, 5, 0.1, 4),
        (20.208, 4, 5, 0.01, 5),
    ],
)
def test_the_count_by_an_external_metric(total, current, target, tolerance, expected):
    assert external_replicas(total, current, target, tolerance) == expected


def before(*changes):
    """Return changes some seconds ago; 42 more lie just outside of any period here."""
    return [(-121.0, 42), *((-10.0 * i, change) for i, change in enumerate(changes))]


@pytest.mark.parametrize(
    ("pods", "percent", "period_s", "changes", "current", "most"),
    [
        (4, 100, 15, (), 10, 20),
        (100, 100, 15, (), 10, 110),
        (2, 100, 15, (), 10, 20),
        (30, 0, 15, (), 10, 40),
        (0, 200, 15, (), 10, 30),
        (4, 100, 60, (1, 2, 3, 4, 5), 100, 170),  # (100 - 15) + 100 %
        (150, 0, 120, (1, 5, 9), 100, 235),
        (0, 200, 120, (1, 5, 9), 100, 255),
        (5, 0, 120, (1, 5, 9), 100, 100),  # not below what there is
        (0, 0, 120, (), 100, 100),  # no policy: switched off
    ],
)
def test_the_limit_upwards(pods, percent, period_s, changes, current, most):
    behavior = DEFAULT._replace(
        up_pods=pods, up_percent=percent, up_period_s=float(period_s)
    )

    assert up_limit(behavior, before(*changes), 0.0, current) == most


@pytest.mark.parametrize(
    ("pods", "percent", "period_s", "changes", "current", "least"),
    [
        (0, 100, 15, (), 10, 0),
        (5, 0, 15, (), 10, 5),
        (0, 50, 15, (), 10, 5),
        (5, 0, 120, (-1, -5, -9), 100, 100),  # 100 + 15 - 5 is above what there is
        (0, 50, 120, (-2, -4, -6), 100, 56),
        (0, 10, 120, (-10, -10, -10), 100, 100),
        (115, 0, 120, (-1, -5, -9), 100, 0),
        (130, 0, 120, (-1, -5, -9), 100, -15),
    ],
)
def test_the_limit_downwards(pods, percent, period_s, changes, current, least):
    behavior = DEFAULT._replace(
        down_pods=pods, down_percent=percent, down_period_s=float(period_s)
    )

    assert down_limit(behavior, before(*changes), 0.0, current) == least


@pytest.mark.parametrize(
    ("case", "past", "current", "desired", "up_s", "down_s", "expected"),
    [
        ("empty", (), 100, 5, 0, 300, 5),
        ("down stabilized", ((4, 2), (5, 1)), 100, 3, 0, 300, 5),
        ("up stabilized", ((4, 2), (5, 1)), 1, 7, 150, 300, 4),
        ("not stabilized", ((1, 2), (2, 1)), 100, 3, 0, 300, 3),
        ("not stabilized", ((4, 2), (5, 1)), 1, 3, 150, 300, 3),
        ("too old", ((10, 10), (9, 9)), 100, 3, 0, 300, 3),
        ("too old", ((10, 10), (9, 9)), 1, 100, 60, 300, 100),
        ("some too old", ((10, 10), (9, 9), (5, 2), (4, 1)), 100, 3, 0, 150, 5),
        ("some too old", ((9, 3), (5, 2), (6, 1)), 1, 100, 150, 300, 5),
    ],
)
def test_windows_take_the_highest_or_lowest_recommendation(
    case, past, current, desired, up_s, down_s, expected
):
    behavior = DEFAULT._replace(
        up_window_s=up_s, down_window_s=down_s, up_percent=1e6, down_percent=100.0
    )
    normalize = normalizer(behavior, 1, 1000)
    for count, minutes_ago in past:  # each one as it was wanted and set
        normalize(-minutes_ago * MINUTE, count, count)

    # The first recommendation of all is the count that there was.
    found = normalize(0.0, current, desired) if past else desired

    assert found == expected, case


def test_the_count_at_the_start_is_the_first_recommendation():
    normalize = normalizer(DEFAULT, 1, 1000)

    found = [normalize(now_s, 100, 5) for now_s in (0.0, 285.0, 300.0)]

    assert found == [100, 100, 5]


@pytest.mark.parametrize(
    ("current", "desired", "least", "most", "expected"),
    [(5, 7, 3, 8, 7), (3, 1, 2, 8, 2), (20, 1000, 1, 10, 10), (1, 9, 4, 10, 4)],
)
def test_bounds_hold_whatever_is_desired(current, desired, least, most, expected):
    normalize = normalizer(DEFAULT._replace(down_window_s=0.0), least, most)

    assert normalize(0.0, current, desired) == expected
