"""The iteration time is found again from requests that were served with it."""

import numpy as np
import pytest

from capplan.calibration.calibrate import calibrate
from capplan.deployment import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.latency.served_run import ServedRun
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

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
    times = simulate(trace, tables, LIMITS, 1).times
    return ServedRun(
        arrival_s=trace.arrival_s,
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
        ttft_s=times.ttft_s,
        e2e_s=times.e2e_s,
        source="simulated",
        failed=0,
    )


def test_coefficients_are_found_again_and_predict_the_rest():
    run = served_with(TRUE_S)

    found = calibrate(run, LIMITS, rows=np.arange(30))

    assert found.fitted_rows.tolist() == list(range(30))
    assert found.ttft_error < 0.03
    assert found.tpot_error < 0.03
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
    assert found.singular_values[-1] < 1e-2 * found.singular_values[0]


def test_a_run_without_ttft_cannot_be_fitted():
    run = served_with(TRUE_S, n=25)._replace(ttft_s=np.full(25, np.nan))

    with pytest.raises(InputError, match="0 requests have a TTFT"):
        calibrate(run, LIMITS)
