"""What happened to each request, and the fleet over time."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from capplan.simulator.windows import Windows

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
    """One row per request of the trace, in its order, all shape (n,).

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
        first_s, last_s = self.first_token_s, self.finish_s
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (moment_s - first_s) / (last_s - first_s)
        share = np.where(last_s <= moment_s, 1.0, np.nan_to_num(share))
        tokens = 1 + np.clip(share, 0.0, 1.0) * (self.output_tokens - 1)
        return float(tokens[first_s <= moment_s].sum())

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


@dataclass(frozen=True, eq=False)
class Series:
    """The fleet over time, one row per bin, all shape (bins,)."""

    start_s: np.ndarray  # of each bin [s]
    busy_share: np.ndarray  # share of replica time in which an iteration ran
    batch_requests: np.ndarray  # mean running per replica, while one ran [requests]
    waiting_requests: np.ndarray  # mean waiting per replica, while one ran [requests]
    kv_share: np.ndarray  # mean share of KV blocks in use, over all the time
    preemptions: np.ndarray  # of the requests that finished in the bin

    def until(self, moment_s: float) -> "Series":
        """Return the bins that end before a moment, at least the first."""
        bins = max(1, int(np.searchsorted(self.start_s, moment_s)) - 1)
        return Series(
            **{field.name: getattr(self, field.name)[:bins] for field in fields(self)}
        )


@dataclass(frozen=True, eq=False)
class Iterations:
    """Every iteration of every replica, in the order in which they were run.

    An entry is a request in an iteration: its row in the trace, the tokens computed
    before and those scheduled; those of iteration k end at ``steps["entries_end"][k]``.
    """

    steps: np.ndarray  # one record each, the columns of a recorded engine schedule
    entries: np.ndarray  # one record per request and iteration


@dataclass(frozen=True)
class Totals:
    """Sums over the requests of a simulation."""

    request_count: int  # that the figures are about: all, unless stopped
    duration_s: float  # first to last arrival [s]
    makespan_s: float  # first arrival to last token [s]
    prompt_tokens: int  # [tokens]
    output_tokens: int  # [tokens]
    cached_tokens: int  # [tokens]
    preemptions: int  # times that a request lost its KV

    @property
    def rate_per_s(self) -> float:
        """Mean arrival rate; NaN for one moment of arrival. [requests/s]"""
        if self.duration_s <= 0:
            return float("nan")
        return (self.request_count - 1) / self.duration_s


def totals(times: RequestTimes) -> Totals:
    """Return the sums over a table of requests."""
    start_s = times.arrival_s[0]
    last_s = np.nanmax(times.finish_s, initial=start_s)
    return Totals(
        request_count=len(times),
        duration_s=float(times.arrival_s[-1] - start_s),
        makespan_s=float(last_s - start_s),
        prompt_tokens=int(times.prompt_tokens.sum()),
        output_tokens=int(times.output_tokens.sum()),
        cached_tokens=int(times.cached_tokens.sum()),
        preemptions=int(times.preemptions.sum()),
    )


@dataclass(frozen=True, eq=False)
class Simulation:
    """What a deployment does with a trace."""

    times: RequestTimes | None  # None where requests were counted and not kept
    totals: Totals
    series: Series
    class_names: tuple[str, ...]  # of the trace
    replica_count: int  # replicas simulated
    iteration_count: int  # of all replicas
    busy_s: float  # replica seconds in which an iteration ran [s]
    arrived_count: int  # all of the trace; where not kept, those that had arrived
    completed: int  # requests that finished: all, unless it was stopped
    windows: "Windows | None" = None  # counts where requests were not kept
    iterations: Iterations | None = None  # where recorded

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before all requests had finished."""
        return self.completed < self.arrived_count

    @property
    def busy_share(self) -> float:
        """Share of replica time in which an iteration ran."""
        available_s = self.totals.makespan_s * self.replica_count
        return self.busy_s / available_s if available_s > 0 else 0.0

    @property
    def table(self) -> RequestTimes:
        """The table of requests of a simulation that keeps it."""
        assert self.times is not None
        return self.times
