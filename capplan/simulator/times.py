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

LIMITS = ("ttft", "tpot", "e2e")
"""Times of a request that an SLO may limit."""


@dataclass(frozen=True, eq=False)
class RequestTimes:
    """One row per request of the trace, in its order, all shape (n,).

    Parameters
    ----------
    arrival_s, scheduled_s, first_token_s, finish_s
        When it arrived, was first in a batch, got its first and its last token;
        NaN for a request that did not get so far. [s]
    longest_gap_s
        Longest time between two of its tokens; 0 for one token. [s]
    prompt_tokens, output_tokens
        Its lengths. [tokens]
    replica
        Where it was served.
    preemptions
        How often it lost its KV.
    cached_tokens
        Prompt tokens found in the prefix cache at its first admission. [tokens]
    request_class
        Index of its class.
    """

    arrival_s: np.ndarray
    scheduled_s: np.ndarray
    first_token_s: np.ndarray
    finish_s: np.ndarray
    longest_gap_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    replica: np.ndarray
    preemptions: np.ndarray
    cached_tokens: np.ndarray
    request_class: np.ndarray

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_s)

    @classmethod
    def of(cls, records: np.ndarray) -> "RequestTimes":
        """Return finished requests, records of dtype RESULT, as a table."""
        return cls(**{field.name: records[field.name] for field in fields(cls)})

    def met(self, limits_s: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Return which requests meet each of LIMITS, shape (n,) each, bool.

        Parameters
        ----------
        limits_s
            Limit of each request, shape (n,) each; infinite where there is none. [s]
        """
        # A one-token output has no time between tokens, and so meets any TPOT.
        measured_s = (self.ttft_s, np.nan_to_num(self.tpot_s), self.e2e_s)
        return tuple(
            value_s <= limit_s
            for value_s, limit_s in zip(measured_s, limits_s, strict=True)
        )

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
    """The fleet over time, one row per bin, all shape (bins,).

    Parameters
    ----------
    start_s
        Start of each bin. [s]
    busy_share
        Share of replica time in which an iteration ran.
    batch_requests
        Mean running requests per replica, while an iteration ran. [requests]
    waiting_requests
        Mean waiting requests per replica, while an iteration ran. [requests]
    kv_share
        Mean share of KV blocks in use, over all the time.
    preemptions
        Preemptions of the requests that finished in the bin.
    """

    start_s: np.ndarray
    busy_share: np.ndarray
    batch_requests: np.ndarray
    waiting_requests: np.ndarray
    kv_share: np.ndarray
    preemptions: np.ndarray

    def until(self, moment_s: float) -> "Series":
        """Return the bins that end before a moment, at least the first."""
        bins = max(1, int(np.searchsorted(self.start_s, moment_s)) - 1)
        return Series(
            **{field.name: getattr(self, field.name)[:bins] for field in fields(self)}
        )


@dataclass(frozen=True, eq=False)
class Iterations:
    """Every iteration of every replica, in the order in which they were run.

    Parameters
    ----------
    steps
        One record per iteration, the columns of a recorded engine schedule.
    entries
        One record per request and iteration: its row in the trace, the tokens
        computed before and those scheduled; those of iteration k stop at
        ``steps["entries_end"][k]``.
    """

    steps: np.ndarray
    entries: np.ndarray


@dataclass(frozen=True)
class Totals:
    """Sums over the requests of a simulation.

    Parameters
    ----------
    request_count
        Requests that the figures are about: all, unless the simulation was stopped.
    duration_s
        From their first to their last arrival. [s]
    makespan_s
        From their first arrival to their last token. [s]
    prompt_tokens, output_tokens, cached_tokens
        Sums over these requests. [tokens]
    preemptions
        Times that one of them lost its KV.
    """

    request_count: int
    duration_s: float
    makespan_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    preemptions: int

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
    """What a deployment does with a trace.

    Parameters
    ----------
    times
        One row per request; None where they were counted and not kept.
    windows
        Counts by window of time where requests were not kept; else None.
    totals
        Sums over the requests.
    series
        The fleet over time.
    class_names
        Names of the classes of the trace.
    replica_count
        Replicas simulated.
    iteration_count
        Iterations of all replicas.
    busy_s
        Replica seconds in which an iteration ran. [s]
    arrived_count
        Requests of the trace; where they were not kept, those that had arrived.
    completed
        Requests that finished: all, unless the simulation was stopped.
    iterations
        Every iteration, where recorded.
    """

    times: RequestTimes | None
    totals: Totals
    series: Series
    class_names: tuple[str, ...]
    replica_count: int
    iteration_count: int
    busy_s: float
    arrived_count: int
    completed: int
    windows: "Windows | None" = None
    iterations: Iterations | None = None

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
