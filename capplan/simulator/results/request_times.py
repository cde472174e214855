"""What happened to each request."""

from dataclasses import dataclass, fields

import numpy as np

METRICS = (
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "wait_s",
    "longest_gap_s",
    "normalized_latency_s",
)
"""Times of a request whose distribution a judgement reports."""


@dataclass(frozen=True, eq=False)
class RequestTimes:
    """One row per request, in order of arrival, all shape (n,).

    Times are NaN for a request that did not get so far.
    """

    arrival_s: np.ndarray  # [s]
    scheduled_s: np.ndarray  # when first in a batch [s]
    first_token_s: np.ndarray  # [s]
    finish_s: np.ndarray  # last token [s]
    longest_gap_s: np.ndarray  # between two of its tokens; 0 for one token [s]
    late_gaps: np.ndarray  # of these, above the TBT limit of its class
    prompt_tokens: np.ndarray  # [tokens]
    output_tokens: np.ndarray  # [tokens]
    replica: np.ndarray  # where it was served
    preemptions: np.ndarray  # how often it lost its KV
    cached_tokens: np.ndarray  # in the prefix cache at first admission [tokens]
    request_class: np.ndarray  # index of its class
    swaps: np.ndarray  # how often its KV went to the host
    paused_s: np.ndarray  # time that it held KV, there or on the GPU, and sat out [s]
    migrations: np.ndarray  # how often it moved to another replica while it ran
    # when its prompt was done, where that was on a prefill replica; 0: it was not [s]
    handed_s: np.ndarray
    tier_tokens: np.ndarray  # loaded from the tier, again after a preemption [tokens]

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_s)

    @classmethod
    def of(cls, records: np.ndarray) -> "RequestTimes":
        """Return finished requests, records of dtype RESULT, as a table."""
        return cls(**{field.name: records[field.name] for field in fields(cls)})

    def met(self, limits_s: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Return which requests meet each of an SLO's LIMITS, shape (n,) each, bool.

        ``limits_s`` has shape (n,) each, infinite where there is no limit. [s]
        """
        # A one-token output has no time between tokens, and so meets any TPOT.
        tpot_s = np.nan_to_num(self.tpot_s)
        measured_s = (self.ttft_s, tpot_s, self.longest_gap_s, self.e2e_s)
        return tuple(
            value_s <= limit_s
            for value_s, limit_s in zip(measured_s, limits_s, strict=True)
        )

    def output_tokens_by(self, moment_s: float) -> float:
        """Return the output tokens until a moment. [tokens]

        A request's tokens are taken to come evenly from its first to its last.
        """
        begun = self.first_token_s <= moment_s
        tokens = self.output_tokens[begun].astype(float)
        first_s, last_s = self.first_token_s[begun], self.finish_s[begun]
        runs = ~(last_s <= moment_s)
        first_s, last_s = first_s[runs], last_s[runs]
        share = np.nan_to_num((moment_s - first_s) / (last_s - first_s))
        tokens[runs] = 1 + share * (tokens[runs] - 1)
        return float(tokens.sum())

    def select(self, rows: slice | np.ndarray) -> "RequestTimes":
        """Return the requests at ``rows``."""
        return RequestTimes(
            **{field.name: getattr(self, field.name)[rows] for field in fields(self)}
        )

    @property
    def ttft_s(self) -> np.ndarray:
        """Time to first token. [s]"""
        return self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> np.ndarray:
        """Time per output token after the first (ATGT); NaN for one token. [s]"""
        later_tokens = np.where(self.output_tokens > 1, self.output_tokens - 1, np.nan)
        return (self.finish_s - self.first_token_s) / later_tokens

    @property
    def e2e_s(self) -> np.ndarray:
        """Arrival to last token. [s]"""
        return self.finish_s - self.arrival_s

    @property
    def wait_s(self) -> np.ndarray:
        """Arrival to first scheduling. [s]"""
        return self.scheduled_s - self.arrival_s

    @property
    def normalized_latency_s(self) -> np.ndarray:
        """End-to-end time per output token. [s/token]"""
        return self.e2e_s / self.output_tokens
