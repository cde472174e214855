"""Parts of the fit: knots, solver and what fills unmeasured ranges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.latency.fit import decode_beside_prefill, few_tokens_like_decode
from capplan.latency.forms import DECODE_FORMS, FUSED_FORMS, design, thinned
from capplan.latency.least_squares import relative_nnls
from capplan.latency.measurements import points_from_rows
from capplan.latency.terms import DecodeTerms, FusedTerms


@given(
    values=st.lists(st.integers(1, 100_000), min_size=1, max_size=60),
    most=st.integers(2, 12),
)
def test_thinned_values_are_some_of_the_values_with_both_ends(values, most):
    kept = thinned(np.array(values), most)

    assert set(kept) <= set(values)
    assert kept == sorted(set(kept))
    assert len(kept) <= most
    assert (kept[0], kept[-1]) == (min(values), max(values))


def test_all_values_are_kept_when_there_is_room():
    assert thinned(np.array([8, 1, 8, 5]), 3) == [1, 5, 8]


POINTS = points_from_rows(
    [("decode", b, b, c, b * 1e-3) for b in (1, 2, 4, 8, 9) for c in (64, 512, 4096)]
    + [("prefill", 1, n, 0, n * 1e-5) for n in (64, 128, 200, 512, 1024)]
    + [("mixed", b, b + 64, 512, 2e-3) for b in (1, 4, 8)]
)


@pytest.mark.parametrize("form", DECODE_FORMS)
def test_every_basis_term_of_decode_adds_time_somewhere(form):
    points = POINTS.of("decode")

    for shape in DECODE_FORMS[form](points, 0.1):
        columns = design(DecodeTerms, shape, points)

        assert columns.shape == (len(points.seconds), len(shape.basis))
        assert (columns >= 0).all()
        assert (columns.max(axis=0) > 0).all()


@pytest.mark.parametrize("form", FUSED_FORMS)
def test_without_mixed_points_no_term_depends_on_decoding_requests(form):
    points = POINTS.of("prefill")

    shapes = FUSED_FORMS[form](points, None)

    keys = {key for shape in shapes for term in shape.basis for key in term}
    assert not keys & {"per_request_s", "per_context_s", "batch_s", "batch_context_s"}


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_no_other_coefficients_have_a_smaller_relative_error(seed):
    rng = np.random.default_rng(seed)
    design_s = rng.uniform(0, 1, (12, 3))
    seconds = design_s @ rng.uniform(0, 1, 3) * rng.normal(1, 0.05, 12)
    seconds = np.maximum(seconds, 1e-3)

    coefficients = relative_nnls(design_s, seconds)

    # The fixed point minimises the residuals weighted by 1 / its own prediction.
    weight = 1 / np.maximum(design_s @ coefficients, 1e-3 * seconds)

    def loss(candidate):
        return (((design_s @ candidate - seconds) * weight) ** 2).sum()

    assert (coefficients >= 0).all()
    for _ in range(50):
        other = np.maximum(coefficients + rng.normal(0, 0.05, 3), 0)
        assert loss(other) >= loss(coefficients) * (1 - 1e-3)


def test_a_point_of_little_importance_barely_moves_the_fit():
    design_s = np.ones((3, 1))

    [level] = relative_nnls(
        design_s, np.array([1.0, 1.0, 9.0]), importance=np.array([1.0, 1.0, 0.01])
    )

    assert level == pytest.approx(1.0, rel=1e-3)


def test_few_tokens_follow_the_decode_curve_scaled_to_the_first_knot():
    # Decode takes 8 ms + 1 ms per 64 requests: 9 ms at 64, 8.5 ms at 32.
    decode = DecodeTerms(constant_s=8e-3, per_request_s=1e-3 / 64)
    fused = FusedTerms(tokens=[64, 128], tokens_s=[18e-3, 20e-3])

    extended = few_tokens_like_decode(fused, decode)

    time_s = extended.tokens_time_s(np.array([32.0, 64.0, 128.0]))
    assert time_s == pytest.approx([17e-3, 18e-3, 20e-3])


@pytest.mark.parametrize(
    "fused", [FusedTerms(constant_s=1e-3), FusedTerms(tokens=[1], tokens_s=[1e-3])]
)
def test_terms_that_reach_one_token_are_not_extended(fused):
    assert few_tokens_like_decode(fused, DecodeTerms(constant_s=1e-3)) is fused


def test_decode_beside_a_short_prefill_takes_no_less_than_alone():
    # Alone: 10 ms + 0.1 ms·b and 1 µs per token; a fused batch: 12 ms + 10 µs·n.
    decode = DecodeTerms(constant_s=10e-3, per_request_s=1e-4, per_context_s=1e-6)
    fused = FusedTerms(constant_s=12e-3, per_token_s=1e-5)

    filled = decode_beside_prefill(fused, decode, 64)

    share_s = filled.decode_share_s(np.array([0.0, 8.0, 64.0]))
    # 8: 10.8 ms alone is below 12.08 ms; 64: 16.4 ms is 3.76 ms above 12.64 ms.
    assert share_s == pytest.approx([0, 0, 3.76e-3])
    assert filled.context_s(np.array([1.0, 64.0])) == pytest.approx([1e-6, 1e-6])
