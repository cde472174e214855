"""The iteration time is found again from requests that were served with it."""

import numpy as np
import pytest

from capplan.calibration.calibrate import _errors, _standard_errors, calibrate
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.latency.served_run import ServedRun
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

LIMITS = EngineSettings(
    max_num_batched_tokens=512, max_num_seqs=32, block_size=16, kv_blocks=600
)
TRUE_S = (8e-3, 5e-5, 1e-9, 5e-5, 2e-7)


def served_with(coefficients_s, n=60, rate=8.0, prompt=None) -> ServedRun:
    rng = np.random.default_rng(5)
    trace = Trace(
        np.full(n, prompt) if prompt else rng.integers(20, 900, n),
        rng.integers(10, 120, n),
        np.cumsum(rng.exponential(1 / rate, n)),
    )
    tables = linear_tables(*coefficients_s, max_batch=32, max_tokens=512)
    times = simulate(trace, fleet_of(tables, LIMITS, 1)).times
    return ServedRun(
        arrival_s=trace.arrival_s,
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
        ttft_s=times.ttft_s,
        e2e_s=times.e2e_s,
        source="simulated",
        failed=0,
    )


def rms_of_ttft_and_tpot(run, found) -> np.ndarray:
    errors = _errors(run, found.times, found.fitted_rows)
    return np.sqrt((errors.reshape(2, -1) ** 2).mean(axis=1))


def test_coefficients_are_found_again_and_predict_the_rest():
    run = served_with(TRUE_S)

    found = calibrate(run, LIMITS, rows=np.arange(30))

    assert found.fitted_rows.tolist() == list(range(30))
    assert (rms_of_ttft_and_tpot(run, found) < 0.03).all()
    assert found.coefficients_s == pytest.approx(TRUE_S, rel=0.05)
    assert found.identified[0]
    rest = slice(30, None)
    assert found.times.e2e_s[rest].mean() == pytest.approx(
        run.e2e_s[rest].mean(), rel=0.02
    )


def test_what_a_run_does_not_show_is_not_identified():
    # One request at a time with a short prompt: neither batch nor attention varies.
    run = served_with(TRUE_S, n=25, rate=0.5, prompt=16)

    found = calibrate(run, LIMITS)

    assert found.identified[0]
    assert not found.identified[2]


def test_a_run_without_ttft_cannot_be_fitted():
    run = served_with(TRUE_S, n=25)._replace(ttft_s=np.full(25, np.nan))

    with pytest.raises(InputError, match="0 requests have a TTFT"):
        calibrate(run, LIMITS)


def test_a_run_twice_as_slow_has_coefficients_twice_as_large():
    run = served_with(TRUE_S, n=30)
    slow = run._replace(
        arrival_s=2 * run.arrival_s, ttft_s=2 * run.ttft_s, e2e_s=2 * run.e2e_s
    )

    once, twice = calibrate(run, LIMITS), calibrate(slow, LIMITS)

    # Two is a power of two: every product is exact, so is the schedule.
    assert twice.coefficients_s == pytest.approx(2 * once.coefficients_s, rel=1e-9)
    errors_s = 2 * once.standard_errors_s
    assert twice.standard_errors_s == pytest.approx(errors_s, rel=1e-6)
    errors = rms_of_ttft_and_tpot(run, once)
    assert rms_of_ttft_and_tpot(slow, twice) == pytest.approx(errors, rel=1e-6)


def test_a_coefficient_that_no_request_depends_on_has_no_bounded_error():
    rng = np.random.default_rng(0)
    work = rng.random((200, 5))
    work[:, 3] = 0.0

    errors = _standard_errors(work, 0.01 * rng.standard_normal(200))

    assert np.isinf(errors).tolist() == [False, False, False, True, False]


def test_standard_errors_are_the_spread_of_estimates_under_independent_noise():
    # Judge: ordinary least squares on fresh noise, 400 times.
    rng = np.random.default_rng(1)
    work = rng.random((2000, 5))
    noise = 0.02 * rng.standard_normal((400, 2000))
    estimates = noise @ np.linalg.pinv(work).T

    errors = np.array([_standard_errors(work, left) for left in noise[:100]])

    ratio = np.sqrt((errors**2).mean(axis=0)) / estimates.std(axis=0)
    # Outliers of 0.1 weigh half, so 0.02 is nearly Gaussian; 0.4 % is added.
    assert ratio == pytest.approx(np.ones(5), abs=0.15)
