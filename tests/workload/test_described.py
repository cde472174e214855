"""One line says what was read of a trace."""

import numpy as np

from capplan.workload.described import described
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


def test_classes_sessions_and_what_was_left_out_are_counted():
    text = described(
        trace(
            np.arange(4.0),
            class_names=("chat", "code"),
            request_class=np.array([0, 1, 0, 1]),
            session=np.array([3, 3, 9, -1]),
            left_out=(2, 3),
            unread_columns=("user", "spend"),
        )
    )

    assert text == (
        "4 requests over 3 s (1/s) of 5/7 tokens, 3 failed (left out), 2 rows that are "
        "no requests (left out), 2 classes (chat, code), 2 sessions (read by --router "
        "session alone); columns not read: user, spend"
    )


def test_a_trace_without_times_says_so():
    text = described(Trace(np.array([5]), np.array([7])))

    assert text == "1 request without times of 5/7 tokens, 1 class, no sessions"
