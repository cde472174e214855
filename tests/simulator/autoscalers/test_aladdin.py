"""Aladdin's Eq. 7 at change points, worked by hand."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.simulator.autoscalers import Known
from capplan.simulator.autoscalers.aladdin import Arrivals, has_changed
from tests.simulator.autoscalers.views import Instant, counts, view


def fleet(given="aladdin", replicas=1, known=None):
    return Instant(given, replicas, 10.0, *([known] if known else []))


@pytest.mark.parametrize(
    ("count", "expected", "changed"),
    [
        (140, 100, False),
        (141, 100, True),
        (60, 100, False),
        (59, 100, True),
        (1, 0, True),
        (0, 0, False),
        (0, 16, False),
        (0, 17, True),
    ],
)
def test_four_standard_deviations_of_a_poisson_count(count, expected, changed):
    assert has_changed(count, expected, 4.0) == changed


def test_workers_are_on_a_line():
    # 5, then 15 requests/s: ⌈0.7 * rate - 0.38⌉ are 4 and 11.
    line = fleet("aladdin:k5=0.7,c5=-0.38", 2, Known())

    assert line.ticks(6, arrived=50) == [2, 2, 4, 4, 4, 4]
    # 450 in 70 s are 193 in 30 s, and 250 came: 4.1 standard deviations; 8.3/s.
    assert line.ticks(1, arrived=150) == [6]
    # 350 where 10/s are 300; then 450 where 550 in 50 s are 330: 15/s.
    assert line.ticks(4, arrived=150) == [6, 11, 11, 11]


def test_the_rate_of_a_replica_is_the_slope_by_default():
    assert fleet().ticks(3, arrived=61) == [1, 1, 4]
    with pytest.raises(InputError, match=r"aladdin:rate=4.2, or k5 .* aladdin:k5="):
        counts("aladdin", [view()], Known())


def test_noise_is_no_change():
    draws = np.random.default_rng(3).poisson(100, 2000)
    noisy = fleet()

    found = [noisy.tick(arrived=int(n)) for n in draws]

    assert len(set(found[3:])) == 1


def test_a_fall_is_seen_where_few_requests_come():
    # 0.1/s: 3 are expected in 30 s, and that none comes is not far enough from that.
    # 64 are expected in 640 s + 3.2 s for each of k ticks without any, since they lower
    # the mean of the 2000 s before. Fewer than 32 came where 640 + 3.2 k - 10 k < 320.
    quiet = fleet("aladdin:k5=20")
    steady = quiet.ticks(200, arrived=1)

    fall = quiet.ticks(60, arrived=0)

    assert set(steady[3:]) == {2}
    assert fall == 47 * [2] + 13 * [1]


def test_a_rate_below_the_least_counts_as_the_least():
    assert fleet("aladdin:least_rate=7").ticks(3, arrived=10)[-1] == 4


def test_arrivals_are_counted_between_ticks_only():
    arrivals = Arrivals()
    for tick in range(2000):
        arrivals.add(10.0 * tick, 10.0, tick)

    assert arrivals.since(19_990.0 - 30.0) == (1999 + 1998 + 1997, 30.0)
    assert arrivals.since(19_990.0 - 25.0) == (1999 + 1998 + 1997, 30.0)
    assert len(arrivals._at_s) < 1500
