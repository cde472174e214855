"""A profile is made of requests that were served, and of nothing else."""

import numpy as np
import pytest

from capplan.calibration.calibrate import NAMES
from capplan.calibration.served_fit import fit_served
from capplan.calibration.served_work import iteration_work, served_work
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.latency.fitted_profile import Identity
from capplan.latency.profile_file import load_profile, save_profile
from capplan.latency.served_run import ServedRun
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

LIMITS = EngineSettings(
    max_num_batched_tokens=512, max_num_seqs=32, block_size=16, kv_blocks=600
)
IDENTITY = Identity(
    gpu="L4", llm="Llama-3.1-8B", tp=1, engine="vllm", source="test", how="measured"
)
TRUE_S = np.array([8e-3, 5e-5, 4e-8, 2e-5, 2e-7])


def tables_of(coefficients_s):
    return linear_tables(*coefficients_s, max_batch=32, max_tokens=512)


def trace_of(seed, n=80, rate=8.0):
    rng = np.random.default_rng(seed)
    return Trace(
        rng.integers(20, 900, n),
        rng.integers(10, 120, n),
        np.cumsum(rng.exponential(1 / rate, n)),
    )


def served(trace, noise=0.0, seed=0) -> ServedRun:
    times = simulate(trace, fleet_of(tables_of(TRUE_S), LIMITS, 1)).times
    rng = np.random.default_rng(seed)
    ttft_s, later_s = (
        part * np.exp(noise * rng.standard_normal(len(trace)))
        for part in (times.ttft_s, times.finish_s - times.first_token_s)
    )
    return ServedRun(
        arrival_s=trace.arrival_s - trace.arrival_s[0],
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
        ttft_s=ttft_s,
        e2e_s=ttft_s + later_s,
        source="run.json",
        failed=0,
    )


@pytest.fixture(scope="module")
def fitted():
    return fit_served(served(trace_of(1)), LIMITS, IDENTITY)


def test_work_times_coefficients_is_what_each_request_waited():
    simulation = simulate(
        trace_of(3), fleet_of(tables_of(TRUE_S), LIMITS, 1), record_iterations=True
    )

    work = served_work(simulation)

    steps = simulation.iterations.steps
    per_step = iteration_work(simulation.iterations, simulation.times.prompt_tokens)
    assert per_step @ TRUE_S == pytest.approx(steps["end_s"] - steps["start_s"])
    assert work.tpot @ TRUE_S == pytest.approx(simulation.times.tpot_s)
    # A request that arrives at an idle engine may wait for work to begin.
    assert work.ttft @ TRUE_S == pytest.approx(simulation.times.ttft_s, rel=1e-6)


def test_known_coefficients_are_found_again_within_their_errors(fitted):
    found = fitted.calibration

    off = np.abs(found.coefficients_s - TRUE_S)

    assert found.identified[[0, 1, 4]].all()
    within = (off < 4 * found.standard_errors_s) | (off < 0.05 * TRUE_S)
    assert within[found.identified].all()
    assert fitted.profile.errors["decode"].mean_abs < 0.005


@pytest.mark.slow
def test_standard_errors_are_as_large_as_what_noise_does():
    founds = [
        fit_served(served(trace_of(seed), 0.03, seed), LIMITS, IDENTITY).calibration
        for seed in range(8)
    ]

    z = np.array([(f.coefficients_s - TRUE_S) / f.standard_errors_s for f in founds])

    assert np.abs(z[:, [0, 1, 4]]).max() < 4
    assert np.sqrt((z[:, [0, 1, 4]] ** 2).mean()) < 2


def test_the_profile_gives_the_tables_that_were_found(fitted, tmp_path):
    save_profile(fitted.profile, tmp_path / "p.yaml")

    read = load_profile(tmp_path / "p.yaml").tables(32, 512)

    found = tables_of(fitted.calibration.coefficients_s.tolist())
    for name, table in found._asdict().items():
        mine = np.asarray(getattr(read, name))
        if name == "fused_s":
            mine = mine[: len(table)]  # a profile's reaches further
        assert mine == pytest.approx(table, rel=2e-5, abs=1e-9), name


def test_prompt_tokens_may_cost_more_than_decoding_requests(fitted):
    tables = fitted.profile.tables(32, 512)

    assert tables.fused_decode_s[32] < 0
    tables.check(32, 512)


def test_the_profile_says_how_it_was_found_and_where_it_holds(fitted):
    profile = fitted.profile

    assert "simulation" in profile.meta["found_by"]
    identified = np.array(NAMES)[fitted.calibration.identified]
    assert profile.meta["identified"] == ", ".join(identified)
    assert profile.errors["decode"].held_out_mean_abs is not None
    assert profile.validity.prefill.new_tokens[1] <= 512
    run = trace_of(1)
    longest = (run.prompt_tokens + run.output_tokens).max() - 1
    assert profile.validity.decode.context[1] == longest
    assert 1 <= profile.validity.decode.batch[1] <= 32


def test_blocks_that_hold_no_request_are_refused_with_how_many_would_do():
    run = served(trace_of(1))
    small = EngineSettings(512, 32, 16, kv_blocks=3)
    most = int((run.prompt_tokens + run.output_tokens).max()) - 1
    needed = -(-most // 16) + 1

    with pytest.raises(InputError, match=f"expected kv_blocks >= {needed}"):
        fit_served(run, small, IDENTITY)
    fits = EngineSettings(512, 32, 16, kv_blocks=needed)
    simulate(trace_of(1), fleet_of(tables_of(TRUE_S), fits, 1))


def test_a_short_run_is_refused():
    run = served(trace_of(1, n=19))

    with pytest.raises(InputError, match=r"run\.json: 19 requests .* at least 20"):
        fit_served(run, LIMITS, IDENTITY)
