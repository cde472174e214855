"""The requests of Llumnix's traces, and the sixteen LLaMA-7B on A10 that serve them."""

from functools import cache
from typing import NamedTuple

import numpy as np
from papers_runs import poisson_s

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment, Pool
from capplan.fleet.catalog import gpu
from capplan.latency.contract import LatencyTables
from capplan.latency.estimate import estimated_profile
from capplan.llm.catalog import llm
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.times import Simulation
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

COUNT, REPLICAS, START, LONGEST_TOKENS = 10_000, 16, 8, 6144
KV_BLOCKS, BLOCK_BYTES = 851, 16 * 512 * 2**10
LINK_GB_PER_S = 15.0
ALPHA = {128: 2.0, 256: 1.5, 512: 1.15}
"""Exponent of the power law of each mean length (benchmark_throughput.py)."""


class Figures(NamedTuple):
    """What is compared of a run. [s], but the last"""

    e2e: float
    e2e_p99: float
    prefill: float
    prefill_p99: float
    decode: float
    decode_p99: float
    loss: float
    migrations: float = 0.0  # of a request


def power_law_tokens(rng: np.random.Generator, count: int, mean: int) -> np.ndarray:
    """Return lengths of a mean: numbers up to twice it by a power law, scaled."""
    numbers = np.arange(1, 2 * mean)
    shares = numbers ** -ALPHA[mean]
    drawn = rng.choice(numbers, count, p=shares / shares.sum())
    scaled = np.ceil(drawn * (mean / drawn.mean()))
    return np.minimum(scaled, LONGEST_TOKENS).astype(np.int64)


def requests(
    seed: int, prompt_mean: int, output_mean: int, rate_per_s: float, count: int = COUNT
) -> Trace:
    """Return the requests of a trace."""
    rng = np.random.default_rng(seed)
    prompts = power_law_tokens(rng, count, prompt_mean)
    outputs = power_law_tokens(rng, count, output_mean)
    return Trace(prompts, outputs, poisson_s(rng, count, rate_per_s))


@cache
def tables() -> LatencyTables:
    """Return the iteration times."""
    profile = estimated_profile(llm("Llama-2-7B"), gpu("A10G"), 1)
    return profile.tables(256, 12_800 + 256)


def served(
    trace: Trace,
    router: str,
    rebalancer: str = "",
    scheduler: str = "vllm-v1",
    autoscaler: str = "",
) -> Simulation:
    """Return what the sixteen, or those that are there, do with the requests."""
    engine = EngineSettings(
        max_num_batched_tokens=12_800,
        max_num_seqs=256,
        async_scheduling=False,
        kv_blocks=KV_BLOCKS,
        kv_block_bytes=BLOCK_BYTES,
        scheduler=parse_scheduler(scheduler),
    )
    pool = Pool(Configuration(engine, tables()), START if autoscaler else REPLICAS)
    deployment = Deployment(
        (pool,),
        router,
        rebalancer=rebalancer,
        link_gb_per_s=LINK_GB_PER_S,
        autoscaler=autoscaler,
    )
    return simulate(trace, deployment)


def figures_of(times: RequestTimes) -> Figures:
    """Return the figures of requests."""

    def mean_and_p99(values_s: np.ndarray) -> tuple[float, float]:
        return float(np.nanmean(values_s)), float(np.nanquantile(values_s, 0.99))

    return Figures(
        *mean_and_p99(times.e2e_s),
        *mean_and_p99(times.ttft_s),
        *mean_and_p99(times.tpot_s),
        float(np.where(times.preemptions > 0, times.longest_gap_s, 0.0).mean()),
        float(times.migrations.mean()),
    )
