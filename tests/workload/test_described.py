"""One line says what was read of a trace."""

import warnings

import numpy as np
import pytest

from capplan.errors import TraceWarning
from capplan.workload.described import Tally, described
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import iterate_trace
from capplan.workload.trace import Trace

DAY = np.sort(np.random.default_rng(3).uniform(0, 86_400, 5_000))
BEGIN_S = 1_789_344_000.0  # 2026-09-14 00:00


def trace(arrival_s, **more):
    count = len(arrival_s)
    return Trace(np.full(count, 5), np.full(count, 7), arrival_s, **more)


def test_a_day_has_its_peak_hour_by_the_clock_of_its_log():
    busy = np.sort(np.concatenate([DAY, np.linspace(14, 15, 39_000) * 3600]))

    text = described(trace(busy, clock_s=BEGIN_S))

    assert text.startswith("44,000 requests over 24 h (0.509/s) of 5/7 tokens")
    assert "peak hour 10.9/s at 14:00" in text


def test_a_week_names_the_day_of_its_peak_and_no_clock_counts_from_the_first():
    week = np.concatenate([DAY + 86_400 * day for day in range(7)])
    week = np.sort(np.append(week, np.linspace(75.0, 75.9, 900) * 3600))

    assert "at Thu 2026-09-17 03:00" in described(trace(week, clock_s=BEGIN_S))
    assert "from 75 h on" in described(trace(week))
    assert "/s at the start, 1 class" in described(trace(np.array([0.0, 9, 9e3])))


def test_classes_sessions_and_what_was_left_out_are_counted():
    text = described(
        trace(
            np.arange(4.0),
            class_names=("chat", "code"),
            request_class=np.array([0, 1, 0, 1]),
            session=np.array([3, 3, 9, -1]),
            left_out={"failed": 3, "of kind tool": 2},
            unread_columns=("user", "spend"),
        )
    )

    assert text == (
        "4 requests over 3 s (1/s) of 5/7 tokens, 5 left out (3 failed, 2 of kind "
        "tool), 2 classes (chat, code), 2 sessions (used by --router session alone); "
        "ignored columns: user, spend"
    )


@pytest.mark.parametrize("zone", ["Z", "+02:00"])
def test_what_is_streamed_is_told_as_what_is_read_whole(tmp_path, zone):
    path = tmp_path / "log.csv"
    rows = "".join(
        f"2026-09-{14 + k // 90}T{k % 24:02}:00:{k % 60:02}{zone},{5 + k},7,"
        f"team{k % 3},s{k // 2},{500 if k % 9 == 0 else 200}\n"
        for k in sorted(range(180), key=lambda k: (k // 90, k % 24, k % 60))
    )
    head = "start_time,prompt_tokens,output_tokens,class,session,status_code\n"
    path.write_text(head + rows)
    tally = Tally()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        whole = described(read_trace(path))
        for _ in iterate_trace(path, 7, tally=tally):
            pass

    assert str(tally) == whole
    assert "20 left out (20 failed), peak hour" in whole
    assert "3 classes (team0, team1, team2), 9" in whole


def test_a_trace_without_times_says_so():
    text = described(Trace(np.array([5]), np.array([7])))

    assert text == "1 request without times of 5/7 tokens, 1 class, no sessions"
