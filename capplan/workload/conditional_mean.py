"""Mean output length given the prompt length.

Nie et al., "Aladdin: Joint Placement and Scaling for SLO-Aware LLM Serving",
arXiv:2405.06856. Section 2.3 predicts the mean output of past requests with a
similar prompt: unbiased, so errors partly cancel in a batch.
"""

from dataclasses import dataclass

import numpy as np

from capplan.workload.trace import Trace

LEAST_REQUESTS = 100
"""Least past requests in a bin of prompt lengths."""

MOST_BINS = 64


@dataclass(frozen=True, eq=False)
class ConditionalMean:
    """Mean past outputs in bins of prompt length. [tokens]"""

    upper_prompt_tokens: np.ndarray  # longest of each bin but the last, (bins - 1,)
    mean_tokens: np.ndarray  # output of each bin, (bins,)

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
        return cls(upper, np.bincount(bin_of, past.output_tokens) / np.bincount(bin_of))

    def predict(self, prompt_tokens: np.ndarray) -> np.ndarray:
        """Return the mean output for prompts of these lengths, shape (n,). [tokens]"""
        bin_of = np.searchsorted(self.upper_prompt_tokens, prompt_tokens)
        return self.mean_tokens[bin_of]
