"""AccelGen's requests of mixed length with SLOs of their own, and their figures."""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from papers_claims import SEEDS
from papers_runs import own_classes, poisson_s, sharegpt_lengths

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.latency.contract import linear_tables
from capplan.simulator.results.times import Simulation
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.slo import parse_slo
from capplan.workload.trace import Trace

OVERLOAD_PER_S, SERVED_PER_S = 8.0, 0.4
PROMPT_HEAVY = 0.055  # of the answers: Sarathi's iterations are as full as the paper's
COUNTS = {OVERLOAD_PER_S: 300, SERVED_PER_S: 1000}
LONGER = 600  # requests at overload: what changes with the length of the run
KV_BLOCKS, ROOM_FOR_TWO_BLOCKS = 457, 1000
BLOCK_BYTES = 32 * 819_200
S_PF = 768
FIXED_S, PROMPT_S = 16e-3, 0.15e-3
TABLES = linear_tables(
    FIXED_S, PROMPT_S, 0.0, 0.1e-3, 0.5e-6, max_batch=256, max_tokens=8 * 8192 + 256
)
SLO = parse_slo("trace")
SCALES, WIDE_SCALES = (0.75, 1.25), (0.25, 0.5, 1.0, 2.0)


class Engine(NamedTuple):
    """A scheduler with its settings, token budget and seats."""

    scheduler: str
    budget_tokens: int
    seats: int = 256


SYSTEMS = {
    "AccelGen": Engine("accelgen", 8192),
    "Sarathi": Engine("sarathi", S_PF),
    "FastGen": Engine("fastgen", S_PF),
    "vLLM V0, chunked": Engine("vllm-v0:chunked=1", S_PF),
    "Orca": Engine("orca:max_len=8192", 8192, 8),
    "FastServe": Engine("fastserve:levels=5", 8192, 8),
}
PARTS = {
    "-Chunk": Engine("accelgen:chunking=0", 8192 + 256),
    "-Order": Engine("accelgen:ordering=0", 8192),
    "-Batch": Engine("accelgen:batching=0", S_PF),
    "-ERA": Engine("accelgen:era=0", 8192),
}
SLO_ORDER = Engine("accelgen:era=0", 8192)
FIFO_ORDER = Engine("accelgen:era=0,ordering=0", 8192)


class Outcome(NamedTuple):
    """Figures of one run."""

    tokens_per_s: float  # to the last token
    span_tokens_per_s: float  # from the first arrival to the last
    jct_s: float
    ttft_kept: float
    gaps_kept: float
    requests_kept: float
    good_tokens_per_s: float  # of requests that keep TTFT and every gap
    timely_tokens_per_s: float  # in time themselves
    compute_share: float  # tokens of an iteration over S_pf
    kv_share: float
    busy_share: float
    swaps: float


def with_slos(
    rng: np.random.Generator,
    prompts: np.ndarray,
    outputs: np.ndarray,
    arrival_s: np.ndarray,
    scales: np.ndarray,
) -> Trace:
    """Return requests with the paper's limits; ``scales`` are those of TBT."""
    group = (prompts - 1) // 512
    mean_tokens = np.bincount(group, prompts)[group] / np.bincount(group)[group]
    prefill_s = FIXED_S + PROMPT_S * mean_tokens
    ttft_s = prefill_s * rng.uniform(0.5, 1.5, len(prompts))
    return Trace(
        prompts,
        outputs,
        arrival_s,
        request_class=np.arange(len(prompts)),
        class_names=own_classes(ttft_s, 0.1875 * scales),
    )


@cache
def requests(
    seed: int,
    rate_per_s: float,
    wide: bool = False,
    answers: float = 1.0,
    count: int = 0,
) -> Trace:
    """Return the mixed requests; ``wide``: with section 3's TBT scales.

    ``answers`` is the share of each answer that is left, ``count`` 0 that of COUNTS.
    """
    rng = np.random.default_rng(seed)
    n = count or COUNTS[rate_per_s]
    prompts, outputs = sharegpt_lengths(
        rng, n, lambda prompt, output: (prompt <= 2048) & (output <= 1000)
    )
    outputs = np.maximum(1, np.round(answers * outputs)).astype(np.int64)
    long = rng.permutation(n) < 0.35 * n
    prompts = np.where(long, rng.integers(4096, 7193, n), prompts)
    arrival_s = poisson_s(rng, n, rate_per_s)
    scales = rng.choice(WIDE_SCALES, n) if wide else rng.uniform(*SCALES, n)
    return with_slos(rng, prompts, outputs, arrival_s, scales)


