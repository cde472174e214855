"""Lower bounds on replicas: worked by hand, and how they move with the inputs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.bounds.asked import droppable_requests
from capplan.bounds.lower_bound import lower_bound
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables

LIMITS = EngineSettings(max_num_batched_tokens=256, max_num_seqs=64, kv_blocks=500)


def tables(fixed_s=5e-3, prefill_s=1e-4, attention_s=0.0, decode_s=5e-4, context_s=0.0):
    return linear_tables(
        fixed_s,
        prefill_s,
        attention_s,
        decode_s,
        context_s,
        max_batch=64,
        max_tokens=256,
    )


def bound(arrival_s, prompt, output, tables, *, engine=LIMITS, **options):
    n = len(arrival_s)
    slo = {"ttft_s": 1.0, "tpot_s": np.inf, "e2e_s": np.inf} | options
    attainment = slo.pop("attainment", 1.0)
    group = slo.pop("group", None)
    columns = {
        "arrival_s": np.asarray(arrival_s, float),
        "prompt_tokens": np.broadcast_to(prompt, n),
        "output_tokens": np.broadcast_to(output, n),
        "group": np.zeros(n) if group is None else group,
        **{name: np.full(n, slo[name]) for name in ("ttft_s", "tpot_s", "e2e_s")},
    }
    return lower_bound(columns, attainment, tables, engine)


def test_prompts_that_fill_a_second_three_times_over_need_three_replicas():
    # 300 prompts of 100 tokens at 0.1 ms are 3 s of prefill, due within 1 s.
    result = bound(np.zeros(300), 100, 1, tables(fixed_s=0.0, decode_s=5e-4))

    assert result.replica_count == 3
    assert result.work_s == pytest.approx(3.0, rel=0.05)
    assert result.work_s <= 3.0
    assert (result.window_start_s, result.window_end_s) == (0.0, 1.0)


def test_the_note_says_the_replica_time_that_the_busiest_window_needs():
    result = bound(np.zeros(300), 100, 1, tables(fixed_s=0.0, decode_s=5e-4))

    assert result.note.startswith(
        f"in the busiest 1 s the 300 requests that are due need {result.work_s:.3g} s "
        "of replica time, in batches as large as "
    )
    assert result.note.endswith(": at least 3 replicas")


def test_the_costliest_may_miss_their_slo():
    prompt = np.full(300, 100)
    prompt[:3] = 250

    result = bound(np.zeros(300), prompt, 1, tables(fixed_s=0.0), attainment=0.99)

    assert result.droppable == 3
    assert result.work_s == pytest.approx(297 * 100 * 1e-4, rel=0.05)
    assert result.work_s <= 297 * 100 * 1e-4


def test_each_class_may_miss_only_its_own_share():
    # 100 long prompts of one class, 900 of one token: 1 % of all are ten long ones.
    prompt = np.where(np.arange(1000) < 100, 100, 1)
    each = (np.arange(1000) >= 100).astype(int)

    together = bound(np.zeros(1000), prompt, 1, tables(fixed_s=0.0), attainment=0.99)
    by_class = bound(
        np.zeros(1000),
        prompt,
        1,
        tables(fixed_s=0.0),
        attainment=[0.99, 0.99],
        group=each,
    )

    assert together.droppable == by_class.droppable == 10
    assert together.work_s <= (90 * 100 + 900) * 1e-4
    assert by_class.work_s <= (99 * 100 + 891) * 1e-4
    assert by_class.work_s == pytest.approx((99 * 100 + 891) * 1e-4, rel=0.05)


def test_a_class_that_misses_even_alone_is_out_of_reach():
    # Two of ten long prompts may not miss 20 ms though they are 0.2 % of all.
    prompt = np.where(np.arange(1000) < 10, 1000, 1)
    group = (np.arange(1000) >= 10).astype(int)
    limits = {"ttft_s": 0.02, "attainment": [0.9, 0.99], "group": group}

    assert not bound(
        np.arange(1000.0), prompt, 1, tables(fixed_s=0.0), **limits
    ).reachable


def test_a_decode_step_carries_its_share_of_the_fixed_time_at_the_tpot():
    # At TPOT 15 ms, 5 ms fixed and 0.5 ms a request, 20 requests share an
    # iteration, so a step takes 15 / 20 ms; 1,000 requests of 101 tokens.
    result = bound(
        np.zeros(1000), 1, 101, tables(prefill_s=0.001), tpot_s=0.015, ttft_s=0.5
    )

    steps_s = 1000 * 100 * 0.015 / 20
    assert result.work_s == pytest.approx(steps_s + 1000 * 0.001, rel=2e-2)
    assert result.work_s <= steps_s + 1000 * 0.001


def test_the_kv_cache_limits_the_batch_that_shares_the_fixed_time():
    # Two blocks of 16 hold one request of 17 to 32 tokens: nothing is shared.
    engine = EngineSettings(max_num_batched_tokens=256, max_num_seqs=64, kv_blocks=3)

    result = bound(
        np.zeros(50),
        16,
        17,
        tables(prefill_s=1e-4),
        engine=engine,
        tpot_s=1.0,
        ttft_s=0.1,
    )

    mean_context = 16 + 17 / 2
    assert result.work_s == pytest.approx(
        50 * 16 * (1e-4 + 5e-4 + 5e-3 * mean_context / 32), rel=1e-2
    )


def test_requests_without_any_deadline_need_one_replica():
    result = bound(np.zeros(50), 16, 17, tables(), ttft_s=np.inf)

    assert (result.replica_count, result.method) == (1, "none")


def test_a_tpot_below_the_fixed_time_is_unreachable():
    result = bound(np.zeros(50), 16, 17, tables(), tpot_s=0.004)

    assert not result.reachable
    assert "50 requests miss" in result.note


@pytest.mark.parametrize(
    ("count", "attainment", "expected"),
    [(100, 0.99, 1), (100, 1.0, 0), (99, 0.99, 0), (1000, 0.9, 100), (7, 0.5, 3)],
)
def test_as_many_may_be_dropped_as_the_attainment_leaves(count, attainment, expected):
    dropped = droppable_requests(count, attainment)

    assert dropped == expected
    assert (count - dropped) / count >= attainment - 1e-12
    assert (count - dropped - 1) / count < attainment


def test_no_requests_have_no_bound():
    with pytest.raises(InputError, match="no requests"):
        bound([], 1, 1, tables())


@pytest.mark.thorough
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 60),
    tpot_s=st.floats(0.008, 0.1),
    looser=st.floats(1.0, 3.0),
)
def test_the_bound_does_not_rise_with_looser_limits(seed, n, tpot_s, looser):
    generator = np.random.default_rng(seed)
    arrival_s = np.sort(generator.random(n))
    prompt = generator.integers(1, 200, n)
    output = generator.integers(1, 50, n)
    slo = {"ttft_s": 0.5, "tpot_s": tpot_s}

    strict = bound(arrival_s, prompt, output, tables(), **slo, attainment=1.0)
    fewer = bound(arrival_s, prompt, output, tables(), **slo, attainment=0.9)
    slower = bound(
        arrival_s,
        prompt,
        output,
        tables(),
        ttft_s=0.5 * looser,
        tpot_s=tpot_s * looser,
    )

    # The prices are searched for, so two searches may differ by a little.
    if strict.reachable:
        assert replicas(fewer) <= replicas(strict) * 1.05
        assert replicas(slower) <= replicas(strict) * 1.05


def replicas(result):
    return result.work_s / max(result.window_end_s - result.window_start_s, 1e-9)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 40))
def test_the_bound_does_not_fall_when_requests_are_added(seed, n):
    generator = np.random.default_rng(seed)
    arrival_s = np.sort(generator.random(n))
    prompt = generator.integers(1, 200, n)
    output = generator.integers(1, 50, n)
    slo = {"ttft_s": 0.5, "tpot_s": 0.02}

    once = bound(arrival_s, prompt, output, tables(), **slo)
    twice = bound(
        np.repeat(arrival_s, 2),
        np.repeat(prompt, 2),
        np.repeat(output, 2),
        tables(),
        **slo,
    )

    assert replicas(twice) >= 2 * replicas(once) * 0.95


def test_an_engine_of_one_token_an_iteration_has_a_bound():
    one = EngineSettings(max_num_batched_tokens=1, max_num_seqs=1, kv_blocks=500)

    # Of 100 prompts each token is an iteration of its own: 10 ms of a second.
    result = bound(np.zeros(100), 10, 1, tables(fixed_s=9.9e-3), engine=one)

    assert result.replica_count == 10
