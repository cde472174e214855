"""Replicas against the rate: the points, the line, and its extrapolations by hand."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from capplan.placement.demand_law import DemandLaw
from capplan.planning.money.cost import cost
from capplan.planning.plan.demand import Demand
from capplan.report.pages.demand import demand_page, demand_values
from capplan.report.render.json_text import json_text
from capplan.report.render.terminal import print_page
from tests.deployments import changed

LAW = DemandLaw(
    workers_per_rate=0.2,
    workers_fixed=0.5,
    workers_per_rate_interval=(0.18, 0.22),
    workers_fixed_interval=(0.0, 1.0),
    linear_from_per_s=10.0,
    residual_workers=0.5,
    confidence=0.95,
)


@pytest.fixture
def demand(best):
    """3, 5, 9 and 17 replicas of 8 GPUs for 10, 20, 40 and 80 requests/s.

    A GPU is $2.49 an hour, a month 730 hours.
    """
    candidates = tuple(
        replace(
            best,
            tp=8,
            run=changed(best.run, count, tp=8),
            configuration=changed(best.run, count, tp=8).configuration,
            cost=cost(changed(best.run, count, tp=8).deployment.pools),
            bound=replace(best.bound, replica_count=count - 1),
        )
        for count in (3, 5, 9, 17)
    )
    rates = (10.0, 20.0, 40.0, 80.0)
    warnings = ("careful", "careful")
    configuration = candidates[-1].run.configuration
    return Demand(configuration, rates, (160.0, 200.0), candidates, LAW, "", warnings)


def printed(demand):
    """Return the printed lines; those of a fact that wraps are one."""
    out = io.StringIO()
    print_page(demand_page(demand), Console(file=out, width=300, highlight=False))
    return [" ".join(line.split()) for line in out.getvalue().splitlines() if line]


def test_every_rate_is_a_row_with_replicas_gpus_bound_and_attainment(demand):
    lines = printed(demand)

    assert lines[0] == (
        "Replicas against requests/s: H100-SXM × TP 8 scheduler vllm-v1"
    )
    assert lines[1].split() == ["requests/s", "replicas", "GPUs", *ENDS]
    assert lines[2].split() == ["10", "3", "24", "16", "100", "%", "$43,625"]
    assert lines[5].split() == ["80", "17", "136", "128", "100", "%", "$247,207"]


ENDS = ["at", "least", "in", "time", "$", "per", "month"]


def test_a_candidate_without_a_bound_shows_a_dash(demand):
    first = replace(demand.candidates[0], bound=None)

    lines = printed(replace(demand, candidates=(first, *demand.candidates[1:])))

    assert lines[2].split() == ["10", "3", "24", "–", "100", "%", "$43,625"]


def test_the_line_has_its_intervals_and_the_largest_residual(demand):
    assert printed(demand)[6] == (
        "Aladdin, Eq. 7 replicas = ⌈0.2 · rate +0.5⌉ from 10 requests/s on; 95 % "
        "intervals: slope 0.18 to 0.22, constant 0 to 1; largest residual 0.5 replicas"
    )


def test_an_extrapolation_has_an_interval_and_far_ones_a_caution(demand):
    twice, far = printed(demand)[7:9]

    # 0.2 · 160 + 0.5 = 32.5; the ends are 0.18 · 160 + 1 and 0.22 · 160 + 0.
    assert twice == (
        "160 requests/s, extrapolated 264 GPUs = 33 replicas × 8 (TP 8), $479,873 per "
        "month; 30 to 36 replicas within the interval of the slope"
    )
    assert far == (
        "200 requests/s, extrapolated 328 GPUs = 41 replicas × 8 (TP 8), $596,206 per "
        "month; 37 to 44 replicas within the interval of the slope; 2.5 times the "
        "highest simulated rate: simulate this rate too"
    )


def test_counts_without_a_line_say_why_and_extrapolate_nothing(demand):
    without = replace(demand, law=None, no_law="workers are on no line")

    lines = printed(without)

    assert lines[6] == "no line through these counts workers are on no line"
    assert lines[7:] == ["warning: careful"]


def test_the_file_holds_points_line_and_extrapolations(demand):
    document = json.loads(json_text(demand_values(demand)))

    assert document["schema"] == "capplan.demand/2"
    assert document["points"][1] == {
        "rate_per_s": 20.0,
        "replica_count": 5,
        "gpu_count": 40,
        "lower_bound_gpu_count": 32,
        "slo_attainment": 1.0,
        "usd_per_h": pytest.approx(40 * 2.49),
        "usd_per_month": pytest.approx(40 * 2.49 * 730),
    }
    assert document["workers_per_rate_interval"] == [0.18, 0.22]
    assert document["no_law"] is None
    assert document["extrapolated"][0] == {
        "rate_per_s": 160.0,
        "replica_count": 33,
        "replica_count_interval": [30, 36],
        "gpus": "264 GPUs = 33 replicas × 8 (TP 8)",
        "usd_per_month": pytest.approx(264 * 2.49 * 730),
    }


def test_the_file_without_a_line_has_nulls_and_the_reason(demand):
    document = json.loads(
        json_text(demand_values(replace(demand, law=None, no_law="scattered")))
    )

    assert document["workers_per_rate"] is None
    assert document["extrapolated"] == []
    assert document["no_law"] == "scattered"
