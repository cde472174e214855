"""Losses of replicas as they are asked for, and the changes that they make."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.deployment.changes import (
    MONTH_S,
    Absence,
    Change,
    busiest_s,
    interruptions,
    outage,
    parse_absence,
    parse_loss_per_month,
    rolling_update,
)
from capplan.errors import InputError

ARRIVALS = np.array([10.0, 12.0, 20.0, 21.0, 22.0, 40.0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2@peak:4h", Absence(2, None, 14400.0)),
        ("1@90min:10min", Absence(1, 5400.0, 600.0)),
        ("3@0s:1s", Absence(3, 0.0, 1.0)),
        ("peak:5s", Absence(1, None, 5.0)),
        ("10m", Absence(1, None, 600.0)),
        ("1node@peak:4h", Absence(1, None, 14400.0, True)),
        ("2nodes@1h:5s", Absence(2, 3600.0, 5.0, True)),
    ],
)
def test_an_absence_has_a_count_a_time_and_a_duration(text, expected):
    assert parse_absence(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected N@peak:TIME"),
        ("x", "'x' is not a duration"),
        ("2@peak", "'peak' is not a duration"),
        ("2@peak:", "expected N@peak:TIME"),
        ("2@noon:1h", "'noon' is not a duration"),
        ("0@peak:1h", "takes no replica"),
        ("1@peak:0s", "not positive"),
        ("1@-1s:1s", "not positive"),
        ("1.5@peak:1h", "expected N@peak:TIME"),
        ("1@1h:2h:3h", "expected N@peak:TIME"),
    ],
)
def test_a_wrong_absence_is_refused_with_its_form(text, why):
    with pytest.raises(InputError, match=why):
        parse_absence(text)


def test_the_busiest_time_begins_with_the_arrival_before_most_others():
    assert busiest_s(ARRIVALS, 3.0) == 20.0
    assert busiest_s(ARRIVALS, 1.0) == 10.0  # of equals the first: one in 1 s each
    assert busiest_s(ARRIVALS, 100.0) == 10.0


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=20).map(sorted),
    st.integers(1, 30),
)
def test_the_busiest_time_is_that_of_every_begin(moments, duration):
    arrival_s = np.array(moments, float)
    counts = {
        begin: sum(begin <= moment < begin + duration for moment in moments)
        for begin in moments
    }

    found = busiest_s(arrival_s, duration)

    assert counts[int(found)] == max(counts.values())


def test_an_outage_is_of_the_newest_and_ends_where_others_come():
    absence = Absence(2, 5.0, 60.0)

    assert outage(absence, ARRIVALS, comes_back=True) == (
        Change(15.0, "fail", 2),
        Change(75.0, "up", 2),
    )
    assert outage(absence, ARRIVALS, comes_back=False) == (Change(15.0, "fail", 2),)


def test_a_rolling_update_renews_all_some_at_a_time():
    changes = rolling_update(Absence(2, 0.0, 10.0), ARRIVALS, 5)

    assert [(c.at_s, c.kind, c.count) for c in changes] == [
        (10.0, "renew", 2),
        (20.0, "up", 2),
        (20.0, "renew", 2),
        (30.0, "up", 2),
        (30.0, "renew", 1),
        (40.0, "up", 1),
    ]


def test_a_share_a_month_is_read():
    assert parse_loss_per_month("15%/month") == 0.15
    assert parse_loss_per_month("0.5 %/month") == 0.005
    for text in ("15", "15%", "0%/month", "-1%/month", "1.2.3%/month", "x%/month"):
        with pytest.raises(InputError, match="15%/month"):
            parse_loss_per_month(text)


@given(st.integers(0, 2**32), st.integers(1, 4), st.floats(1.0, 1e6))
def test_no_more_replicas_are_interrupted_than_are_there(seed, count, back_after_s):
    arrival_s = np.array([0.0, MONTH_S])
    rng = np.random.default_rng(seed)

    changes = interruptions(4.0, arrival_s, count, back_after_s, rng)

    there = count
    ordered = sorted(changes, key=lambda change: change.at_s)  # as a fleet does
    for change in ordered:
        there += change.count if change.kind == "up" else -change.count
        assert 0 <= there <= count
    assert all(0 <= c.at_s < MONTH_S for c in changes if c.kind == "fail")


@pytest.mark.parametrize("others_decide", [False, True])
def test_interruptions_come_as_often_as_asked(others_decide):
    # 15 a month of each of 8 replicas that are back at once: 120 a month.
    back_after_s = None if others_decide else 1e-6
    counts = [
        sum(
            change.kind == "fail"
            for change in interruptions(
                15.0,
                np.array([0.0, MONTH_S]),
                8,
                back_after_s,
                np.random.default_rng(seed),
            )
        )
        for seed in range(200)
    ]

    assert np.mean(counts) == pytest.approx(120, abs=4 * np.sqrt(120 / 200))
    assert np.var(counts) == pytest.approx(120, rel=0.5)
