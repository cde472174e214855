"""The chart under a plan's tiles: the day's traffic against what the fleet carries."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.planning.load.traffic_over_time import Traffic
from capplan.planning.load.worst_windows import TimeWindow
from capplan.planning.plan.throughput import WITHIN_SLO, Throughput
from capplan.report.charts.day import Day, Level, _figure, _own, _places, day_figure

HOUR_S = 3600.0


@pytest.fixture(name="steady")
def steady_of(plan):
    """Return a plan without times of its own: its fleet sustains 120 % of the rate."""
    could = Throughput(WITHIN_SLO, 1.2 * plan.rate_per_s, 1.0, 1.0, 1 / 1.2)
    return replace(plan, throughput=(could,), traffic=None, peak=None)


def texts_of(figure):
    return re.findall(r'<u class="(?:tag|tag yours|)"[^>]*>([^<]*)', figure.svg)


def test_the_title_is_the_finding_and_the_line_says_what_is_carried(steady):
    figure = day_figure(steady)

    assert figure.title.startswith("3 GPUs carry the day")
    assert f"3 GPUs carry {1.2 * steady.rate_per_s:.3g}" in texts_of(figure)


def test_assumed_hours_say_so_and_have_the_peak_that_was_asked_for(steady):
    figure = day_figure(steady)

    assert (
        "The hours are assumed (a typical week); the peak is yours." in figure.caption
    )
    assert f"your traffic, {steady.rate_per_s:.3g} at the peak" in texts_of(figure)


def test_a_slow_engine_is_named_where_the_low_end_does_not_carry_the_peak(steady):
    best = steady.best
    low, high = best.capacity_ratio
    could = steady.throughput[0]
    tight = replace(could, rate_per_s=steady.rate_per_s * 1.01)
    roomy = replace(could, rate_per_s=steady.rate_per_s * 1.01 / low)

    slow = day_figure(replace(steady, throughput=(tight,)))
    fast = day_figure(replace(steady, throughput=(roomy,)))

    assert low < 0.99
    assert high > 1
    assert slow.title == "3 GPUs carry the day; with a slow engine they would not"
    assert fast.title == "3 GPUs carry the day"
    assert 'class="band"' in slow.svg


def test_no_band_is_drawn_where_no_engine_was_measured(steady):
    bare = SimpleNamespace(**vars(steady.best), gpu_count=1, engine_fleets=None)
    bare.capacity_ratio, bare.sweep_count = (0.5, 2.0), 3

    figure = day_figure(replace(steady, best=bare))

    assert figure.title == "1 GPU carries the day"
    assert 'class="band"' not in figure.svg
    assert "tested" not in figure.svg


def test_where_no_rate_is_known_the_counts_tried_stand_in_its_place(plan, infeasible):
    assert day_figure(plan).title == "3 GPUs are enough"
    assert day_figure(infeasible) is None


@pytest.fixture(name="week")
def week_of():
    """A log of 50 hours from 22:30 on, by the half hour, busiest on its second day."""
    starts = np.arange(100) * HOUR_S / 2
    rates = np.full(100, 5.0)
    rates[40] = 9.0  # at 18:30 on the day that begins 1.5 h after the first request
    traffic = Traffic(HOUR_S / 2, starts, rates, rates, rates)
    peak = TimeWindow(
        HOUR_S, 19.5 * HOUR_S, 20.5 * HOUR_S, 7.0, 1.0, 0.99, (), meets=True,
        starts_at="2026-11-24T18:00", ends_at="2026-11-24T19:00",
    )  # fmt: skip
    return SimpleNamespace(traffic=traffic, peak=peak, duration_s=50 * HOUR_S)


def test_of_a_log_its_busiest_day_is_drawn_by_its_clock(week):
    day = _own(week)

    assert day.told.endswith("on the busiest day, by the clock of your log.")
    assert day.at_s[0] == 0
    assert day.at_s[-1] == 24 * HOUR_S
    assert day.at_s[np.argmax(day.rate_per_s)] == 18.5 * HOUR_S


def test_without_a_clock_the_day_is_counted_from_the_first_request(week):
    day = _own(SimpleNamespace(**{**vars(week), "peak": None}))

    assert day.told.endswith("on the busiest day, from the first on.")
    assert day.at_s[np.argmax(day.rate_per_s)] == 20 * HOUR_S


def test_a_log_of_less_than_a_day_is_drawn_whole(plan):
    day = _own(plan)

    assert day.ends_s == pytest.approx(plan.duration_s)
    assert len(day.at_s) == len(plan.traffic.rate_per_s) + 1


@settings(deadline=None)
@given(
    line=st.floats(1, 1000),
    low=st.floats(0.3, 1),
    high=st.floats(1, 3),
    peak=st.floats(0.1, 1500),
    least=st.floats(0, 1),
)
def test_no_label_crosses_a_line_or_another_label(line, low, high, peak, least):
    most = 1.14 * max(peak, line * high)
    lines = [1 - each / most for each in (line, high * line, low * line)]
    top, bottom = 1 - peak / most, 1 - least * peak / most

    places = [at for at in _places(lines, top, bottom) if at is not None]

    for at in places:
        assert 0 <= at <= 0.91 + 1e-9
        assert not any(at < each < at + 0.09 for each in lines)
        assert at >= bottom - 1e-9 or at + 0.09 <= top + 1e-9
    assert all(abs(a - b) > 0.0899 for a in places for b in places if a is not b)


def test_a_text_without_a_place_stands_in_the_legend_and_all_are_escaped():
    day = Day(
        np.array([0, HOUR_S, 2 * HOUR_S]), np.array([0.0, 9.0]), 7200.0, "", "<b>"
    )

    figure = _figure("t", day, Level(10.0, "<i>"))

    assert [text for text, _ in figure.legend] == ["your traffic, 9 <b>"]
    assert "<b>" not in figure.svg
    assert "&lt;i&gt;" in figure.svg
