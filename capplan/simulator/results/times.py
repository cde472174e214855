"""What a simulation returns: its requests, sums over them, the fleet over time."""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from capplan.simulator.results.answers import Answers
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.tier import TierUse
from capplan.simulator.results.turns import Turns
from capplan.simulator.results.windows import Windows


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


def joined(parts: list[Series], shares: list[float]) -> Series:
    """Return the series of pools as one; ``shares`` are those of the replicas."""

    def weighted(name: str, weights: list[np.ndarray]) -> np.ndarray:
        values = [getattr(part, name) for part in parts]
        return np.array(sum(v * w for v, w in zip(values, weights, strict=True)))

    of_replicas = [np.full(len(parts[0].start_s), share) for share in shares]
    busy = weighted("busy_share", of_replicas)
    of_busy = [
        part.busy_share * share / np.maximum(busy, 1e-300)
        for part, share in zip(parts, of_replicas, strict=True)
    ]
    return Series(
        start_s=parts[0].start_s,
        busy_share=busy,
        batch_requests=weighted("batch_requests", of_busy),
        waiting_requests=weighted("waiting_requests", of_busy),
        kv_share=weighted("kv_share", of_replicas),
        preemptions=np.sum([part.preemptions for part in parts], axis=0),
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
    # of users who wait for their answers, what was answered while that counts
    answers: Answers | None = None

    @property
    def rate_per_s(self) -> float:
        """Mean arrival rate, of users that of answers. [requests/s]

        NaN for one moment of arrival.
        """
        if self.answers is not None:
            return self.answers.rate_per_s
        if self.duration_s <= 0:
            return float("nan")
        return (self.request_count - 1) / self.duration_s

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean of the requests, of users that of those answered. [tokens]"""
        return self._mean("prompt_tokens")

    @property
    def mean_output_tokens(self) -> float:
        """Mean of the requests, of users that of those answered. [tokens]"""
        return self._mean("output_tokens")

    def _mean(self, name: str) -> float:
        if self.answers is not None and self.answers.count:
            return float(getattr(self.answers, name) / self.answers.count)
        return float(getattr(self, name) / self.request_count)


def totals(times: RequestTimes) -> Totals:
    """Return the sums over the requests of a table that finished."""
    finished = np.isfinite(times.finish_s)
    if not finished.all():
        times = times.select(finished)
    if not len(times):
        return Totals(0, 0.0, 0.0, 0, 0, 0, 0)
    start_s = times.arrival_s.min()  # turns need not be in order of arrival
    return Totals(
        request_count=len(times),
        duration_s=float(times.arrival_s.max() - start_s),
        makespan_s=float(times.finish_s.max() - start_s),
        prompt_tokens=int(times.prompt_tokens.sum()),
        output_tokens=int(times.output_tokens.sum()),
        cached_tokens=int(times.cached_tokens.sum()),
        preemptions=int(times.preemptions.sum()),
    )


@dataclass(frozen=True, eq=False)
class PoolUse:
    """What the replicas of a pool did."""

    replica_count: int  # that there were at once, at most
    iteration_count: int  # of all of them
    busy_s: float  # replica seconds in which an iteration ran [s]
    series: Series
    iterations: Iterations | None = None  # where recorded
    tier: TierUse | None = None  # where its replicas have one


@dataclass(frozen=True, eq=False)
class Simulation:
    """What a deployment does with a trace."""

    times: RequestTimes | None  # None where requests were counted and not kept
    totals: Totals
    pools: tuple[PoolUse, ...]  # of the deployment, in its order
    class_names: tuple[str, ...]  # of the trace
    arrived_count: int  # all of the trace; where not kept, those that had arrived
    completed: int  # requests that finished: all, unless it was stopped
    windows: Windows | None = None  # counts where requests were not kept
    # migrations in the order in which they ended, records of dtype MOVE (motion.py);
    # None where there is no rebalancer
    moved: np.ndarray | None = None
    # lives of the replicas, records of dtype LIFE (lifecycle.py); None: as long as it
    lives: np.ndarray | None = None
    # when users ask no more; None where requests arrive whatever becomes of others [s]
    asked_until_s: float | None = None
    turns: Turns | None = None  # of conversations: of the rows of the table

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before all requests had finished."""
        return self.completed < self.arrived_count

    @property
    def replica_count(self) -> int:
        """Replicas of all pools."""
        return sum(pool.replica_count for pool in self.pools)

    @property
    def iteration_count(self) -> int:
        """Iterations of all replicas."""
        return sum(pool.iteration_count for pool in self.pools)

    @property
    def busy_s(self) -> float:
        """Replica seconds in which an iteration ran. [s]"""
        return sum(pool.busy_s for pool in self.pools)

    @property
    def busy_share(self) -> float:
        """Share of replica time in which an iteration ran."""
        available_s = self.totals.makespan_s * self.replica_count
        return self.busy_s / available_s if available_s > 0 else 0.0

    @cached_property
    def series(self) -> Series:
        """The fleet over time, all pools together."""
        if len(self.pools) == 1:
            return self.pools[0].series
        weights = [pool.replica_count / self.replica_count for pool in self.pools]
        return joined([pool.series for pool in self.pools], weights)

    @property
    def iterations(self) -> Iterations | None:
        """Every iteration of the only pool, where recorded."""
        return self.pools[0].iterations if len(self.pools) == 1 else None

    @property
    def table(self) -> RequestTimes:
        """The table of requests of a simulation that keeps it."""
        assert self.times is not None
        return self.times
