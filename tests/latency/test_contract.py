"""Tables for the simulator: the linear ones by hand, and unusable ones refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import ProfileError
from capplan.latency.contract import linear_tables

COEFFICIENTS = (4e-3, 2e-5, 1e-9, 3e-5, 5e-8)


def tables(max_batch=8, max_tokens=64):
    return linear_tables(*COEFFICIENTS, max_batch=max_batch, max_tokens=max_tokens)


@given(
    decoding=st.integers(0, 8),
    context=st.integers(1, 10_000),
    new=st.integers(1, 56),
    prefix=st.integers(0, 10_000),
)
def test_an_iteration_with_prefill_sums_its_tokens_one_by_one(
    decoding, context, new, prefix
):
    fixed_s, prefill_s, attention_s, decode_s, context_s = COEFFICIENTS
    table = tables()

    total = decoding * context
    work = new * (prefix + new / 2)
    time_s = table.fused_s[new + decoding] + table.fused_decode_s[decoding]
    time_s += table.fused_context_s[decoding] * total + table.attention_s * work

    # Token i of the chunk attends to the prefix and to i + 1 tokens of the chunk.
    pairs = sum(prefix + i + 1 for i in range(new))
    expected_s = fixed_s + prefill_s * new + attention_s * pairs
    expected_s += decode_s * decoding + context_s * total
    assert time_s == pytest.approx(expected_s, rel=1e-9)


def test_an_iteration_without_prefill_is_linear_in_batch_and_context():
    table = tables()

    # 4 ms + 8 requests of 30 µs + 8 × 1000 tokens of 50 ns
    assert table.decode_s[8] + table.decode_context_s[8] * 8000 == (
        pytest.approx(4e-3 + 0.24e-3 + 0.4e-3)
    )


def test_tables_are_accepted_up_to_their_last_entry():
    table = tables()

    assert table.check(8, 64) is table
    assert table.check(1, 1) is table


@pytest.mark.parametrize(
    ("limits", "message"),
    [((9, 64), "decode_s ends at 8; expected 9"), ((8, 65), "fused_s ends at 64")],
)
def test_a_table_that_ends_too_soon_is_refused(limits, message):
    with pytest.raises(ProfileError, match=message):
        tables().check(*limits)


@pytest.mark.parametrize("name", ["decode_s", "decode_context_s", "fused_s"])
@pytest.mark.parametrize("wrong", [-1e-9, np.nan, np.inf])
def test_an_entry_that_is_no_time_is_refused_with_its_index(name, wrong):
    table = getattr(tables(), name).copy()
    table[3] = wrong

    with pytest.raises(ProfileError, match=rf"{name}\[3\] is .*; expected >= 0"):
        tables()._replace(**{name: table}).check(8, 64)


def test_only_the_share_of_decode_in_a_fused_iteration_may_be_negative():
    # A decode token of 30 µs replaces a prompt token of 40 µs in the fused batch.
    table = linear_tables(4e-3, 4e-5, 0, 3e-5, 0, max_batch=8, max_tokens=64)

    assert table.check(8, 64).fused_decode_s[8] == pytest.approx(-8e-5)


@pytest.mark.parametrize("name", ["attention_s", "request_s"])
def test_a_negative_scalar_is_refused(name):
    with pytest.raises(ProfileError, match=f"{name} is -1"):
        tables()._replace(**{name: -1.0}).check(8, 64)


def test_iterations_that_take_no_time_are_refused():
    free = linear_tables(0, 0, 0, 0, 0, max_batch=2, max_tokens=8)

    with pytest.raises(ProfileError, match="every iteration to take time"):
        free.check(2, 8)
