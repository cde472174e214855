"""Prompt and answer lengths that depend on each other: a mixture in their logarithms.

One lognormal misses what real services see, and right marginals with a copula
still miss the sum of prompt and answer; a mixture of a few bivariate normals
follows both.
"""

from dataclasses import dataclass

import numpy as np

from capplan.errors import InputError


@dataclass(frozen=True)
class LogMixture:
    """Prompt and answer together: a mixture of normals of their logarithms.

    Parameters
    ----------
    weight
        Share of each component, shape (k,).
    mean_log
        Mean of log prompt and log answer of each, shape (k, 2).
    covariance_log
        Variance of log prompt, covariance, variance of log answer, shape (k, 3).
    prompt_bounds_tokens
        Least and most in a prompt. [tokens]
    output_bounds_tokens
        Least and most in an answer. [tokens]
    """

    weight: np.ndarray
    mean_log: np.ndarray
    covariance_log: np.ndarray
    prompt_bounds_tokens: tuple[int, int]
    output_bounds_tokens: tuple[int, int]

    def __post_init__(self) -> None:
        """Refuse what is no mixture."""
        k = len(self.weight)
        if np.shape(self.mean_log) != (k, 2) or np.shape(self.covariance_log) != (k, 3):
            raise InputError(
                "a log mixture needs two means and three covariances a component"
            )
        spread = np.asarray(self.covariance_log)
        flat = spread[:, 0] * spread[:, 2] < spread[:, 1] ** 2
        if (np.asarray(self.weight) <= 0).any() or (spread < 0)[:, ::2].any():
            raise InputError("a log mixture needs positive weights and variances")
        if flat.any():
            raise InputError("a log mixture needs covariances of real distributions")

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return prompt and output lengths of ``n`` requests. [tokens]"""
        weight = np.asarray(self.weight)
        mean = np.asarray(self.mean_log)
        spread = np.asarray(self.covariance_log)
        part = rng.choice(len(weight), n, p=weight / weight.sum())
        first, second = rng.standard_normal((2, n))
        # Cholesky factor of each 2 x 2 covariance, written out.
        deviation = np.sqrt(spread[part, 0])
        lean = spread[part, 1] / deviation
        rest = np.sqrt(np.maximum(spread[part, 2] - lean**2, 0))
        prompt = mean[part, 0] + deviation * first
        output = mean[part, 1] + lean * first + rest * second
        return (
            _whole(np.exp(prompt), self.prompt_bounds_tokens),
            _whole(np.exp(output), self.output_bounds_tokens),
        )


def _whole(tokens: np.ndarray, bounds: tuple[int, int]) -> np.ndarray:
    return np.clip(np.rint(tokens), *bounds).astype(np.int64)
