"""The engine's own time, fitted to load tests."""

import numpy as np
import pytest

from capplan.calibration.load_test import SweepPoint
from capplan.calibration.sweep_fit import (
    NAMES,
    PRIOR_SPREAD,
    UNTOLD,
    Served,
    fit_engine_time,
)
from capplan.calibration.sweep_score import score, served_error, users_within
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.latency.engine_time import EngineTime

KERNELS = linear_tables(6e-3, 2e-5, 1e-10, 5e-5, 2e-8, max_batch=64, max_tokens=8192)
TRUE = EngineTime(factor=1.1, iteration_s=1.2e-3, per_request_s=4.5e-5, source="")
USUAL = EngineTime(iteration_s=7e-4, per_request_s=4e-5, source="")
ENGINE = EngineSettings()


def served(users, *, isl=1024, osl=256, noise=0.0, seed=0, true=TRUE, ttft=False):
    draw = np.random.default_rng(seed)
    tests = []
    for count in users:
        point = SweepPoint(isl, osl, count, 1.0, least_share=0.8)
        seen = Served(point, KERNELS, ENGINE).simulated(true)
        tpot_s = seen.tpot_s * (1 + noise * draw.standard_normal())
        point = point._replace(tpot_s=tpot_s, ttft_s=seen.ttft_s if ttft else None)
        tests.append(Served(point, KERNELS, ENGINE))
    return tests


def test_other_concurrencies_are_predicted_from_half_of_a_sweep():
    half = served([4, 16, 64])

    time = fit_engine_time(half, USUAL).time

    for test in served([8, 32]):
        assert test.simulated(time).slower(test.point) == pytest.approx(1, abs=0.01)


def test_a_wide_sweep_tells_both_factors_apart_within_their_errors():
    true = TRUE.model_copy(update={"decode_factor": 0.9, "prefill_factor": 1.9})
    tests = [
        test
        for isl, osl in ((256, 256), (1024, 256), (4000, 128))
        for test in served([1, 4, 16, 64], isl=isl, osl=osl, true=true, ttft=True)
    ]

    fit = fit_engine_time(tests, USUAL)

    found, right = (np.array([getattr(t, n) for n in NAMES]) for t in (fit.time, true))
    is_fitted = np.array([name not in UNTOLD for name in NAMES])
    assert (np.abs(found - right) < 3 * fit.standard_errors)[is_fitted].all()
    assert fit.determined[1]
    assert fit.time.prefill_factor == pytest.approx(1.9, abs=0.05)
    assert np.abs(fit.ratio - 1).max() < 0.02


def test_an_iteration_with_prefill_is_fitted_where_it_is_asked_for_alone():
    true = TRUE.model_copy(update={"prefill_iteration_s": 0.03})
    tests = [
        test
        for isl, osl in ((256, 256), (1024, 256), (4000, 128))
        for test in served([1, 4, 16, 64], isl=isl, osl=osl, true=true)
    ]

    wide = (*PRIOR_SPREAD[:4], 0.1, *PRIOR_SPREAD[5:])
    found = fit_engine_time(tests, USUAL, fixed=(), spread=wide)
    kept = fit_engine_time(tests, USUAL)

    assert 0.02 < found.time.prefill_iteration_s < 0.04
    assert np.abs(found.ratio - 1).max() < 0.03
    assert kept.time.prefill_iteration_s == 0
    assert np.abs(kept.ratio - 1).max() > np.abs(found.ratio - 1).max()


def test_short_prompts_do_not_tell_the_factor_of_prefill():
    fit = fit_engine_time(served([4, 16], isl=32), USUAL)

    assert not fit.determined[1]
    assert fit.time.prefill_factor == pytest.approx(1, abs=0.1)


def test_other_shapes_are_predicted_where_prefill_is_slower_than_its_kernels():
    true = TRUE.model_copy(update={"prefill_factor": 2.0})
    seen = served([4, 16, 64], osl=512, true=true, ttft=True)

    time = fit_engine_time(seen, USUAL).time

    for test in served([8, 32], isl=4000, osl=64, true=true):
        assert test.simulated(time).slower(test.point) == pytest.approx(1, abs=0.04)


def test_neighbouring_concurrencies_alone_determine_little():
    fit = fit_engine_time(served([4, 5]), USUAL)

    assert not fit.determined[1:].all()


def test_a_fixed_factor_stays():
    fit = fit_engine_time(served([4, 16, 64]), USUAL, fixed=["decode_factor"])

    assert fit.time.decode_factor == 1.0
    assert not fit.determined[0]


def test_noise_moves_the_predictions_by_about_as_much():
    noisy = served([4, 8, 16, 32, 64], noise=0.03, seed=3)

    time = fit_engine_time(noisy, USUAL).time

    errors = [
        test.simulated(time).slower(test.point) - 1 for test in served([4, 16, 64])
    ]
    assert np.abs(errors).max() < 0.05


def test_a_prediction_that_is_right_scores_one():
    users, tpot_s = [4, 8, 16, 32], [0.010, 0.011, 0.0135, 0.02]

    found = score(users, tpot_s, tpot_s)

    assert found.tpot == 1
    assert found.capacity == pytest.approx((1, 1, 1))


def test_a_tpot_that_is_short_by_a_tenth_promises_far_more_users():
    users, tpot_s = np.array([4, 8, 16, 32, 64]), np.array([10, 11, 12.5, 15, 20]) / 1e3

    found = score(users, tpot_s, 0.9 * tpot_s)

    # The limit is 12.5 ms, at 16 users; 0.9 times the curve passes it at 24.9.
    assert found.capacity[0] == pytest.approx(
        (16 + 16 * (12.5 / 0.9 - 12.5) / 2.5) / 16
    )
    assert found.tpot == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("limit_s", "users"), [(0.005, 2.0), (0.01, 4.0), (0.015, 6.0), (0.03, 12.0)]
)
def test_users_are_interpolated_and_continued(limit_s, users):
    at, tpot_s = np.array([4.0, 8.0]), np.array([0.01, 0.02])

    assert users_within(at, tpot_s, limit_s) == pytest.approx(users)


def test_groups_of_sweeps_count_alike():
    slow = score([4, 8], [1.0, 2.0], [0.5, 1.0])
    right = score([4, 8], [1.0, 2.0], [1.0, 2.0])

    error = served_error([slow] * 9 + [right], groups=["a"] * 9 + ["b"])

    assert error.sweeps == 10
    # Nine sweeps of one engine weigh as much as the one of the other.
    # Their median is between, and two groups' spread is widened by a half around it.
    assert error.tpot[0] < 1.0 < error.tpot[1] < 2.0 < error.tpot[2]
