"""Charts of a plan: which there are, and attainment against replicas by hand."""

import re
from dataclasses import replace

import pytest

from capplan.planning.evaluate.judgement import LEVELS
from capplan.report.charts.plan import attainment_figure, figures, tail_figures


def titles(plan):
    return [figure.title for figure in figures(plan)]


def test_a_plan_has_latencies_attainment_and_the_fleet_in_this_order(plan):
    assert titles(plan) == [
        "Time to first token",
        "Time per output token",
        "Arrival to last token",
        "Time to first token: the slowest tenth",
        "Time per output token: the slowest tenth",
        "In time against replicas",
        "Load and KV over time",
        "Requests on a replica over time",
    ]


def test_a_tail_ends_where_a_single_request_would_decide(plan):
    run = plan.best.run

    (found, _) = tail_figures(run, {"ttft": 1.0, "tpot": 0.03})

    (line,) = re.findall(r'<path class="line"[^>]* d="M([^"]*)"', found.svg)
    rest = (1 - LEVELS) * run.judgement.counted_request_count
    most = (1 - 0.9) * run.judgement.counted_request_count
    assert len(line.split("L")) == ((rest >= 1) & (rest <= most)).sum()
    assert tail_figures(run, {}) == []


def test_each_class_has_a_tail_where_it_has_a_limit(classed):
    run = classed.best.run

    found = tail_figures(run, {})

    limited = {metric for row in run.judgement.classes for metric in row.limits_s}
    assert len(found) == len(limited) > 0


def test_an_infeasible_plan_has_no_charts(infeasible):
    assert titles(infeasible) == []


def test_at_most_four_candidates_are_compared(plan, best):
    crowded = replace(plan, candidates=(best,) * 6)

    first = figures(crowded)[0]
    assert first.svg.count('class="line"') == 4


def test_without_simulated_counts_there_is_no_chart_of_them(plan, best):
    bare = replace(plan, best=replace(best, probes=()))

    assert attainment_figure(bare) is None


def test_every_count_is_a_point_filled_where_it_meets_the_slo(plan):
    figure = attainment_figure(plan)

    circles = re.findall(r'<circle cx="([\d.]*)"[^>]*fill="([^"]*)"', figure.svg)
    # 1 to 4 replicas on an axis from 0.5 to 4.5, 408 px wide from 58 px on.
    assert [float(x) for x, _ in circles] == [109.0, 211.0, 313.0, 415.0]
    assert [colour == "#fff" for _, colour in circles] == [True, True, False, False]
    assert [label for label, _ in figure.legend] == ["asked 99 %"]


def test_the_axis_of_attainment_begins_below_the_lowest_interval(plan, best):
    lowest = replace(
        best.probes[0], slo_attainment=0.4123, slo_attainment_interval=(0.4083, 0.42)
    )
    probes = (lowest, best.probes[-1])

    figure = attainment_figure(replace(plan, best=replace(best, probes=probes)))

    # The lowest interval begins at 0.4083; the axis at 95 % of that.
    floor = 0.95 * 0.4083
    top_px = 236 - 224 * (0.4123 - floor) / (1 - floor)
    assert f'cy="{top_px:.1f}"' in figure.svg


@pytest.mark.parametrize(("tp", "unit"), [(1, "1 GPU"), (8, "8 GPUs")])
def test_the_axis_names_the_gpus_of_a_replica(plan, best, tp, unit):
    figure = attainment_figure(replace(plan, best=replace(best, tp=tp)))

    assert f'aria-label="requests in time against replicas of {unit}"' in figure.svg


def test_more_than_eight_counts_have_the_ticks_of_a_linear_axis(plan, best):
    probes = tuple(
        replace(best.probes[-1], replica_count=count) for count in range(1, 31)
    )

    figure = attainment_figure(replace(plan, best=replace(best, probes=probes)))

    ticks = re.findall(r'text-anchor="middle">(\d+)</text>', figure.svg)
    assert ticks == ["10", "20", "30"]
