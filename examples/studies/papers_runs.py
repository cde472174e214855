"""Lengths, arrivals, SLOs and capacities that sections of docs/how/papers.md share."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from capplan.workload.catalog import shipped_workload


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


class Mixture(NamedTuple):
    """Lognormals fitted to published lengths."""

    weights: Sequence[float]
    mean_logs: Sequence[float]
    deviations: Sequence[float]

    def draw(
        self, rng: np.random.Generator, count: int, low: int, high: int
    ) -> np.ndarray:
        """Return lengths, those out of range cut. [tokens]"""
        part = rng.choice(len(self.weights), count, p=self.weights)
        logs = rng.normal(np.take(self.mean_logs, part), np.take(self.deviations, part))
        return np.clip(np.round(np.exp(logs)), low, high).astype(np.int64)


def highest_rate_per_s(
    holds: Callable[[float], bool], low: float, high: float, steps: int = 9
) -> float:
    """Return the highest rate that holds, halving the range in each step."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def poisson_s(rng: np.random.Generator, count: int, rate_per_s: float) -> np.ndarray:
    """Return arrivals of a Poisson process. [s]"""
    return np.cumsum(rng.exponential(1 / rate_per_s, count))


def own_classes(ttft_s: np.ndarray, tbt_s: np.ndarray) -> tuple[str, ...]:
    """Return the names of one class for each request, with its limits in it."""
    limits_s = zip(ttft_s, tbt_s, strict=True)
    return tuple(f"x/ttft={ttft:.6f}s,tbt={tbt:.6f}s" for ttft, tbt in limits_s)
