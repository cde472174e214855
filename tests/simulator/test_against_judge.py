"""Event jumps end where single steps end, for every router and setting."""

from dataclasses import replace

import numpy as np
import pytest
from cases import EXAMPLES, TICK_S, Case, cases, for_scheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import ROUTERS as JUDGED
from judge import Verdict, judge
from judge_fleet_pool import ROUTERS as JUDGED_IN_FLEETS
from judge_schedulers import SCHEDULERS as JUDGED_SCHEDULERS

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables, linear_tables
from capplan.simulator.results.times import Simulation
from capplan.simulator.routers import ROUTERS
from capplan.simulator.schedulers import SCHEDULERS
from capplan.simulator.schedulers import scheduler as find_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ROUNDING = 1e-9
LIMITS = [
    RequestSlo(ttft_s=0.2, tbt_s=0.05),
    RequestSlo(ttft_s=0.5, tpot_s=0.1, tbt_s=0.2),
    RequestSlo(e2e_s=0.8),
]


def assert_same(simulation: Simulation, verdict: Verdict) -> None:
    times = simulation.times
    requests = verdict.requests
    ended_s = max(request.token_s[-1] for request in requests)
    close = {"rtol": 0, "atol": ROUNDING * max(1.0, ended_s)}
    gaps_s = [max(np.diff(request.token_s), default=0.0) for request in requests]
    assert times.replica.tolist() == verdict.replica
    assert times.preemptions.tolist() == [request.preemptions for request in requests]
    assert times.swaps.tolist() == [request.swaps for request in requests]
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
    assert times.late_gaps.tolist() == [
        int((np.diff(request.token_s) > request.slo.tbt_s).sum())
        for request in requests
    ]


# Looks at whole ticks, at which requests arrive and iterations end; none; queues alone.
SEEN = [
    f"llm-d:refresh={4 * TICK_S}s",
    "llm-d:refresh=0s,prefix=1",
    f"llm-d:kv=0,prefix=0,refresh={16 * TICK_S}s",
]


def test_every_router_has_a_judge():
    assert set(ROUTERS) <= set(JUDGED) | set(JUDGED_IN_FLEETS)


def test_every_scheduler_has_a_judge():
    v1 = {"vllm-v1", "vllm-v1-priority"}
    assert set(SCHEDULERS) <= v1 | set(JUDGED_SCHEDULERS)


@pytest.mark.thorough
@pytest.mark.parametrize("router", [*sorted(JUDGED), *SEEN])
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(
    case=cases(replicas=4),
    ttft_s=st.sampled_from([0.5, 2.0]),
    tpot_s=st.sampled_from([0.1, 0.5, np.inf]),
    tbt=st.integers(1, 40),
)
def test_every_request_gets_the_times_of_the_step_by_step_judge(
    router, case, ttft_s, tpot_s, tbt
):
    slo = RequestSlo(ttft_s=ttft_s, tpot_s=tpot_s, tbt_s=tbt * TICK_S)
    simulation = case.simulated(router, seed=5, slo=Slo(slo))

    verdict = judge(*case, router, seed=5, slo=slo)

    assert_same(simulation, verdict)


@pytest.mark.thorough
@pytest.mark.parametrize("scheduler", sorted(set(SCHEDULERS) - {"vllm-v1"}))
@settings(deadline=None, max_examples=4 * EXAMPLES)
@given(
    case=cases(replicas=3),
    seed=st.integers(0, 2**20),
    router=st.sampled_from(sorted(JUDGED)),
    slo=st.sampled_from(LIMITS),
    tbt=st.integers(1, 40),
)
def test_every_scheduler_meets_its_judge(scheduler, case, seed, router, slo, tbt):
    rules = find_scheduler(scheduler).RULES
    if router in ("best-fit", "llm-d") and (rules.orders or not rules.in_order):
        router = "jsq"  # these read the queue, best fit in its order of arrival
    scheduler, case = for_scheduler(scheduler, case, seed)
    slo = replace(slo, tbt_s=tbt * TICK_S)

    simulation = case.simulated(router, scheduler=scheduler, slo=Slo(slo), seed=seed)

    verdict = judge(*case, router, seed, slo, scheduler=scheduler)
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


def test_a_preemption_that_lets_another_finish_early_is_seen_by_the_router():
    # Requests 0 and 2 share a replica. 2 is preempted in its third iteration, so that 0
    # is done at 138 ms instead of 168, and request 4 finds one request on each.
    trace = Trace([4, 4, 4, 1, 1], [6, 9, 6, 1, 1], [0.0, 0.0, 0.0, 0.02, 0.15])
    tables = linear_tables(10e-3, 1e-3, 0, 1e-2, 0, max_batch=2, max_tokens=16)
    engine = EngineSettings(
        max_num_batched_tokens=16,
        max_num_seqs=2,
        block_size=1,
        kv_blocks=13,
        async_scheduling=False,
    )
    case = Case(trace, tables, engine, 2)

    simulation = case.simulated("jsq")

    assert simulation.times.preemptions.tolist() == [0, 0, 1, 0, 0]
    assert simulation.times.replica.tolist() == [0, 1, 0, 1, 0]
    assert_same(simulation, judge(*case, "jsq"))


def test_a_full_prefix_cache_evicts_the_same_block():
    # Request 10 may find the block of request 7, if request 9 did not take it.
    trace = Trace(
        [1, 1, 1, 1, 1, 1, 1, 2, 13, 1, 3, 8],
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 1, 16],
        [0.0] * 8 + [0.05787807] * 2 + [0.22696568] * 2,
        prefix_group=np.array([0] * 7 + [1, 0, 0, 1, 0]),
        prefix_tokens=np.array([0] * 7 + [2, 0, 0, 2, 0]),
    )
    tables = LatencyTables(
        decode_s=np.full(3, 0.01),
        decode_context_s=np.array([0.00016299, 0.00023035, 0.00030588]),
        fused_s=np.array([0.01, 0.01328643, 0.01328772]),
        fused_decode_s=np.array([0.0, 0.0, 0.00314991]),
        fused_context_s=np.zeros(3),
        attention_s=1e-5,
        request_s=0.015625,
    )
    engine = EngineSettings(
        max_num_batched_tokens=2,
        max_num_seqs=2,
        block_size=2,
        kv_blocks=13,
        prefix_caching=True,
    )

    simulation = simulate(trace, fleet_of(tables, engine, 1))

    assert_same(simulation, judge(trace, tables, engine, 1, "jsq", seed=0))
