"""Replicas: limits of context by batch size, prefill lines, impossible values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.placement.replica import (
    PlacementReplica,
    affine_replica,
    replica_of_tables,
)


def test_the_context_limit_is_what_the_batch_leaves_of_the_tpot():
    # Eq. 4: (20 - 10 - b) ms at 0.1 ms a token.
    replica = affine_replica(
        9, fixed_s=0.01, request_s=0.001, context_s=1e-4, max_batch=3
    )

    assert replica.context_limit_tokens(0.02) == pytest.approx([0, 90, 80, 70])
    assert replica.context_limit_tokens(0.011)[2] < 0


def test_context_that_takes_no_time_has_no_limit():
    replica = affine_replica(9, fixed_s=0.01, request_s=0, context_s=0, max_batch=1)

    assert replica.context_limit_tokens(0.02).tolist() == [0, np.inf]
    assert replica.context_limit_tokens(0.009).tolist() == [0, -np.inf]


def test_a_batch_that_a_larger_one_outruns_has_the_limit_of_the_larger():
    # Batch 2 takes 15 ms, batch 3 padded 12 ms: 8 ms at 0.1 ms a token for both.
    replica = PlacementReplica(
        9, np.array([0.01, 0.011, 0.015, 0.012]), np.full(4, 1e-4)
    )

    assert replica.context_limit_tokens(0.02) == pytest.approx([0, 90, 80, 80])


def test_prefill_work_has_a_linear_and_a_quadratic_part():
    replica = affine_replica(
        9,
        fixed_s=0.01,
        request_s=0,
        context_s=0,
        max_batch=1,
        prefill_s_per_token=1e-3,
        prefill_s_per_token2=1e-6,
    )

    assert replica.prefill_work_s(np.array([10, 100])) == pytest.approx([0.0101, 0.11])


@given(
    fixed_ms=st.floats(1, 20),
    token_us=st.floats(0, 50),
    prompts=st.lists(st.integers(1, 3000), min_size=1, max_size=6),
)
def test_no_prefill_is_faster_than_its_iterations(fixed_ms, token_us, prompts):
    tables = linear_tables(
        fixed_ms / 1e3, token_us / 1e6, 0, 0, 0, max_batch=8, max_tokens=512
    )

    replica = replica_of_tables(tables, 10_000, typical_prefill_tokens=256)

    total = sum(prompts)
    work_s = float(replica.prefill_work_s(np.array(prompts)).sum())
    full, rest = divmod(total, 512)
    iterations_s = full * tables.fused_s[512]
    iterations_s += tables.fused_s[rest] if rest else 0.0
    assert replica.prefill_fixed_s + work_s >= iterations_s * (1 - 1e-9)


def test_the_largest_batch_can_be_cut():
    tables = linear_tables(0.01, 0, 0, 0, 0, max_batch=64, max_tokens=128)

    assert replica_of_tables(tables, 99, max_batch=16).max_batch == 16
    assert replica_of_tables(tables, 99).max_batch == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(kv_capacity_tokens=0), "kv_capacity_tokens is 0; expected >= 1"),
        (dict(block_tokens=0), "block_tokens is 0; expected >= 1"),
        (dict(decode_s=np.ones(1)), r"decode_s has shape \(1,\)"),
        (dict(decode_s=np.array([1, np.nan])), "decode_s holds a time that is not"),
        (dict(decode_context_s=-np.ones(2)), "decode_context_s holds a time"),
        (dict(decode_s=np.ones(3)), "decode_s ends at batch 2, decode_context_s at 1"),
        (dict(prefill_fixed_s=-1.0), "prefill_fixed_s is -1.0; expected >= 0"),
        (dict(prefill_s_per_token=np.inf), "prefill_s_per_token is inf"),
    ],
)
def test_an_impossible_value_is_refused_by_name(changes, message):
    values = dict(
        kv_capacity_tokens=9, decode_s=np.ones(2), decode_context_s=np.ones(2)
    )

    with pytest.raises(InputError, match=message):
        PlacementReplica(**values | changes)
