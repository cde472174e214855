"""Replicas against the rate: the points, the line, and its extrapolations by hand."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from capplan.placement.demand_law import DemandLaw
from capplan.planning.demand import Demand
from capplan.report.write_demand import demand_json, print_demand
from tests.deployments import changed

LAW = DemandLaw(
    workers_per_rate=0.2,
    workers_fixed=0.5,
    workers_per_rate_interval=(0.18, 0.22),
    workers_fixed_interval=(0.0, 1.0),
    linear_from_per_s=10.0,
    linear_from_interval_per_s=(0.0, 10.0),
    residual_workers=0.5,
    confidence=0.95,
)


@pytest.fixture
def demand(best):
    """3, 5, 9 and 17 replicas of 8 GPUs for 10, 20, 40 and 80 requests/s."""
    candidates = tuple(
        replace(
            best,
            run=changed(best.run, count),
            bound=replace(best.bound, replica_count=count - 1),
        )
        for count in (3, 5, 9, 17)
    )
    rates = (10.0, 20.0, 40.0, 80.0)
    warnings = ("careful", "careful")
    return Demand("H100-SXM", 8, rates, (160.0, 200.0), candidates, LAW, "", warnings)


def printed(demand):
    out = io.StringIO()
    print_demand(demand, Console(file=out, width=120, highlight=False))
    return out.getvalue().splitlines()


def test_every_rate_is_a_row_with_replicas_gpus_bound_and_attainment(demand):
    lines = printed(demand)

    assert lines[0] == "H100-SXM × TP 8, scheduler vllm-v1"
    assert lines[1].split() == ["requests/s", "replicas", "GPUs", *ENDS]
    assert lines[2].split() == ["10", "3", "24", "16", "99.29", "%"]
    assert lines[5].split() == ["80", "17", "136", "128", "99.29", "%"]


ENDS = ["at", "least", "attainment"]


def test_a_candidate_without_a_bound_shows_a_dash(demand):
    first = replace(demand.candidates[0], bound=None)

    lines = printed(replace(demand, candidates=(first, *demand.candidates[1:])))

    assert lines[2].split() == ["10", "3", "24", "–", "99.29", "%"]


def test_the_line_has_its_intervals_and_the_largest_residual(demand):
    assert printed(demand)[6] == (
        "replicas = ⌈0.2 · rate +0.5⌉ from 10 requests/s on (Aladdin, Eq. 7); 95% "
        "intervals: slope 0.18 to 0.22, constant 0 to 1; largest residual 0.5 replicas"
    )


def test_an_extrapolation_has_an_interval_and_far_ones_a_caution(demand):
    twice, far = printed(demand)[7:9]

    # 0.2 · 160 + 0.5 = 32.5; the ends are 0.18 · 160 + 1 and 0.22 · 160 + 0.
    assert twice == (
        "160 requests/s, extrapolated: 264 GPUs = 33 replicas × 8 (TP 8); 30 to 36 "
        "replicas within the interval of the slope"
    )
    assert far == (
        "200 requests/s, extrapolated: 328 GPUs = 41 replicas × 8 (TP 8); 37 to 44 "
        "replicas within the interval of the slope; 2.5 times the highest simulated "
        "rate: simulate this rate too"
    )


def test_counts_without_a_line_say_why_and_extrapolate_nothing(demand):
    without = replace(demand, law=None, no_law="workers are on no line")

    lines = printed(without)

    assert lines[6] == "no line through these counts: workers are on no line"
    assert lines[7:] == ["warning: careful"]


def test_the_file_holds_points_line_and_extrapolations(demand):
    document = json.loads(demand_json(demand))

    assert document["schema"] == "capplan.demand/1"
    assert document["points"][1] == {
        "rate_per_s": 20.0,
        "replica_count": 5,
        "gpu_count": 40,
        "lower_bound_gpu_count": 32,
        "slo_attainment": 0.99296,
    }
    assert document["workers_per_rate_interval"] == [0.18, 0.22]
    assert document["no_law"] is None
    assert document["extrapolated"][0] == {
        "rate_per_s": 160.0,
        "replica_count": 33,
        "replica_count_interval": [30, 36],
        "gpus": "264 GPUs = 33 replicas × 8 (TP 8)",
    }


def test_the_file_without_a_line_has_nulls_and_the_reason(demand):
    document = json.loads(demand_json(replace(demand, law=None, no_law="scattered")))

    assert document["workers_per_rate"] is None
    assert document["extrapolated"] == []
    assert document["no_law"] == "scattered"
