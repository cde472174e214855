"""Aladdin's workers on A100, their requests, and what becomes of these."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.fleet.catalog import gpu
from capplan.latency.catalog import find_profile
from capplan.latency.contract import LatencyTables
from capplan.latency.estimate import estimated_profile
from capplan.latency.profile import Profile
from capplan.llm.catalog import llm
from capplan.simulator.simulate import simulate
from capplan.workload.catalog import shipped_workload
from capplan.workload.predictors import predict
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

SPAN_S = 60.0
BLOCK_TOKENS = 16
SEATS = 256


class Setting(NamedTuple):
    """A row of Table 2 on the GPUs that Table 3 finds best for a worker."""

    llm: str
    tp: int
    ttft_s: float
    tpot_s: float


LARGE, SMALL = (
    Setting("Llama-2-70B", 2, 1.6, 0.075),
    Setting("Llama-2-7B", 1, 0.4, 0.015),
)
MIDDLE = Setting("Llama-2-13B", 1, 0.6, 0.030)


def profile_of(name: str, tp: int) -> Profile:
    """Return the shipped profile on A100, joined by NVLink, or else an estimate."""
    card = gpu("A100-80GB-SXM")
    shipped = find_profile(name, card.name, tp)
    return shipped or estimated_profile(llm(name), card, tp)


@cache
def worker(name: str, tp: int, decodes_only: bool) -> Configuration:
    """Return an A100 worker: shipped profile, KV in 90 % less the weights."""
    model, card = llm(name), gpu("A100-80GB-SXM")
    profile = profile_of(name, tp)
    kv_bytes = 0.9 * tp * card.memory_bytes - model.weight_bytes()
    blocks = int(kv_bytes // model.kv_bytes_per_token() // BLOCK_TOKENS)
    budget = 100_000 if decodes_only else 4096
    tables = profile.tables(SEATS, 4096)
    if decodes_only:
        tables = free_prompts(tables, budget)
    engine = EngineSettings(budget, SEATS, BLOCK_TOKENS, blocks + 1)
    return Configuration(engine, tables)


def free_prompts(tables: LatencyTables, budget_tokens: int) -> LatencyTables:
    """Return tables whose iterations take as long as without their prompts."""
    decode_s = tables.decode_s.copy()
    decode_s[0] = decode_s[1]
    return tables._replace(
        fused_s=np.zeros(budget_tokens + SEATS + 1),
        fused_decode_s=decode_s,
        fused_context_s=tables.decode_context_s,
        attention_s=0.0,
    )


@cache
def arrivals(rate_per_s: float, predictor: str, seed: int) -> Trace:
    """Return ShareGPT requests with Poisson arrivals and predicted lengths."""
    rng = np.random.default_rng(seed)
    workload = shipped_workload("sharegpt")
    fits = (workload.prompt_tokens <= 2048) & (workload.output_tokens <= 2048)
    rows = rng.choice(np.flatnonzero(fits), int(rate_per_s * SPAN_S))
    trace = Trace(
        workload.prompt_tokens[rows],
        workload.output_tokens[rows],
        np.cumsum(rng.exponential(1 / rate_per_s, len(rows))),
    )
    predicted = predict(predictor, trace, None, np.random.default_rng(0))
    return replace(trace, predicted_output_tokens=predicted)


def outcome(
    trace: Trace, setting: Setting, deployment: Deployment
) -> tuple[float, float]:
    """Return the share of requests within TTFT and mean TPOT, and the P99 TPOT [s]."""
    slo = Slo(RequestSlo(ttft_s=setting.ttft_s, tpot_s=setting.tpot_s))
    times = simulate(trace, deployment, slo=slo).table
    ttft_s = times.first_token_s - times.arrival_s
    gaps = np.maximum(trace.output_tokens - 1, 1)
    tpot_s = (times.finish_s - times.first_token_s) / gaps
    kept = (ttft_s <= setting.ttft_s) & (tpot_s <= setting.tpot_s)
    return float(kept.mean()), float(np.quantile(tpot_s, 0.99))


def fleet(of: Configuration, how: str, count: int, theta: float = 0.5) -> Deployment:
    """Return workers behind a router, or Aladdin's heartbeat."""
    if how != "aladdin":
        return Deployment.of(of, count, how)
    dispatcher = f"aladdin:beat=0.2s,theta={theta}"
    return replace(Deployment.of(of, count), dispatcher=dispatcher)
