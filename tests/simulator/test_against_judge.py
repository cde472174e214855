"""Event jumps end where single steps end, for every router and setting."""

import numpy as np
import pytest
from cases import EXAMPLES, Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import ROUTERS as JUDGED
from judge import Verdict, judge

from capplan.deployment import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.routers import ROUTERS
from capplan.simulator.times import Simulation
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

ROUNDING = 1e-9


def assert_same(simulation: Simulation, verdict: Verdict) -> None:
    times = simulation.times
    requests = verdict.requests
    ended_s = max(request.token_s[-1] for request in requests)
    close = {"rtol": 0, "atol": ROUNDING * max(1.0, ended_s)}
    gaps_s = [max(np.diff(request.token_s), default=0.0) for request in requests]
    assert times.replica.tolist() == verdict.replica
    assert times.preemptions.tolist() == [request.preemptions for request in requests]
    assert times.cached_tokens.tolist() == [
        request.cached_tokens for request in requests
    ]
    np.testing.assert_allclose(
        times.scheduled_s, [request.scheduled_s for request in requests], **close
    )
    np.testing.assert_allclose(
        times.first_token_s, [request.token_s[0] for request in requests], **close
    )
    np.testing.assert_allclose(
        times.finish_s, [request.token_s[-1] for request in requests], **close
    )
    np.testing.assert_allclose(times.longest_gap_s, gaps_s, **close)


def test_every_router_has_a_judge():
    assert set(ROUTERS) <= set(JUDGED)


@pytest.mark.parametrize("router", sorted(ROUTERS))
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(
    case=cases(replicas=4),
    ttft_s=st.sampled_from([0.5, 2.0]),
    tpot_s=st.sampled_from([0.1, 0.5, np.inf]),
)
def test_every_request_gets_the_times_of_the_step_by_step_judge(
    router, case, ttft_s, tpot_s
):
    slo = RequestSlo(ttft_s=ttft_s, tpot_s=tpot_s)
    simulation = case.simulated(router, seed=5, slo=Slo(slo))

    verdict = judge(*case, router, seed=5, slo=slo)

    assert_same(simulation, verdict)


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_best_fit_meets_the_judge_where_its_constraints_bind(seed):
    rng = np.random.default_rng(seed)
    n, max_num_seqs, max_num_batched_tokens = 60, 6, 24
    output_tokens = rng.integers(1, 30, n)
    trace = Trace(
        rng.integers(1, 40, n),
        output_tokens,
        np.cumsum(rng.exponential(0.08, n)),
        predicted_output_tokens=output_tokens + rng.integers(0, 6, n),
    )
    engine = EngineSettings(
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        block_size=4,
        kv_blocks=20 + int(rng.integers(0, 40)),
        async_scheduling=bool(seed % 2),
    )
    tables = linear_tables(
        0.01,
        1e-3,
        0.0,
        1e-3,
        float(rng.choice([1e-5, 2e-4])),
        max_batch=max_num_seqs,
        max_tokens=max_num_batched_tokens,
    )
    slo = RequestSlo(
        ttft_s=float(rng.choice([0.05, 0.15, 1.0])),
        tpot_s=float(rng.choice([0.03, 0.06, 0.12])),
    )
    case = Case(trace, tables, engine, 4)

    simulation = case.simulated("best-fit", slo=Slo(slo))

    assert_same(simulation, judge(*case, "best-fit", slo=slo))
