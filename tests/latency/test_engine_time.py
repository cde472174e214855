"""The engine's time beside its kernels."""

import numpy as np
import pytest

from capplan.latency.capacity import (
    LEVELS,
    alone_s,
    capacity_range,
    capacity_ratio,
    users,
)
from capplan.latency.contract import linear_tables
from capplan.latency.engine_time import EngineTime, ServedError
from capplan.latency.measurements import points_from_rows
from capplan.latency.profile import ErrorRecord, Profile
from capplan.latency.profile_file import load_profile, save_profile
from capplan.latency.terms import DecodeTerms, FusedTerms

SERVED = ServedError(sweeps=7, tpot=[0.9, 1.0, 1.2], capacity=[0.7, 1.0, 1.3])


def kernels(**changes):
    terms = {"constant_s": 0.01, "per_request_s": 1e-4, "per_context_s": 1e-8}
    return Profile(
        gpu="H100-SXM",
        llm="Llama-3.1-8B",
        tp=1,
        engine="vllm",
        source="test",
        how="kernel-sum",
        decode_form="aladdin",
        fused_form="aladdin",
        decode=DecodeTerms(**terms),
        fused=FusedTerms(**terms, per_token_s=1e-5),
        errors={"decode": ErrorRecord(sigma=0.05)},
    ).model_copy(update=changes)


def test_every_iteration_takes_the_engines_time_too():
    tables = linear_tables(6e-3, 2e-5, 1e-10, 5e-5, 2e-8, max_batch=4, max_tokens=64)
    time = EngineTime(
        decode_factor=1.5,
        prefill_factor=1.5,
        iteration_s=1e-3,
        per_request_s=2e-4,
        request_s=0.01,
        source="",
    )

    made = time.applied(tables)

    # Three requests with a context of 50 in all decode; a prompt of 20 may be beside.
    alone_s = tables.decode_s[3] + 50 * tables.decode_context_s[3]
    beside_s = (
        tables.fused_s[23]
        + tables.fused_decode_s[3]
        + 50 * tables.fused_context_s[3]
        + 200 * tables.attention_s
    )
    assert made.decode_s[3] + 50 * made.decode_context_s[3] == pytest.approx(
        1.5 * alone_s + 1e-3 + 3 * 2e-4
    )
    assert (
        made.fused_s[23]
        + made.fused_decode_s[3]
        + 50 * made.fused_context_s[3]
        + 200 * made.attention_s
    ) == pytest.approx(1.5 * beside_s + 1e-3 + 3 * 2e-4)
    assert made.request_s == 0.01


def test_tokens_beyond_64_take_the_factor_of_prefill_and_the_rest_that_of_decoding():
    tables = linear_tables(6e-3, 2e-5, 1e-10, 5e-5, 2e-8, max_batch=80, max_tokens=512)
    time = EngineTime(decode_factor=0.9, prefill_factor=2.0, source="")

    made = time.applied(tables)

    # The first 64 tokens as decoding, the other 236 as prefill, and their attention.
    beyond_s = tables.fused_s[300] - tables.fused_s[64]
    assert made.fused_s[300] == pytest.approx(0.9 * tables.fused_s[64] + 2 * beyond_s)
    assert made.fused_s[40] == pytest.approx(0.9 * tables.fused_s[40])
    assert made.attention_s == pytest.approx(2 * tables.attention_s)
    assert made.decode_s == pytest.approx(0.9 * tables.decode_s)
    assert made.fused_context_s == pytest.approx(0.9 * tables.fused_context_s)


def test_an_iteration_with_prefill_takes_its_own_time_and_one_of_decoding_none():
    tables = linear_tables(6e-3, 2e-5, 1e-10, 5e-5, 2e-8, max_batch=4, max_tokens=64)
    time = EngineTime(prefill_iteration_s=0.02, source="")

    made = time.applied(tables)

    assert made.fused_s == pytest.approx(tables.fused_s + 0.02)
    assert (made.decode_s == tables.decode_s).all()
    assert "20.00 ms one with prefill" in str(time)


