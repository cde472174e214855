"""llm-d's WVA, both versions: its own test cases, and its HPA worked by hand.

Figures of internal/saturation/analyzer_test.go, internal/engines/analyzers/
saturation_v2/analyzer_test.go and internal/engines/pipeline/
cost_aware_optimizer_test.go of llm-d-workload-variant-autoscaler b08b1c77.
"""

import numpy as np
import pytest

from capplan.simulator.autoscalers import Known, parse_autoscaler
from capplan.simulator.autoscalers.lengths import Lengths
from capplan.simulator.autoscalers.variants import Peak, peaks
from capplan.simulator.autoscalers.wva import step
from capplan.simulator.autoscalers.wva_v2 import (
    capacities,
    change,
    demand_tokens,
    derived_capacity,
)
from tests.simulator.autoscalers.views import KNOWN, Instant, counts, view

V1 = parse_autoscaler("wva").settings
V2 = parse_autoscaler("wva-v2").settings
SHORT = Lengths(100.0, 50.0)


def peak(kv_share, waiting):
    return Peak(np.array(kv_share, float), np.array(waiting, int))


@pytest.mark.parametrize(
    ("kv_share", "waiting", "expected"),
    [
        ((0.75, 0.76), (2, 2), 1),  # 0.045 of the KV to spare
        ((0.50, 0.50), (3, 3), 1),  # 2 places in the queue
        ((0.50, 0.50), (1, 1), 0),  # healthy, but 0.5 * 2 is too much for one
        ((0.20, 0.30, 0.25), (1, 1, 1), -1),
        ((0.70, 0.75), (2, 2), 1),
        ((0.50,), (2,), 0),  # one alone is never closed
        ((0.85, 0.50, 0.90), (2, 6, 7), 1),  # all saturated: nothing to spare
        ((0.85, 0.50, 0.60), (2, 6, 2), 0),  # the third one is not: 0.2 and 3
        ((), (), 0),
    ],
)
def test_v1_goes_by_what_those_not_saturated_have_to_spare(kv_share, waiting, expected):
    assert step(peak(kv_share, waiting), V1) == expected


def test_a_peak_is_of_the_last_minute_and_of_the_same_replica():
    peak_of = peaks()
    seen = [
        peak_of(view(3, now_s=0.0, kv_share=(0.1, 0.9, 0.2), waiting=(0, 3, 0))),
        peak_of(view(1, now_s=15.0, kv_share=0.3)),
        peak_of(view(3, now_s=45.0, kv_share=0.25)),
        peak_of(view(3, now_s=60.0, kv_share=0.2)),
        peak_of(view(3, now_s=75.0, kv_share=0.2)),
    ]

    # The second and third of 45 s are others than those of the start.
    assert seen[2].kv_share.tolist() == [0.3, 0.25, 0.25]
    assert seen[3].kv_share.tolist() == [0.3, 0.25, 0.25]
    assert seen[4].kv_share.tolist() == [0.25, 0.25, 0.25]
    assert seen[0].waiting.tolist() == [0, 3, 0]


def test_v1_adds_one_after_the_window_of_its_hpa():
    fleet = Instant("wva", 2)

    up = fleet.ticks(34, kv_share=0.75)

    # Published at 0 s; the window upwards holds the 2 of the start until 240 s. Then
    # the new replica reports at 255 s, and the next decision is that of 300 s.
    assert up == 16 * [2] + 18 * [3]


def test_v1_decides_nothing_while_replicas_start():
    quick = "wva:up_window=0s,down_window=0s"
    seen = [
        view(2, now_s=0.0, kv_share=0.75),
        view(2, 1, now_s=60.0, kv_share=0.99),
        view(2, 1, now_s=120.0, kv_share=0.99),
        view(3, now_s=240.0, kv_share=0.75),
        view(3, 1, now_s=300.0, kv_share=0.1),
    ]

    assert counts(quick, seen) == [3, 3, 3, 4, 4]


