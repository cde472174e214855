"""The constraints of one heartbeat on cases worked by hand, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.placement.integer_units import integer_units
from capplan.placement.kv_profile import kv_at
from capplan.placement.problem import PlacementProblem, violations
from capplan.placement.replica import affine_replica, replica_of_tables


def template(**changes):
    """Iterations of 10 ms + 1 ms a request + 0.1 ms a token; prefill 20 ms + 1 ms."""
    values = dict(
        kv_capacity_tokens=100,
        fixed_s=0.010,
        request_s=0.001,
        context_s=0.0001,
        max_batch=8,
        prefill_fixed_s=0.020,
        prefill_s_per_token=0.001,
    )
    values |= changes
    return affine_replica(values.pop("kv_capacity_tokens"), **values)


def problem(prompt, predicted, kind=None, **changes):
    n = len(prompt)
    values = dict(
        ttft_slo_s=np.full(n, 0.1), tpot_slo_s=np.full(n, 0.02), gamma=0.5, theta=1.0
    )
    values |= changes
    return PlacementProblem(
        kind or template(), np.array(prompt), np.array(predicted), **values
    )


def letters(found):
    return [line[:3] for line in found]


def test_decode_slo_limits_the_context_by_the_batch():
    # 20 ms leave 10 - b ms for context: 80 tokens at b = 2. 30 + 10/2 is 35 each.
    inside = problem([30, 30], [10, 10])
    outside = problem([30, 30], [24, 18], template(kv_capacity_tokens=1000))

    assert violations(inside, [0, 0]) == []
    assert letters(violations(outside, [0, 0])) == ["(b)"]  # 42 + 39 = 81


def test_prefill_of_new_requests_keeps_the_tightest_ttft():
    # 20 + 40 + 30 = 90 ms.
    both = problem([40, 30], [2, 2], ttft_slo_s=np.array([0.1, 0.1]))
    tight = problem([40, 30], [2, 2], ttft_slo_s=np.array([0.1, 0.089]))

    assert violations(both, [0, 0]) == []
    assert letters(violations(tight, [0, 0])) == ["(c)"]


def ongoing_and_new(elapsed_s, theta=1.0):
    return problem(
        [20, 10],
        [20, 4],
        generated_tokens=np.array([5, 0]),
        decode_elapsed_s=np.array([elapsed_s, 0.0]),
        replica=np.array([0, -1]),
        replica_count=1,
        theta=theta,
    )


def test_prefill_uses_only_the_time_that_ongoing_requests_have_saved():
    # Five tokens at 20 ms allow 100 ms; 20 + 10 = 30 ms of prefill leave 70 ms.
    assert violations(ongoing_and_new(0.070), [0, 0]) == []
    assert letters(violations(ongoing_and_new(0.071), [0, 0])) == ["(d)"]
    assert letters(violations(ongoing_and_new(0.065, theta=0.8), [0, 0])) == ["(d)"]
    assert violations(ongoing_and_new(0.071), [0, 1]) == []


def test_kv_is_compared_just_before_each_completion():
    # 40 + 3 and 40 + 3, then 40 + 20: 86 tokens three iterations ahead.
    wide = template(context_s=0, kv_capacity_tokens=86)
    narrow = template(context_s=0, kv_capacity_tokens=85)

    assert violations(problem([40, 40], [3, 20], wide), [0, 0]) == []
    assert letters(violations(problem([40, 40], [3, 20], narrow), [0, 0])) == ["(e)"]


def test_kv_is_counted_in_whole_blocks():
    blocks = template(context_s=0, kv_capacity_tokens=95, block_tokens=16)

    found = violations(problem([40, 40], [3, 20], blocks), [0, 0])

    assert found == ["(e) replica 0: 96 tokens of KV 3 iterations ahead; capacity 95"]


def test_ongoing_requests_keep_their_replica():
    assert letters(violations(ongoing_and_new(0.0), [1, 1])) == ["(f)"]


def test_a_request_without_replica_is_named():
    assert violations(problem([1, 1], [1, 1]), [0, -1]) == [
        "(a) request 1 is on no replica"
    ]


@settings(deadline=None)
@given(
    now=st.lists(st.integers(1, 200), min_size=1, max_size=12),
    left=st.lists(st.integers(1, 60), min_size=12, max_size=12),
    block=st.sampled_from([1, 4, 16]),
)
def test_no_iteration_holds_more_kv_than_those_that_are_kept(now, left, block):
    left = left[: len(now)]

    kept = kv_at(now, left, np.unique(left), block).sum(axis=0).max()
    every = kv_at(now, left, np.arange(max(left) + 1), block).sum(axis=0).max()

    assert kept == every


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(gamma=1.5), "gamma is 1.5; expected 0 to 1"),
        (dict(theta=-0.1), "theta is -0.1; expected 0 to 1"),
        (dict(tpot_slo_s=np.array([0.009, 0.02])), "request 0: TPOT SLO 0.009 s is be"),
        (dict(ttft_slo_s=np.array([0.1, 0.01])), "request 1: TTFT SLO 0.01 s is below"),
        (dict(ttft_slo_s=np.array([0.0, 0.1])), "request 0: ttft_slo_s is 0.0; expec"),
        (
            dict(generated_tokens=np.array([0, 10])),
            "request 1: predicted_output_tokens",
        ),
        (dict(max_replicas=0), "max_replicas is 0; ongoing requests use 0"),
        (dict(names=("a", "a")), "1 different request names for 2 requests"),
        (
            dict(generated_tokens=np.array([1, 1]), replica=np.array([0, 2])),
            "request 0: runs on replica 0; there are 0, counted from 0",
        ),
        (
            dict(replica=np.array([0, -1]), replica_count=1),
            "request 0: runs on replica 0 with generated_tokens 0",
        ),
    ],
)
def test_an_impossible_value_is_refused_by_name(changes, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        problem([30, 30], [10, 10], **changes)


@pytest.mark.parametrize(
    ("prompt", "predicted", "reason"),
    [
        (60, 41, "101 tokens of KV at its end, capacity 100"),
        (81, 2, "its prefill alone takes 0.101 s"),
        (70, 42, "context 91 tokens; alone, within TPOT 0.02 s, 90 are allowed"),
    ],
)
def test_a_request_larger_than_any_replica_is_refused(prompt, predicted, reason):
    replica = template(kv_capacity_tokens=100 if reason[0] == "1" else 1000)

    with pytest.raises(InputError, match=f"request 0: is larger than any .*{reason}"):
        problem([prompt], [predicted], replica)


def test_an_infeasible_ongoing_state_is_named():
    with pytest.raises(InputError, match=r"ongoing .* \(e\) replica 1: 120 tokens"):
        problem(
            [50, 50],
            [10, 10],
            template(context_s=0),
            generated_tokens=np.array([1, 1]),
            replica=np.array([1, 1]),
            replica_count=2,
        )


def test_numbers_beyond_the_integer_scale_are_refused():
    huge = affine_replica(2**40, fixed_s=0.001, request_s=0, context_s=0, max_batch=8)
    n = 30_000
    lengths = np.full(n, 99_999_999)

    with pytest.raises(InputError, match="beyond the integer scale"):
        integer_units(problem(lengths, lengths, huge, ttft_slo_s=np.full(n, 1.0)))


def test_a_profile_whose_prefill_is_a_line_is_taken_nearly_as_it_is():
    from capplan.latency.contract import linear_tables

    tables = linear_tables(0.008, 2e-5, 1e-9, 1e-4, 1e-7, max_batch=64, max_tokens=8192)

    replica = replica_of_tables(tables, 10_000)

    assert replica.decode_s.tolist() == tables.decode_s.tolist()
    tokens = np.array([1, 100, 1024, 8000])
    exact_s = tables.fused_s[tokens] + tables.attention_s * tokens**2 / 2
    ours_s = replica.prefill_fixed_s + replica.prefill_work_s(tokens)
    assert (ours_s >= exact_s - 1e-12).all()
    assert (ours_s - exact_s).max() < 0.008  # one fixed time, spread over a full budget