def run(trace: Trace, engine: Engine, blocks: int = KV_BLOCKS) -> Simulation:
    """Return the simulation of one replica."""
    settings = EngineSettings(
        max_num_batched_tokens=engine.budget_tokens,
        max_num_seqs=engine.seats,
        block_size=32,
        kv_blocks=blocks + 1,
        async_scheduling=False,
        kv_block_bytes=BLOCK_BYTES,
        host_kv_gib=1000.0,
    )
    return simulate(
        trace,
        Deployment.of(
            Configuration(
                replace(settings, scheduler=parse_scheduler(engine.scheduler)), TABLES
            ),
            1,
        ),
        slo=SLO,
    )


@cache
def served(engine: Engine, *of, **drawn) -> Outcome:
    """Return the figures of a run of the requests that ``requests`` draws so."""
    trace = requests(*of, **drawn)
    simulation = run(trace, engine)
    times = simulation.table
    ttft, _, gaps, _ = times.met(SLO.columns(trace.request_class, trace.class_names))
    kept = ttft & gaps
    tokens = trace.output_tokens
    span_s = simulation.totals.makespan_s
    timely = ttft.sum() + (tokens - 1).sum() - times.late_gaps.sum()
    computed = (trace.prompt_tokens + tokens - 1).sum()
    return Outcome(
        tokens.sum() / span_s,
        in_span(simulation),
        times.e2e_s.mean(),
        ttft.mean(),
        1 - times.late_gaps.sum() / (tokens - 1).sum(),
        kept.mean(),
        tokens[kept].sum() / span_s,
        timely / span_s,
        computed / simulation.iteration_count / S_PF,
        float(simulation.series.kv_share.mean()),
        simulation.busy_share,
        float(times.swaps.sum()),
    )


def in_span(simulation: Simulation) -> float:
    """Return the output rate from the first arrival to the last. [tokens/s]"""
    times = simulation.table
    span_s = simulation.totals.duration_s
    return times.output_tokens_by(times.arrival_s[0] + span_s) / span_s


def of_seeds(
    figure: str,
    engine: Engine,
    rate_per_s: float = OVERLOAD_PER_S,
    answers: float = 1,
    **drawn,
) -> np.ndarray:
    """Return a figure of each seed."""
    runs = [
        served(engine, seed, rate_per_s, answers=answers, **drawn) for seed in SEEDS
    ]
    return np.array([getattr(run, figure) for run in runs])


def mean(engine: Engine, rate_per_s: float, answers: float = 1) -> Outcome:
    """Return the means over the seeds."""
    of = (engine, rate_per_s, answers)
    return Outcome(*(of_seeds(figure, *of).mean() for figure in Outcome._fields))


def urgent_share() -> float:
    """Return the share of requests that are urgent when they arrive."""
    trace = requests(0, SERVED_PER_S)
    ttft_s = SLO.columns(trace.request_class, trace.class_names)[0]
    longest_s = float(TABLES.fused_s[S_PF])
    slack_s = ttft_s - np.ceil(trace.prompt_tokens / S_PF) * longest_s
    return float((slack_s <= longest_s).mean())


def over(figure: str, one: Engine, other: Engine, *of, **drawn) -> np.ndarray:
    """Return the ratio of a figure between two systems, for each seed."""
    return of_seeds(figure, one, *of, **drawn) / of_seeds(figure, other, *of, **drawn)


@cache
def two_long(seed: int, engine: Engine) -> tuple[float, float]:
    """Return the mean JCT of two long prompts, and of all with 20 short ones. [s]

    All at once, the long ones first, in twice the paper's KV: there is room for both.
    """
    rng = np.random.default_rng(seed)
    prompts = np.r_[10_214, 10_252, rng.integers(128, 385, 20)]
    _, outputs = sharegpt_lengths(rng, 22, lambda prompt, output: output <= 1000)
    scales = rng.uniform(*SCALES, 22)
    trace = with_slos(rng, prompts, outputs, np.zeros(22), scales)
    jct_s = run(trace, engine, ROOM_FOR_TWO_BLOCKS).table.e2e_s
    return jct_s[:2].mean(), jct_s.mean()


def two_long_ratio(which: int, one: Engine, other: Engine) -> list[float]:
    """Return the ratio of the JCT of the long prompts (0) or of all (1)."""
    return [two_long(s, one)[which] / two_long(s, other)[which] for s in SEEDS]
