"""Mean output length given the prompt length and the tokens generated so far.

Nie et al., "Aladdin: Joint Placement and Scaling for SLO-Aware LLM Serving",
arXiv:2405.06856. Section 2.3 predicts the mean output of past requests with a
similar prompt: unbiased, so errors partly cancel in a batch. Section 4.3 predicts
again when a request exceeds its prediction: here the mean of the longer outputs.
"""

from dataclasses import dataclass

import numpy as np

from capplan.workload.trace import Trace

LEAST_REQUESTS = 100
"""Least past requests in a bin of prompt lengths."""

MOST_BINS = 64


@dataclass(frozen=True, eq=False)
class ConditionalMean:
    """Past output lengths in bins of prompt length. [tokens]"""

    upper_prompt_tokens: np.ndarray  # longest of each bin but the last, (bins - 1,)
    outputs_tokens: tuple[np.ndarray, ...]  # sorted, one array per bin

    @classmethod
    def fit(cls, past: Trace) -> "ConditionalMean":
        """Return bins of about equally many requests; equal prompts share a bin."""
        bins = int(np.clip(len(past) // LEAST_REQUESTS, 1, MOST_BINS))
        shares = np.arange(1, bins) / bins
        upper = np.unique(
            np.quantile(past.prompt_tokens, shares, method="inverted_cdf")
        )
        upper = upper[upper < past.prompt_tokens.max()]
        bin_of = np.searchsorted(upper, past.prompt_tokens)
        outputs = tuple(
            np.sort(past.output_tokens[bin_of == index])
            for index in range(len(upper) + 1)
        )
        return cls(upper, outputs)

    def predict(self, prompt_tokens: np.ndarray) -> np.ndarray:
        """Return the mean output for prompts of these lengths, shape (n,). [tokens]"""
        means = np.array([outputs.mean() for outputs in self.outputs_tokens])
        return means[np.searchsorted(self.upper_prompt_tokens, prompt_tokens)]

    def predict_longer(
        self, prompt_tokens: np.ndarray, generated_tokens: np.ndarray
    ) -> np.ndarray:
        """Return the mean of outputs longer than generated so far, shape (n,). [tokens]

        Where no past output was longer it is one token more than generated.
        """
        prompt_tokens = np.asarray(prompt_tokens)
        generated_tokens = np.asarray(generated_tokens)
        expected = generated_tokens + 1.0
        bin_of = np.searchsorted(self.upper_prompt_tokens, prompt_tokens)
        for index in np.unique(bin_of):
            outputs = self.outputs_tokens[index]
            sums_from = np.cumsum(outputs[::-1])[::-1]  # from each rank to the longest
            rows = np.flatnonzero(bin_of == index)
            rank = np.searchsorted(outputs, generated_tokens[rows], "right")
            rows, rank = rows[rank < len(outputs)], rank[rank < len(outputs)]
            expected[rows] = sums_from[rank] / (len(outputs) - rank)
        return expected


def conditional_mean_given_longer(
    past: Trace, prompt_tokens: np.ndarray, generated_tokens: np.ndarray
) -> np.ndarray:
    """Return the expected output of requests that exceed their prediction. [tokens]

    ``past`` has known outputs; the arrays hold the prompt of each running request
    and the tokens that it has generated, shape (n,).

    Examples
    --------
    >>> past = Trace([7, 7, 7], [10, 20, 40])
    >>> conditional_mean_given_longer(past, np.array([7, 7]), np.array([10, 40]))
    array([30., 41.])
    """
    return ConditionalMean.fit(past).predict_longer(prompt_tokens, generated_tokens)
