"""Llumnix's band of freeness, worked by hand."""

import pytest

from tests.simulator.autoscalers.views import counts, decider, view

LATER_S = 120.0


def wanted(given="llumnix", **seen):
    return counts(given, [view(now_s=LATER_S, total_blocks=100, **seen)])[0]


@pytest.mark.parametrize(
    ("ready", "used", "running", "expected"),
    [
        (2, 178, 20, 4),  # 1.1 blocks a request; 6.1 with 3 replicas and 11.1 with 4
        (2, 15, 2, 2),  # 42.5 without the last
        (3, 15, 3, 2),  # 61.7 without the last
        (2, 100, 10, 2),  # exactly 10
        (2, 101, 10, 3),
        (3, 80, 2, 3),  # exactly 60
        (3, 79, 2, 2),
        (2, 0, 0, 1),
        (1, 0, 0, 1),
        (16, 1600, 900, 16),
    ],
)
def test_the_fleet_is_kept_in_the_band(ready, used, running, expected):
    per_replica = [running // ready + (i < running % ready) for i in range(ready)]

    assert wanted(ready=ready, kv_share=used / 100 / ready, running=per_replica) == (
        expected
    )


def test_a_request_that_waits_counts_with_what_it_demands():
    # 60 free and 5 running, and one of 30 blocks waits: (60 - 30)/6 is 5 blocks.
    seen = {"ready": 1, "kv_share": 0.4, "running": 5}

    alone = wanted(**seen)
    waits = wanted(**seen, waiting=1, freeness=30 / 6)

    assert (alone, waits) == (1, 2)


def test_nothing_in_the_first_110_s():
    seen = view(2, kv_share=0.99, running=50, total_blocks=100)

    found = counts("llumnix", [seen._replace(now_s=t) for t in (100.0, 110.0, 110.1)])

    # 2 blocks free for 100 requests: 998 are lacking.
    assert found == [2, 2, 12]


def test_one_change_of_a_kind_at_a_time():
    busy = {"kv_share": 0.99, "running": 50, "total_blocks": 100, "now_s": LATER_S}
    idle = {"total_blocks": 100, "now_s": LATER_S}

    assert counts("llumnix", [view(2, 1, **busy)]) == [3]
    assert counts("llumnix", [view(3, draining=1, **idle)]) == [3]
    # A wish to grow takes back the one that drains.
    assert counts("llumnix", [view(2, draining=1, **busy)]) == [3]


def test_a_band_of_its_own():
    assert wanted("llumnix:up=5,down=55", ready=2, kv_share=0.89, running=10) == 3
    assert wanted("llumnix:up=1,down=30", ready=2, kv_share=0.075, running=1) == 1


def test_without_a_replica_that_is_ready_nothing_changes():
    decide = decider("llumnix")

    assert [decide(view(2)), decide(view(0, now_s=LATER_S, held=9))] == [2, 2]
