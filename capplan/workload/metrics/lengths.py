"""Lengths of requests from the buckets of histograms."""

import numpy as np

from capplan.workload.metrics.windows import Observed

USUAL_CORRELATION = 0.2
"""Rank correlation of prompts and answers: that of 88 public runs of agents."""
_LOWEST, _HIGHEST = -0.2, 0.8
_STEEPEST = 40.0
_DRAWN = 16_000
"""Requests by which a correlation is told."""


class Lengths:
    """Token counts with the buckets and the mean of a histogram.

    Their density is x^(t−1) within each bucket, with one t for all.
    """

    def __init__(self, of: Observed, most: float) -> None:
        used = of.counts > 0
        lows = np.concatenate([[0.0], of.bounds[:-1]])[used]
        highs = np.where(
            np.isinf(of.bounds), np.maximum(most, 2 * lows.max()), of.bounds
        )
        self._low, self._high = lows + 0.5, np.minimum(highs[used], max(most, 1)) + 0.5
        self._high = np.maximum(self._high, self._low + 1)
        self._share = of.counts[used] / of.count
        self._tilt = self._solved(of.mean)

    def _solved(self, mean: float) -> float:
        low, high = -_STEEPEST, _STEEPEST
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = float(self._share @ self._means(middle)) < mean
            low, high = (middle, high) if below else (low, middle)
        return 0.5 * (low + high)

    def _means(self, t: float) -> np.ndarray:
        """Return the mean of each bucket under a tilt. [tokens]"""
        t += 1e-9  # neither 0 nor −1, where the closed form divides by 0
        log = np.log(self._low / self._high)
        part = np.expm1((t + 1) * log) / np.expm1(t * log)
        return np.asarray(self._high * t / (t + 1) * part)

    def quantiles(self, at: np.ndarray) -> np.ndarray:
        """Return the tokens below which shares of the requests are, whole ones."""
        ends = np.cumsum(self._share)
        bucket = np.minimum(np.searchsorted(ends, at), len(ends) - 1)
        inside = (at - (ends - self._share)[bucket]) / self._share[bucket]
        low, high, t = self._low[bucket], self._high[bucket], self._tilt + 1e-9
        grown = np.expm1(t * np.log(low / high))  # (low / high)^t − 1
        value = high * np.exp(np.log1p((1 - np.clip(inside, 0, 1)) * grown) / t)
        return np.maximum(np.rint(value), 1).astype(np.int64)


def drawn(
    prompt: Lengths, output: Lengths, count: int, correlation: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return prompts and answers of requests, and the rank of each prompt in (0, 1).

    Each count of tokens comes as often as its distribution says; ranks are joined by a
    Gaussian copula. [tokens]
    """
    rng = np.random.default_rng(seed)
    first, other = rng.standard_normal((2, count))
    second = correlation * first + np.sqrt(1 - correlation**2) * other
    ranks = [(np.argsort(np.argsort(z)) + 0.5) / count for z in (first, second)]
    return prompt.quantiles(ranks[0]), output.quantiles(ranks[1]), ranks[0]


def identified(
    prompt: Lengths, output: Lengths, context_tokens: float
) -> tuple[float, bool]:
    """Return the correlation with which a running request holds so much context.

    And whether one within bounds does. A request runs about as long as its answer is.
    """

    def held(correlation: float) -> float:
        p, o, _ = drawn(prompt, output, _DRAWN, correlation, 0)
        return float((o * (p + o / 2)).sum() / o.sum())

    low, high = _LOWEST, _HIGHEST
    if not held(low) <= context_tokens <= held(high):
        return USUAL_CORRELATION, False
    for _ in range(20):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if held(middle) < context_tokens else (low, middle)
    return 0.5 * (low + high), True
