"""Terms give the contract's tables: hand-worked values and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from capplan.latency.forms import predict
from capplan.latency.measurements import points_from_rows
from capplan.latency.terms import DecodeTerms, FusedTerms, tables

seconds = st.floats(1e-9, 1e-2)


def test_saturation_reaches_its_height_when_all_experts_are_touched():
    terms = DecodeTerms(constant_s=1e-3, saturation_s=9e-3, saturation_rate=0.5)

    one, all_of_them = terms.base_s(np.array([1.0, 1000.0]))

    assert one == pytest.approx(1e-3 + 9e-3 * (1 - np.exp(-0.5)))
    assert all_of_them == pytest.approx(1e-2)


def test_interaction_slope_falls_with_the_batch():
    terms = DecodeTerms(per_context_s=2e-7, per_mean_context_s=8e-7)

    assert terms.context_s(np.array([1.0, 4.0])).tolist() == pytest.approx([1e-6, 4e-7])


def test_without_decoding_requests_there_is_no_decode_share():
    terms = FusedTerms(batch=[0, 1, 8], batch_s=[0.0, 1e-3, 2e-3])

    assert terms.decode_share_s(np.array([0.0, 1.0, 8.0])).tolist() == [0, 1e-3, 2e-3]


@given(
    constant=seconds,
    token=seconds,
    pair=st.floats(0, 1e-9),
    request=seconds,
    context=st.floats(0, 1e-6),
    batch=st.integers(1, 64),
    chunk=st.integers(1, 512),
    length=st.integers(1, 4096),
)
def test_tables_say_what_the_terms_say(
    constant, token, pair, request, context, batch, chunk, length
):
    decode = DecodeTerms(
        constant_s=constant, per_request_s=request, per_context_s=context
    )
    fused = FusedTerms(
        constant_s=constant,
        per_token_s=token,
        attention_s=pair,
        per_request_s=request,
        per_context_s=context,
    )
    points = points_from_rows(
        [
            ("decode", batch, batch, length, 1),
            ("mixed", batch, batch + chunk, length, 1),
        ]
    )

    latency = tables(decode, fused, 64, 1024).check(64, 1024)

    total = batch * length
    assert latency.decode_s[batch] + latency.decode_context_s[batch] * total == (
        pytest.approx(predict(decode, points)[0])
    )
    fused_s = latency.fused_s[chunk + batch] + latency.fused_decode_s[batch]
    fused_s += latency.fused_context_s[batch] * total
    fused_s += latency.attention_s * chunk * chunk / 2
    assert fused_s == pytest.approx(predict(fused, points)[1])


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (DecodeTerms, {"constant_s": -1}, "greater than or equal to 0"),
        (DecodeTerms, {"constant_s": float("nan")}, "finite|greater"),
        (DecodeTerms, {"batch": [4, 2], "batch_s": [1, 1]}, "must rise"),
        (DecodeTerms, {"batch": [1, 2], "batch_s": [1]}, "has 1 values; expected 2"),
        (FusedTerms, {"tokens": [1, 2], "tokens_s": [1]}, "has 1 values; expected 2"),
        (FusedTerms, {"surprise": 1}, "Extra inputs"),
    ],
)
def test_terms_refuse_what_is_no_time(kind, wrong, message):
    with pytest.raises(ValidationError, match=message):
        kind(**wrong)
