"""Charts of latencies and of the fleet over time, with coordinates by hand."""

import math
import re

import numpy as np
import pytest

from capplan.report.charts.fleet import Curve, digits, fleet_figures, latency_figures
from capplan.report.charts.svg_chart import COLOURS
from capplan.simulator.results.times import Series

LEVELS = np.array([0.0, 0.5, 1.0])
FULL_PX, LEFT_PX = 408, 58  # width of the plot and its left end


def curve(values_s, label="A"):
    values_s = np.array(values_s, float)
    return Curve(label, LEVELS, {"ttft": values_s, "tpot": None})


def series(start_s, **columns):
    zeros = np.zeros(len(start_s))
    shares = dict.fromkeys(
        ("busy_share", "batch_requests", "waiting_requests", "kv_share", "preemptions"),
        zeros,
    )
    return Series(start_s=np.array(start_s, float), **{**shares, **columns})


def path(figure, name="line"):
    return re.findall(f'class="{name}"[^>]* d="([^"]*)"', figure.svg)


def test_a_distribution_goes_from_share_0_to_1_over_its_values():
    (figure,) = latency_figures([curve([1.0, 1.5, 2.0])], None, {})

    # The axis goes from 1 / 1.1 to 2 * 1.15 s: less than threefold, so linear.
    low, high = 1 / 1.1, 2.3
    x = [LEFT_PX + FULL_PX * (v - low) / (high - low) for v in (1.0, 1.5, 2.0)]
    assert figure.title == "Time to first token"
    assert path(figure) == [f"M{x[0]:.1f} 236.0L{x[1]:.1f} 124.0L{x[2]:.1f} 12.0"]
    assert figure.legend == ()


def test_values_far_apart_are_on_a_log_axis_with_the_slo_on_it():
    (figure,) = latency_figures([curve([0.1, 0.2, 0.4])], 0.99, {"ttft": 1.0})

    # The SLO of 1 s lengthens the axis: 0.1 / 1.1 to 1.15 s.
    ends = math.log(1.15 * 1.1 / 0.1)
    first_px = LEFT_PX + FULL_PX * math.log(1.1) / ends
    slo_px = LEFT_PX + FULL_PX * math.log(1.1 / 0.1) / ends
    assert path(figure)[0].startswith(f"M{first_px:.1f} 236.0L")
    assert f"M{slo_px:.1f} 12V236" in path(figure, "rule")
    assert [label for label, _ in figure.legend] == ["asked 99 %", "SLO 1 s"]


def test_an_infinite_limit_is_no_rule():
    (figure,) = latency_figures([curve([1, 2, 3])], None, {"ttft": math.inf})

    assert path(figure, "rule") == []


def test_several_curves_have_a_legend_in_their_colours():
    curves = [curve([1, 2, 3], "A"), curve([2, 3, 4], "B")]

    (figure,) = latency_figures(curves, None, {})

    labels, colours = zip(*figure.legend, strict=True)
    assert labels == ("A", "B")
    for wanted, found in zip(COLOURS[:2], colours, strict=True):
        assert wanted in found


@pytest.mark.parametrize("values", [[np.nan] * 3, [np.inf] * 3, [0, 0, 0]])
def test_a_metric_without_values_has_no_chart(values):
    assert latency_figures([curve(values)], 0.99, {"ttft": 1.0}) == []


def test_the_fleet_over_less_than_two_bins_has_no_chart():
    assert fleet_figures(series([0.0])) == []


def test_utilisation_is_drawn_from_share_0_to_1():
    busy = np.array([0.0, 1.0, 0.5])

    use, _ = fleet_figures(series([0, 100, 200], busy_share=busy))

    assert path(use)[0] == "M58.0 236.0L262.0 12.0L466.0 124.0"
    assert [label for label, _ in use.legend] == ["busy", "KV blocks in use"]


def test_requests_are_drawn_up_to_the_most_running_or_waiting():
    waiting = np.array([0.0, 50.0])

    _, requests = fleet_figures(series([0, 100], waiting_requests=waiting))

    top_px = 236 - 224 / 1.08  # eight percent are left above
    assert path(requests)[1] == f"M58.0 236.0L466.0 {top_px:.1f}"


def test_preemptions_have_a_chart_only_where_there_were_any():
    preemptions = np.array([0.0, 2.0, np.nan])

    figures = fleet_figures(series([0, 10, 20], preemptions=preemptions))

    assert [figure.title for figure in figures][-1] == "Preemptions over time"
    assert figures[-1].caption == "2 in total."
    assert len(fleet_figures(series([0, 10, 20]))) == 2


@pytest.mark.parametrize(
    ("last_s", "unit", "last_tick"),
    [
        (600, "s", "600"),
        (601, "min", "10"),
        (7200, "min", "100"),
        (7201, "h", "2"),
        (36_000, "h", "10"),
    ],
)
def test_time_is_in_the_unit_of_its_length(last_s, unit, last_tick):
    use, _ = fleet_figures(series([0, last_s]))

    label = re.search('aria-label="([^"]*)"', use.svg)[1]
    ticks = re.findall('text-anchor="middle">([^<]*)</text><', use.svg)
    assert label == f"share against time since the first arrival, {unit}"
    assert last_tick in ticks


def test_ticks_have_no_exponent():
    assert [digits(value) for value in (0.5, 12.5, 10_000, 2e6)] == [
        *("0.5", "12.5", "10,000", "2,000,000")
    ]
