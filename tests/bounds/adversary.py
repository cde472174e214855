"""Random schedules of one replica with preemption, recomputation and prefix hits.

A schedule is a witness: with the times that it attains as limits, one replica is
enough, so no bound may be above 1 and no work above the time that it is busy.
"""

from typing import NamedTuple

import numpy as np

from capplan.bounds.work import Requests
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables, linear_tables


class Case(NamedTuple):
    """A replica and requests that all arrive at time 0."""

    tables: LatencyTables
    engine: EngineSettings
    prompt: np.ndarray
    output: np.ndarray
    cached: np.ndarray


class Schedule(NamedTuple):
    """Times of a schedule; a request's are one row."""

    busy_s: float
    first_s: np.ndarray
    last_s: np.ndarray


class Policy(NamedTuple):
    """How a schedule is drawn."""

    recompute: float  # probability of preempting a request instead of a decode step
    hit: float  # probability that a prefill uses the prefix cache
    width: int  # most requests of an iteration
    chunk: int  # most tokens of a chunk
    mixed: bool  # whether prefill and decode share iterations
    shuffled: bool  # whether the order changes from one iteration to the next


def random_case(generator: np.random.Generator) -> Case:
    """Return a few short requests on a replica with small limits."""
    batch = int(generator.integers(1, 6))
    tokens = int(generator.integers(max(batch, 4), 17))
    coefficients = 10 ** generator.uniform(-4, -2, 5) * (generator.random(5) < 0.7)
    coefficients[[2, 4]] *= 0.1
    coefficients[3] += 1e-5
    tables = linear_tables(*coefficients, max_batch=batch, max_tokens=tokens)
    if generator.random() < 0.4:
        steps = np.cumsum(generator.exponential(1e-3, tokens + 1) * coefficients[0])
        tables = tables._replace(
            fused_s=tables.fused_s + steps,
            decode_s=tables.decode_s * generator.uniform(0.5, 2),
            fused_decode_s=tables.fused_decode_s * generator.uniform(0, 1),
        )
    n = int(generator.integers(1, 9))
    prompt, output = generator.integers(1, 5, n), generator.integers(1, 7, n)
    if generator.random() < 0.6:
        prompt[:], output[:] = prompt[0], output[0]
    caching = bool(generator.random() < 0.4)
    longest = int((prompt + output).max())
    engine = EngineSettings(
        max_num_batched_tokens=tokens,
        max_num_seqs=batch,
        block_size=1,
        kv_blocks=1 + int(generator.integers(longest, 4 * longest)),
        prefix_caching=caching,
    )
    cached = generator.integers(0, prompt) * caching
    return Case(tables, engine, prompt, output, cached)


def random_policy(generator: np.random.Generator, engine: EngineSettings) -> Policy:
    """Return a policy; extremes are likely, as they are the cheapest schedules."""
    return Policy(
        recompute=float(generator.choice([0.0, 1.0, generator.random()])),
        hit=float(generator.choice([1.0, generator.random()])),
        width=int(generator.integers(1, engine.max_num_seqs + 1)),
        chunk=int(generator.choice([1, 2, engine.max_num_batched_tokens])),
        mixed=bool(generator.random() < 0.5),
        shuffled=bool(generator.random() < 0.2),
    )


def random_schedule(
    generator: np.random.Generator, case: Case, policy: Policy
) -> Schedule:
    """Return the times of a schedule that the policy draws.

    Iterations keep the limits of the engine: requests, tokens, and the context of all
    that take part in the KV cache, shared prefixes left out. KV of requests that wait
    is not counted, as a scheduler may have swapped it out.
    """
    prompt, output, cached = case.prompt, case.output, case.cached
    engine, n = case.engine, len(case.prompt)
    held, made = np.zeros(n, int), np.zeros(n, int)  # KV tokens, output tokens
    recomputing = np.ones(n, bool)  # whether the next token comes with a prefill
    for i in range(n):
        held[i] = cached[i] * (generator.random() < policy.hit)
    first_s, last_s, now_s = np.zeros(n), np.zeros(n), 0.0
    while (made < output).any():
        order = np.flatnonzero(made < output)
        if policy.shuffled:
            generator.shuffle(order)
        for i in order:
            if not recomputing[i] and generator.random() < policy.recompute:
                recomputing[i], held[i] = True, 0
                if engine.prefix_caching and generator.random() < policy.hit:
                    held[i] = prompt[i] + made[i] - 1
        chunks: list[tuple[int, int]] = []
        tokens = kv = 0
        for i in order:
            new = prompt[i] + made[i] - held[i]
            new = min(new, policy.chunk, engine.max_num_batched_tokens - tokens)
            own = held[i] + new - cached[i]
            if len(chunks) == policy.width or new <= 0:
                break
            if kv + own > engine.kv_capacity_tokens:
                continue
            if (
                chunks
                and not policy.mixed
                and recomputing[i] != recomputing[chunks[0][0]]
            ):
                continue
            chunks.append((i, new))
            tokens, kv = tokens + new, kv + own
        now_s += iteration_s(case.tables, chunks, held, recomputing)
        for i, new in chunks:
            held[i] += new
            if held[i] == prompt[i] + made[i]:
                made[i], recomputing[i], last_s[i] = made[i] + 1, False, now_s
                if made[i] == 1:
                    first_s[i] = now_s
    return Schedule(now_s, first_s, last_s)


def iteration_s(
    tables: LatencyTables,
    chunks: list[tuple[int, int]],
    held: np.ndarray,
    recomputing: np.ndarray,
) -> float:
    """Return the time of an iteration by its definition in ``LatencyTables``. [s]"""
    prefill = [(new, held[i]) for i, new in chunks if recomputing[i]]
    contexts = [held[i] + 1 for i, _ in chunks if not recomputing[i]]
    batch = len(contexts)
    if not prefill:
        return float(
            tables.decode_s[batch] + tables.decode_context_s[batch] * sum(contexts)
        )
    tokens = sum(new for new, _ in prefill)
    attention = sum(new * (prefix + new / 2) for new, prefix in prefill)
    return float(
        tables.fused_s[tokens + batch]
        + tables.fused_decode_s[batch]
        + tables.fused_context_s[batch] * sum(contexts)
        + tables.attention_s * attention
    )


def attained_limits(
    generator: np.random.Generator, case: Case, schedule: Schedule
) -> Requests:
    """Return the requests with limits that the schedule just meets."""
    steps = np.maximum(case.output - 1, 1)
    limits = [
        schedule.first_s,
        np.where(case.output > 1, (schedule.last_s - schedule.first_s) / steps, np.inf),
        schedule.last_s,
    ]
    if generator.random() < 0.5:  # the same limits for all
        limits = [np.full(len(steps), limit.max()) for limit in limits]
    # Any limit may be absent.
    limits = [limit + (np.inf if generator.random() < 0.4 else 0.0) for limit in limits]
    return Requests(
        np.zeros(len(steps)),
        *(column.astype(float) for column in (case.prompt, case.output, case.cached)),
        *limits,
    )
