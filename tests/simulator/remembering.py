"""Small random cases for routers that remember: block edges, tiny memories, ties."""

from dataclasses import replace

import numpy as np
from cases import MOST_SEQS, TICK_S, Case, for_scheduler, random_tables

from capplan.deployment.engine import EngineSettings
from capplan.workload.trace import Trace

SCHEDULERS = ("vllm-v1", "vllm-v1", "vllm-v1", "sarathi", "orca", "static")
"""Those that serve requests in order of arrival, whose queue a router may read."""


def settings_of(rng: np.random.Generator) -> dict[str, str]:
    """Return each router with random settings: tiny limits, or its own."""
    tick = TICK_S
    window = f"{rng.choice([0, 2, 16, 4000]) * tick}s"
    period = f"{rng.choice([1, 4, 40]) * tick}s"
    return {
        "llm-d": f"llm-d:index={rng.choice(['precise', 'approximate'])},"
        f"block={rng.integers(0, 6)},match={rng.choice([1, 2, 3, 256])},"
        f"capacity={rng.choice([0, 1, 2, 5, 12, 1000])},load={rng.choice([0, 2])},"
        f"kv={rng.choice([0, 2])},queue={rng.choice([0, 2])},"
        f"refresh={rng.choice([0, 3, 16]) * tick}s",
        "dynamo-kv": f"dynamo-kv:events={rng.integers(0, 2)},"
        f"ttl={rng.choice([0, 3, 20, 4000]) * tick}s,"
        f"blocks={rng.choice([1, 3, 10, 40, 1000000])},"
        f"overlap={rng.choice([0, 0.5, 1, 3])},"
        f"temperature={rng.choice([0, 0, 0.3])}",
        "sglang-cache-aware": f"sglang-cache-aware:period={period},"
        f"threshold={rng.choice([0, 0.3, 0.5])},"
        f"abs={rng.choice([0, 1, 3, 32])},rel={rng.choice([0, 1.1, 1.5])},"
        f"size={rng.choice([4, 40, 200, 10000])}",
        "prefix-aware": f"prefix-aware:match={rng.choice([0, 1, 8, 24])},"
        f"chunk={rng.choice([4, 8, 12, 20, 128])},window={window}",
        "session": f"session:window={window}",
        "consistent-hash": f"consistent-hash:tokens={rng.choice([1, 4, 9, 256])},"
        f"load={rng.choice([1, 1.25, 4])}",
        "size-split": f"size-split:tokens={rng.integers(1, 40)},"
        f"share={rng.choice([0, 0.25, 0.5, 0.8, 1])},"
        f"of={rng.choice(['total', 'prompt'])}",
    }


def drawn_case(rng: np.random.Generator) -> Case:
    """Return up to 40 requests of few groups on up to 5 replicas with little KV."""
    n = int(rng.integers(1, 41))
    exact = bool(rng.integers(0, 2))
    block_size = int(rng.integers(1, 6))
    gaps = np.where(rng.random(n) < 0.4, 0, rng.integers(0, 9, n)).astype(float)
    if not exact:
        gaps += (gaps > 0) * rng.exponential(0.25, n)
    lengths = rng.integers(1, 25, 3 if rng.random() < 0.4 else n)  # equal prompts
    prompts = rng.choice(lengths, n)
    edges = block_size * rng.integers(0, 6, n) + rng.integers(-1, 2, n)
    shared = np.where(rng.random(n) < 0.7, edges, rng.integers(0, 30, n))
    ends = rng.random(n) < 0.3  # the whole prompt is its group's
    outputs = np.where(rng.random(n) < 0.2, 1, rng.integers(1, 12, n))
    trace = Trace(
        prompts,
        outputs,
        np.cumsum(gaps) * TICK_S,
        prefix_group=rng.integers(-1, int(rng.choice([1, 2, 4, 30])), n),
        prefix_tokens=np.maximum(0, np.where(ends, prompts, shared)),
        predicted_output_tokens=outputs + rng.integers(0, 5, n),
        session=np.where(np.arange(n) > 0, rng.integers(-1, 4, n), 0),
    )
    seqs = int(rng.integers(1, MOST_SEQS + 1))
    engine = EngineSettings(
        max_num_batched_tokens=seqs + int(rng.integers(0, 25)),
        max_num_seqs=seqs,
        block_size=block_size,
        async_scheduling=bool(rng.integers(0, 2)),
        prefix_caching=bool(rng.integers(0, 4)),
    )
    largest = int(np.max(engine.request_blocks(prompts + outputs - 1)))
    spare = int(rng.integers(0, 1 + largest * int(rng.choice([1, 6]))))
    engine = replace(engine, kv_blocks=1 + largest + spare)
    most_tokens = max(MOST_SEQS * 25, engine.max_num_batched_tokens, 40)
    seed = int(rng.integers(0, 2**20))
    tables = random_tables(seed, MOST_SEQS, most_tokens, exact)
    return Case(trace, tables, engine, int(rng.integers(1, 6)))


def drawn(seed: int, router: str | None = None):
    """Return a case with a router and a scheduler, all drawn from the seed."""
    rng = np.random.default_rng(seed)
    given = settings_of(rng)
    name = router or str(rng.choice(sorted(given)))
    case = drawn_case(rng)
    scheduler, case = for_scheduler(str(rng.choice(SCHEDULERS)), case, seed)
    return given[name], scheduler, case
