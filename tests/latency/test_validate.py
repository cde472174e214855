"""Errors of a profile on fresh points, worked by hand."""

import pytest

from capplan.latency.measurements import points_from_rows
from capplan.latency.profile import ErrorRecord, Profile
from capplan.latency.terms import DecodeTerms, FusedTerms
from capplan.latency.validate import validate

PROFILE = Profile(
    gpu="H100-SXM",
    llm="Llama-3.1-8B",
    tp=1,
    engine="vllm",
    source="a test",
    how="measured",
    decode_form="aladdin",
    fused_form="aladdin",
    decode=DecodeTerms(constant_s=0.010),
    fused=FusedTerms(constant_s=0.020),
    errors={"decode": ErrorRecord(sigma=0.10)},
)


def decode(batch, seconds):
    return ("decode", batch, batch, 100, seconds)


def test_errors_are_relative_to_the_measured_time():
    # 10 ms predicted against 8 and 12.5 ms: +25 % and -20 %
    points = points_from_rows([decode(1, 0.008), decode(2, 0.0125)])

    result = validate(PROFILE, points)

    assert result.mean_abs_error_by_phase == {"decode": pytest.approx(0.225)}
    assert result.max_abs_error_by_phase == {"decode": pytest.approx(0.25)}
    assert result.bias_by_phase == {"decode": pytest.approx(0.025)}
    assert result.points_by_phase == {"decode": 2}


def test_each_phase_is_compared_with_its_own_prediction():
    points = points_from_rows(
        [
            decode(1, 0.010),
            ("prefill", 1, 100, 0, 0.010),  # 20 ms predicted: twice as much
            ("mixed", 1, 101, 100, 0.040),  # half as much
        ]
    )

    result = validate(PROFILE, points)

    assert result.bias_by_phase == {
        "prefill": pytest.approx(1.0),
        "decode": pytest.approx(0.0),
        "mixed": pytest.approx(-0.5),
    }


def test_regions_are_quartiles_of_the_work_with_every_point_in_one():
    # 10 ms predicted: errors of 0, 25, 100 and 400 %
    measured_s = dict.fromkeys((1, 2), 0.010) | dict.fromkeys((3, 4), 0.008)
    measured_s |= dict.fromkeys((5, 6), 0.005) | dict.fromkeys((7, 8, 9), 0.002)
    points = points_from_rows([decode(*row) for row in measured_s.items()])

    regions = validate(PROFILE, points).mean_abs_error_by_region

    assert regions == {
        "decode of 1 to 3 requests": pytest.approx(0.0),
        "decode of 3 to 5 requests": pytest.approx(0.25),
        "decode of 5 to 7 requests": pytest.approx(1.0),
        "decode of 7 to 9 requests": pytest.approx(4.0),
    }


def test_points_of_one_size_are_one_region():
    points = points_from_rows([decode(8, 0.008), decode(8, 0.0125)])

    regions = validate(PROFILE, points).mean_abs_error_by_region

    assert regions == {"decode of 8 requests": pytest.approx(0.225)}
