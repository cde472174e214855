"""A plan made by hand: 40 GPUs = 5 replicas × 8, with every kind of candidate."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.deployment import EngineSettings
from capplan.fleet.price import Price
from capplan.planning.result import Assumption, Candidate, Plan, Probe, Series

LEVELS = np.array([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999])


def _probe(count: int, attainment: float, meets: bool, stable: bool = True) -> Probe:
    return Probe(
        replica_count=count,
        slo_attainment=attainment,
        slo_attainment_interval=(attainment - 0.004, min(1.0, attainment + 0.003)),
        ttft_p99_s=0.9 if meets else 4.2,
        tpot_p99_s=0.0281,
        e2e_p99_s=12.5,
        meets=meets,
        stable=stable,
    )


def _series() -> Series:
    start_s = np.arange(0.0, 1200.0, 10.0)
    wave = np.sin(start_s / 90.0)
    return Series(
        start_s=start_s,
        busy_share=0.8 + 0.15 * wave,
        batch_requests=60 + 20 * wave,
        waiting_requests=np.maximum(0.0, 12 * wave),
        kv_share=0.5 + 0.3 * wave,
        preemptions=np.where(wave > 0.97, 3.0, 0.0),
    )


def _quantiles(median_s: float) -> np.ndarray:
    return median_s * np.exp(1.1 * np.log(LEVELS / (1 - LEVELS)) / 1.7)


def _best() -> Candidate:
    return Candidate(
        gpu="H100-SXM",
        tp=8,
        status="feasible",
        replica_count=5,
        gpu_count=40,
        lower_bound_gpu_count=32,
        slo_attainment=0.99296,
        slo_attainment_interval=(0.989, 0.9952),
        ttft_p99_s=0.912,
        tpot_p99_s=0.02812,
        usd_per_h=99.6,
        usd_per_million_output_tokens=1.153,
        usd_per_million_total_tokens=0.287,
        binding="TPOT",
        price=Price(2.49, "RunPod pricing page", "2026-06", "community cloud"),
        engine=EngineSettings(kv_blocks=51_000),
        profile_note="fitted to published vLLM 0.11 measurements, not on your machine",
        latency_error={"prefill": 0.021, "decode": 0.014},
        probes=(
            _probe(3, 0.4123, False, stable=False),
            _probe(4, 0.9134, False),
            _probe(5, 0.99296, True),
            _probe(6, 0.9991, True),
        ),
        quantile_levels=LEVELS,
        ttft_quantiles_s=_quantiles(0.21),
        tpot_quantiles_s=_quantiles(0.02),
        e2e_quantiles_s=_quantiles(5.0),
        series=_series(),
        bound_note="Window 310 s to 342 s: 1,021 s of work due in 32 s.",
    )


@pytest.fixture
def best() -> Candidate:
    """The cheapest candidate of the plan."""
    return _best()


@pytest.fixture
def plan(best: Candidate) -> Plan:
    """A feasible plan with a second choice, a pruned and an infeasible candidate."""
    second = replace(
        best,
        gpu="A100-SXM-80GB",
        tp=4,
        replica_count=12,
        gpu_count=48,
        lower_bound_gpu_count=40,
        usd_per_h=None,
        usd_per_million_output_tokens=None,
        usd_per_million_total_tokens=None,
        price=None,
        binding="KV",
        ttft_quantiles_s=_quantiles(0.3),
        tpot_quantiles_s=_quantiles(0.024),
        e2e_quantiles_s=_quantiles(6.0),
        series=None,
    )
    return Plan(
        status="feasible",
        llm="Llama-3.1-70B",
        candidates=(
            best,
            second,
            Candidate(
                "H100-SXM",
                4,
                "pruned",
                lower_bound_gpu_count=44,
                pruned_reason="needs at least 44 GPUs, $109.56 per hour",
            ),
            Candidate(
                "L40S",
                1,
                "infeasible",
                infeasible_reason="weights of 141 GB do not fit in 48 GB",
            ),
        ),
        slo_text="ttft ≤ 1 s, tpot ≤ 30 ms",
        attainment=0.99,
        trace_source="workloads/sharegpt.csv.gz",
        request_count=20_000,
        rate_per_s=120.0,
        mean_prompt_tokens=612.4,
        mean_output_tokens=200.1,
        duration_s=166.7,
        router="join-shortest-queue",
        seed=0,
        best=best,
        best_by_gpus=best,
        runtime_s=3.2,
        assumptions=(
            Assumption("attainment", "99 %", "--attainment", "given"),
            Assumption("KV per token", "320 KiB", "config.json", "published"),
            Assumption("iteration time", "7.1 ms + …", "profiles/h100", "fitted"),
            Assumption("graphs memory", "1.5 GiB", "engine's usual figure", "assumed"),
        ),
        warnings=("The latency profile was not measured on your machine.",),
        slo_limits_s={"ttft": 1.0, "tpot": 0.03},
    )


@pytest.fixture
def infeasible(plan: Plan) -> Plan:
    """A plan without an answer."""
    return replace(
        plan,
        status="infeasible",
        best=None,
        best_by_gpus=None,
        candidates=plan.candidates[2:],
        infeasible_reason="TPOT of 3 ms is below 6.9 ms, one request alone on the "
        "fastest candidate; tpot=7ms would do.",
    )
