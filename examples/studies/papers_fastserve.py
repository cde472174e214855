"""FastServe's figures: the rate at equal latency per token, over vLLM V0.

OPT-13B on an A100-80GB by the shipped profile (DistServe's coefficients), ShareGPT
lengths of at most 2,048 tokens together, 400 or 600 requests with Poisson arrivals: the
paper does not say how many, and where a queue grows their number counts. As in the
artifact's scripts (benchmarks/artifact-evaluation/overall) both have 16 seats and 2,048
tokens in an iteration; blocks of 16 tokens in 90 % of the memory, 56 GB on the host,
reached at 24 GB/s. The paper's limit is not published as a number: compared are the
rates at which the mean, and the P90, of the time per output token is 0.1 s, four times
that of a request alone; a rate at which the host is full is too high. The levels are
FastServe's: base quantum 10 ms, ratio 2.
"""

from dataclasses import replace
from functools import cache, partial

import numpy as np
from papers_claims import ANY, SEEDS, Claim, markdown, table
from papers_runs import highest_rate_per_s, poisson_s, sharegpt_lengths

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.deployment.replica import replica
from capplan.errors import HostFullError
from capplan.fleet.catalog import gpu
from capplan.latency.catalog import find_profile
from capplan.latency.contract import LatencyTables
from capplan.llm.catalog import llm
from capplan.llm.layout import Layout
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

COUNTS, LONGEST_TOKENS = (400, 600), 2048
BLOCK_BYTES = 16 * 4 * 40 * 5120  # of the 40 layers of 5,120 values, keys and values
LIMIT_S = 0.1  # per output token


@cache
def tables() -> LatencyTables:
    """Return the iteration times."""
    profile = find_profile("OPT-13B", "A100-80GB-SXM", 1)
    assert profile is not None
    return profile.tables(256, LONGEST_TOKENS + 256)


@cache
def requests(count: int, seed: int, rate_per_s: float) -> Trace:
    """Return the chat requests."""
    rng = np.random.default_rng(seed)
    prompts, outputs = sharegpt_lengths(
        rng, count, lambda prompt, output: prompt + output <= LONGEST_TOKENS
    )
    return Trace(prompts, outputs, poisson_s(rng, count, rate_per_s))


@cache
def served(
    scheduler: str, seats: int, count: int, seed: int, rate_per_s: float
) -> RequestTimes:
    """Return the times of the requests."""
    engine = EngineSettings(
        max_num_batched_tokens=LONGEST_TOKENS,
        max_num_seqs=seats,
        async_scheduling=False,
        kv_block_bytes=BLOCK_BYTES,
        host_kv_gib=56e9 / 2**30,
    )
    found = replica(llm("OPT-13B"), gpu("A100-80GB-SXM"), Layout(1), engine)
    engine = replace(engine, kv_blocks=found.engine.kv_blocks)
    trace = requests(count, seed, rate_per_s)
    return simulate(
        trace,
        Deployment.of(
            Configuration(
                replace(engine, scheduler=parse_scheduler(scheduler)), tables()
            ),
            1,
        ),
    ).table


@cache
def rate_per_s(scheduler: str, seats: int, tail: bool, count: int) -> np.ndarray:
    """Return the rates at which the mean time per token, or its P90, is the limit."""

    def holds(seed: int, rate: float) -> bool:
        try:
            times = served(scheduler, seats, count, seed, rate)
        except HostFullError:
            return False
        per_token_s = times.normalized_latency_s
        found_s = np.quantile(per_token_s, 0.9) if tail else per_token_s.mean()
        return bool(found_s <= LIMIT_S)

    rates = [highest_rate_per_s(partial(holds, seed), 0.2, 12.0) for seed in SEEDS]
    return np.array(rates)


SYSTEMS = {
    "vLLM V0, 16 seats": ("vllm-v0", 16),
    "FastServe, 16 seats": ("fastserve", 16),
    "vLLM V0, 256 seats": ("vllm-v0", 256),
}


def claims() -> list[Claim]:
    """Return the paper's claims beside ours."""
    vllm, fastserve, wide = SYSTEMS.values()

    def over(other: tuple[str, int], tail: bool, count: int) -> np.ndarray:
        return rate_per_s(*fastserve, tail, count) / rate_per_s(*other, tail, count)

    swaps = (
        "the more requests, the longer the queue, and the more of them swapped: what "
        "waits is the copies"
    )
    return [
        claim
        for count in COUNTS
        for claim in (
            Claim(
                f"rate at equal mean time per token, over vLLM, {count} requests",
                "up to 6.1 (NSDI '26 abstract), 31.4 (arXiv 2305.05920v3)",
                over(vllm, False, count),
                (1, 31.4),
                "",
                swaps,
            ),
            Claim(
                f"rate at equal P90 of the time per token, over vLLM, {count} requests",
                "up to 17.9 (arXiv, tail)",
                over(vllm, True, count),
                (1, 17.9),
                "",
                swaps,
            ),
            Claim(
                f"the mean's with 256 seats for vLLM, its default, {count} requests",
                "none",
                over(wide, False, count),
                ANY,
                "",
                "16 seats leave most of the KV empty: with them, vLLM queues where it "
                "need not, and that queue is what FastServe reorders",
            ),
        )
    ]


def rates() -> str:
    """Return the rate of each system at the limit, and figures at one rate."""
    rows = []
    for name, (scheduler, seats) in SYSTEMS.items():
        runs = [served(scheduler, seats, COUNTS[0], seed, 4.0) for seed in SEEDS]
        rows.append(
            (
                name,
                *(
                    f"{rate_per_s(scheduler, seats, tail, COUNTS[0]).mean():.2f}"
                    for tail in (False, True)
                ),
                f"{np.mean([run.normalized_latency_s.mean() for run in runs]):.3f}",
                f"{np.mean([run.e2e_s.mean() for run in runs]):.1f}",
                f"{np.mean([run.swaps.sum() for run in runs]):.0f}",
            )
        )
    head = (
        "system",
        "rate at mean 0.1 s/token [requests/s]",
        "rate at P90 0.1 s/token [requests/s]",
        "mean at 4/s [s/token]",
        "JCT at 4/s [s]",
        "swaps at 4/s",
    )
    return markdown(head, rows)


def section() -> str:
    """Return the section of docs/how/papers.md."""
    assert __doc__ is not None
    what = __doc__.split("\n\n", 1)[1].strip()
    return f"## FastServe\n\n{what}\n\n{table(claims())}\n\n{rates()}\n"


if __name__ == "__main__":
    print(section())