def test_a_profile_predicts_the_iterations_that_its_tables_hold():
    time = EngineTime(
        decode_factor=0.9,
        prefill_factor=2.0,
        iteration_s=1e-3,
        prefill_iteration_s=5e-3,
        source="",
    )
    profile = kernels(engine_time=time)
    made = profile.tables(80, 512)
    points = points_from_rows(
        [
            ("decode", 70, 70, 100, 1),
            ("prefill", 1, 300, 0, 1),
            ("mixed", 8, 208, 50, 1),
        ]
    )

    seconds = profile.predict(points)

    assert seconds[0] == pytest.approx(
        made.decode_s[70] + 7000 * made.decode_context_s[70]
    )
    assert seconds[1] == pytest.approx(made.fused_s[300])
    assert seconds[2] == pytest.approx(
        made.fused_s[208] + made.fused_decode_s[8] + 400 * made.fused_context_s[8]
    )


def test_one_factor_of_an_older_file_is_both():
    time = EngineTime.model_validate({"factor": 1.2, "source": ""})

    assert (time.decode_factor, time.prefill_factor) == (1.2, 1.2)


@pytest.mark.parametrize(("share", "factor"), [(0.1, 0.9), (0.5, 1.0), (0.9, 1.2)])
def test_the_three_quantiles_are_met(share, factor):
    assert SERVED.slowdown(share) == pytest.approx(factor)


def test_times_rise_with_the_share_of_engines_that_stay_within():
    factors = [SERVED.slowdown(share) for share in np.linspace(0.01, 0.99, 50)]

    assert factors == sorted(factors)
    assert factors[0] > 0


def test_a_cautious_plan_gives_a_replica_fewer_users_than_most_engines_carry():
    profile = kernels(engine_time=EngineTime(source="", served=SERVED))
    limit_s = LEVELS[0] * alone_s(profile)
    share = users(profile, limit_s, 0.9) / users(profile, limit_s)

    assert share < 1
    assert capacity_ratio(profile, 0.9) == pytest.approx((0.7 / share, 1.3 / share))


def test_tables_hold_the_engines_time_at_the_quantile():
    time = EngineTime(iteration_s=1e-3, source="", served=SERVED)
    profile = kernels(engine_time=time)

    plain, cautious = (
        profile.tables(8, 64, quantile=quantile).decode_s[1] for quantile in (0.5, 0.9)
    )

    assert plain == pytest.approx(0.01 + 1e-4 + 1e-3)
    assert cautious == pytest.approx(1.2 * plain)


def test_a_profile_without_sweeps_slows_by_its_own_sigma():
    plain, cautious = (
        kernels().tables(8, 64, quantile=quantile).decode_s[1]
        for quantile in (0.5, 0.841345)
    )

    assert cautious == pytest.approx(1.05 * plain)


def test_a_kernel_sum_is_of_kernels_and_is_saved_so(tmp_path):
    save_profile(kernels(), tmp_path / "tp1.yaml")

    loaded = load_profile(tmp_path / "tp1.yaml")

    assert loaded.kernels_from == "kernel-sum"
    assert "kernels_from" not in (tmp_path / "tp1.yaml").read_text()


def test_users_within_a_limit_by_hand():
    profile = kernels()
    # 10 ms + b · (0.1 ms + 1,536 · 10 ns): 115.36 µs a request.
    assert alone_s(profile) == pytest.approx(0.01011536)
    assert users(profile, 0.011) == pytest.approx(1e-3 / 115.36e-6, rel=1e-6)
    assert users(profile, 0.009) == 0
    assert users(profile, 1.0) == 1024


def test_a_tenth_of_tpot_is_far_more_of_the_capacity():
    low, high = capacity_range(
        kernels(engine_time=EngineTime(source="", served=SERVED)), LEVELS[0]
    )

    assert low < 0.3 < 1.3 < high


def test_what_engines_carry_is_counted_in_sweeps_or_comes_from_the_fits_error():
    counted = kernels(engine_time=EngineTime(source="", served=SERVED))
    measured = kernels(how="measured", kernels_from=None)

    assert capacity_ratio(counted, 0.5) == pytest.approx((0.7, 1.3))
    low, high = capacity_ratio(measured, 0.5)
    assert low < 1 < high
    assert capacity_ratio(kernels(), 0.5) is None
