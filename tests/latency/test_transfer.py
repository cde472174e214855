"""Estimates at another TP degree or on another GPU: hand-worked and near the truth."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import ProfileError
from capplan.fleet.catalog import gpu
from capplan.latency.catalog import find_profile
from capplan.latency.measurements import points_from_rows
from capplan.latency.profile import ErrorRecord
from capplan.latency.terms import DecodeTerms
from capplan.latency.transfer import across_gpu, across_tp
from capplan.llm.catalog import llm

LLAMA = llm("Llama-3.1-8B")
H100 = gpu("H100-SXM")

POINTS = points_from_rows(
    [("decode", b, b, 1024, 1.0) for b in (1, 8, 64, 256)]
    + [("prefill", 1, n, 0, 1.0) for n in (256, 1024, 4096)]
    + [("mixed", b, b + 512, 1024, 1.0) for b in (8, 64)]
)


def shipped(gpu_name: str = "H100-SXM", tp: int = 1):
    profile = find_profile("Llama-3.1-8B", gpu_name, tp)
    assert profile is not None
    return profile


def flat(tp: int, time_s: float, largest_batch: int = 1024):
    """Return a profile whose decode iterations all take the same time."""
    base = shipped()
    measured = base.validity.decode.model_copy(update={"batch": [1, largest_batch]})
    return base.model_copy(
        update={
            "tp": tp,
            "decode": DecodeTerms(constant_s=time_s),
            "validity": base.validity.model_copy(update={"decode": measured}),
        }
    )


def decode_s(profile, batch=1):
    return profile.tables(1024, 64).decode_s[batch]


def test_a_tp_degree_left_out_is_predicted_from_the_others():
    left_out = shipped(tp=4)

    predicted = across_tp([shipped(tp=tp) for tp in (1, 2, 8)], 4)

    ratio = predicted.predict(POINTS) / left_out.predict(POINTS)
    assert np.abs(ratio - 1).mean() < 0.05
    assert predicted.how == "estimate"
    assert predicted.tp == 4
    assert predicted.kv_tokens is None


@pytest.mark.parametrize(
    ("tp", "expected_s"), [(4, 0.004), (8, 0.003), (16, 0.0025), (1, 0.010)]
)
def test_two_degrees_are_met_exactly_and_others_follow_k_over_n_plus_c(tp, expected_s):
    known = [flat(1, 0.010), flat(2, 0.006)]  # 2 ms + 8 ms / N

    predicted = across_tp(known, tp)

    assert decode_s(predicted) == pytest.approx(expected_s, rel=1e-5)


@given(
    split=st.floats(1e-3, 0.1),
    fixed=st.floats(1e-3, 0.1),
    tp=st.sampled_from([3, 4, 6, 16]),
)
@settings(max_examples=5, deadline=None)
def test_a_line_in_one_over_tp_is_followed_from_three_degrees(split, fixed, tp):
    known = [flat(n, split / n + fixed) for n in (1, 2, 8)]

    predicted = across_tp(known, tp)

    assert decode_s(predicted) == pytest.approx(split / tp + fixed, rel=1e-4)


def test_a_small_batch_profile_counts_little_for_larger_batches():
    # TP 1 was measured to 8 requests: its 100 ms for larger batches is extrapolated.
    known = [flat(1, 0.100, largest_batch=8), flat(2, 0.010), flat(4, 0.010)]

    predicted = across_tp(known, 8)

    assert decode_s(predicted, 512) == pytest.approx(0.010, rel=0.05)


def test_the_order_of_the_profiles_does_not_matter():
    known = [shipped(tp=tp) for tp in (1, 2, 8)]

    forward = across_tp(known, 4, LLAMA, H100).predict(POINTS)
    backward = across_tp(known[::-1], 4, LLAMA, H100).predict(POINTS)

    # The data sheet's k is that of the first degree, rounded to whole bytes.
    assert forward == pytest.approx(backward, rel=1e-4)


def test_an_estimate_adds_its_own_error_to_that_of_the_profiles():
    known = [
        shipped(tp=tp).model_copy(
            update={"errors": {"decode": ErrorRecord(sigma=0.24)}}
        )
        for tp in (1, 2)
    ]

    across = across_tp(known, 4)
    scaled = across_gpu(known[0], LLAMA, gpu("H200-SXM"))

    assert across.sigma("decode") == pytest.approx(0.26)  # √(0.24² + 0.10²)
    assert scaled.sigma("decode") == pytest.approx(0.30)  # √(0.24² + 0.18²)


def test_tp_needs_two_other_degrees_of_one_kind():
    with pytest.raises(ProfileError, match="profiles of two other degrees"):
        across_tp([shipped()], 2)
    with pytest.raises(ProfileError, match="one LLM on one GPU type"):
        across_tp([shipped(), shipped("H200-SXM", 2)], 4)
    with pytest.raises(ProfileError, match="one LLM on one GPU type"):
        across_tp([], 4)


def test_a_neighbouring_gpu_is_predicted_by_the_ratio_of_data_sheets():
    truth = shipped("H200-SXM")

    predicted = across_gpu(shipped(), LLAMA, gpu("H200-SXM"))

    ratio = predicted.predict(POINTS) / truth.predict(POINTS)
    assert np.abs(ratio - 1).mean() < 2 * 0.18
    assert predicted.gpu == "H200-SXM"
    assert "scaled by data sheets" in predicted.source


def test_scaling_to_the_same_gpu_and_degree_changes_nothing_at_the_knots():
    measured = shipped().tables(1024, 16_384)

    same = across_gpu(shipped(), LLAMA, H100).tables(1024, 16_384)

    for batch in (1, 8, 64, 256):
        assert same.decode_s[batch] == pytest.approx(measured.decode_s[batch])
        assert same.decode_context_s[batch] == pytest.approx(
            measured.decode_context_s[batch]
        )
    for tokens in (128, 1024, 8192):
        assert same.fused_s[tokens] == pytest.approx(measured.fused_s[tokens])
    assert same.attention_s == pytest.approx(measured.attention_s)


def test_twice_the_bandwidth_halves_the_time_to_read_the_context():
    faster = replace(H100, bandwidth_bytes_per_s=2 * H100.bandwidth_bytes_per_s)

    predicted = across_gpu(shipped(), LLAMA, faster)

    before = shipped().tables(64, 64).decode_context_s[8]
    assert predicted.tables(64, 64).decode_context_s[8] == pytest.approx(before / 2)