def test_v1_never_leaves_ten_replicas_but_without_a_tolerance():
    quick = "wva:up_window=0s,down_window=0s"
    up = {"kv_share": 0.75}
    down = {"kv_share": 0.01}

    def after(given, **seen):
        return Instant(given, 10).ticks(60, **seen)[-1]

    # 11/10 and 9/10 are within 10 %.
    assert after(quick, **up) == after(quick, **down) == 10
    assert after(f"{quick},tolerance=0", **up) == 25  # one each minute
    assert after(f"{quick},tolerance=0", **down) == 1


def test_v1_publishes_nothing_beyond_its_bounds():
    fleet = Instant("wva:max=3,up_window=0s,down_window=0s", 3)

    assert fleet.ticks(8, kv_share=0.75) == 8 * [3]
    assert fleet.ticks(20, kv_share=0.01)[-1] == 1


@pytest.mark.parametrize(
    ("budget", "seats", "lengths", "expected"),
    [
        (4096, 256, (500, 100), 140_800),
        (8192, 64, (100, 200), 12_800),
        (600, 256, (500, 100), 55_000),  # 100 seats that the budget keeps busy
        (8192, 256, (500, 0), 0),
        (0, 0, (500, 100), 0),
    ],
)
def test_v2_derives_a_capacity_from_the_engine(budget, seats, lengths, expected):
    assert derived_capacity(budget, seats, Lengths(*lengths)) == expected


def test_v2_holds_the_smaller_of_memory_and_what_it_saw_or_derives():
    tokens = 16_000  # of KV; 12,800 are k1
    capacity = capacities(V2, Known())

    alone = capacity(peak([5 / 16], [0]), tokens, SHORT)
    queued = capacity(peak([8 / 16], [6]), tokens, SHORT)
    later = capacity(peak([6 / 16], [2]), tokens, SHORT)
    other_class = capacity(peak([6 / 16], [2]), tokens, Lengths(100.0, 600.0))
    derived = capacities(V2, KNOWN)(peak([5 / 16], [2]), tokens, Lengths(500.0, 100.0))

    assert alone.tolist() == [12_800]
    assert queued.tolist() == later.tolist() == [8_000]
    assert other_class.tolist() == [12_800]
    assert derived.tolist() == [12_800]  # k2 is 140,800


def test_v2_remembers_the_last_ten_saturations():
    capacity = capacities(V2, Known())
    for used in (1_000, *10 * [8_000]):
        capacity(peak([used / 16_000], [6]), 16_000, SHORT)

    assert capacity(peak([0.1], [0]), 16_000, SHORT).tolist() == [8_000]


def test_v2_demands_what_is_used_queued_and_held():
    seen = view(1, kv_share=5 / 16, held=10)

    without = demand_tokens(seen._replace(held=0), peak([5 / 16], [0]), 16_000, SHORT)
    held = demand_tokens(seen, peak([5 / 16], [0]), 16_000, SHORT)
    queued = demand_tokens(seen._replace(held=0), peak([5 / 16], [3]), 16_000, SHORT)

    assert (without, held, queued) == (5_000, 6_500, 5_300)


@pytest.mark.parametrize(
    ("demand", "ready", "current", "expected"),
    [
        (11_300, 1, 1, 1),  # 13,294 are required of 12,800
        (10_000, 1, 1, 0),  # 0.78 of the capacity is between 0.70 and 0.85
        (2_000, 2, 2, -1),  # 22,743 to spare, but one stays
        (60_000, 2, 2, 4),  # 70,588 less 25,600 are 3.5
        (60_000, 2, 6, 0),  # those that start count
        (10_000, 3, 5, -1),  # 24,114 to spare of those ready
    ],
)
def test_v2_adds_what_is_lacking_and_takes_what_is_to_spare(
    demand, ready, current, expected
):
    assert change(demand, 12_800, ready, current, 0.85, 0.70) == expected


def test_v2_goes_by_more_than_one():
    quick = "wva-v2:up_window=0s,down_window=0s"
    seen = [
        view(2, now_s=0.0, kv_share=0.79, waiting=4, arrived=50, prompt_tokens=1000),
        view(2, now_s=15.0, kv_share=0.79, waiting=4, arrived=50, prompt_tokens=1000),
    ]

    # 1,000 blocks of 16: 2 * (12,640 + 4,000) tokens are demanded, 12,800 held. 39,152
    # less 25,600 are 1.06 replicas.
    assert counts(quick, seen, Known()) == [4, 4]
