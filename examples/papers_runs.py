"""What the sections of docs/papers.md share: derived latencies, requests with SLOs."""

from collections.abc import Callable, Sequence

import numpy as np

from capplan.latency.contract import LatencyTables
from capplan.workload.catalog import shipped_workload


def linear_tables(
    fixed_s: float,
    prompt_s: float,
    decode_s: float,
    context_s: float,
    most_tokens: int,
    most_requests: int,
) -> LatencyTables:
    """Return iterations of c0 + ca T + cd b + ce L: prompt tokens, decodes, contexts.

    Attention among a prompt's own tokens is left out.
    """
    b = np.arange(most_requests + 1.0)
    tokens = np.arange(most_tokens + most_requests + 1.0)
    per_context_s = np.full(len(b), context_s)
    return LatencyTables(
        decode_s=fixed_s + decode_s * b,
        decode_context_s=per_context_s,
        fused_s=fixed_s + prompt_s * tokens,
        fused_decode_s=(decode_s - prompt_s) * b,
        fused_context_s=per_context_s,
        attention_s=0.0,
        request_s=0.0,
    )


def sharegpt_lengths(
    rng: np.random.Generator,
    count: int,
    kept: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts and outputs drawn from those that ship and are ``kept``."""
    workload = shipped_workload("sharegpt")
    prompts, outputs = workload.prompt_tokens, workload.output_tokens
    rows = rng.choice(np.flatnonzero(kept(prompts, outputs)), count)
    return prompts[rows], outputs[rows]


def poisson_s(rng: np.random.Generator, count: int, rate_per_s: float) -> np.ndarray:
    """Return arrivals of a Poisson process. [s]"""
    return np.cumsum(rng.exponential(1 / rate_per_s, count))


def own_classes(ttft_s: np.ndarray, tbt_s: np.ndarray) -> tuple[str, ...]:
    """Return the names of one class for each request, with its limits in it."""
    limits_s = zip(ttft_s, tbt_s, strict=True)
    return tuple(f"x/ttft={ttft:.6f}s,tbt={tbt:.6f}s" for ttft, tbt in limits_s)


def beside_error(values: Sequence[float]) -> str:
    """Return the mean over seeds with its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.2g} ± {error:.1g}"
