"""What a fleet is asked to serve: samples of it, and what of a sample counts."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from capplan.planning.worst_windows import LogClock
from capplan.simulator.times import Simulation
from capplan.workload.arrivals import parse_arrivals, rescale, with_arrivals
from capplan.workload.days import DAY_S
from capplan.workload.synthesis import joined, resample
from capplan.workload.trace import Trace
from capplan.workload.users import ONE_USER, Users

_STAYS, _SHARE = 3, 0.2
"""Stays of a warm-up, and the part of a first look that it takes at most."""


@dataclass(frozen=True, eq=False)
class Load(ABC):
    """What is served, whoever decides when requests arrive.

    Nothing here tells arrivals before a simulation: those of users who wait for an
    answer are known from its result alone.
    """

    base: Trace  # as read
    # that draws arrivals; None where they are the trace's own, then one sample of what
    # the user serves, all of which counts
    process: str | None
    rate_per_s: float = float("nan")  # of the process [requests/s]
    request_count: int = 0  # of a drawn sample; 0 where the base is taken as it is
    # arrivals in this first part do not count, in all samples where the user gave it
    warmup_s: float = 0.0  # [s]
    has_given_warmup: bool = False
    seed: int = 0  # of all samples
    as_replayed: bool = False  # what is left at its end need not be held for longer
    day_s: float = DAY_S  # a day of the base, which may be scaled in time [s]
    _samples: dict[int, Trace] = field(default_factory=dict, repr=False)
    # by latency tables, engine, an SLO that these see, role and hand-off, with what
    # ``saturation`` found of them
    saturations: dict[tuple[Any, ...], tuple[Any, ...]] = field(
        default_factory=dict, repr=False
    )

    @property
    def is_open(self) -> bool:
        """Whether requests arrive whatever becomes of the others."""
        return True

    @property
    def falls_in_step(self) -> bool:
        """Whether what is served changes over hours, whatever the fleet.

        Users who all think as long bunch, as buses do: who waits behind others comes
        back behind them.
        """
        return False

    @property
    def trace(self) -> Trace:
        """The first sample."""
        return self.sample(0)

    @property
    def clock(self) -> LogClock | None:
        """The log's clock, by which windows are judged; None of drawn arrivals."""
        base = self.base
        own = self.process is None and np.isnan(self.rate_per_s) and self.is_open
        if not own or base.arrival_s is None:
            return None
        first_s = None if base.clock_s is None else base.clock_s + base.arrival_s[0]
        return LogClock(first_s, DAY_S / self.day_s)

    @property
    def is_resampled(self) -> bool:
        """Whether there are more samples than one."""
        return self.process is not None and self.request_count > 0

    def counted(self, index: int = 0) -> np.ndarray:
        """Return which requests of a first look may count, shape (n,), bool.

        Before it is simulated: all, where nothing is known of their arrivals.
        """
        sample = self.sample(index)
        if sample.arrival_s is None:
            return np.ones(len(sample), bool)
        return np.asarray(sample.arrival_s >= sample.arrival_s[0] + self.warmup_s)

    def sample(self, index: int, duration_s: float | None = None) -> Trace:
        """Return what one simulation serves; ``index`` tells samples apart. [s]

        Lengths are drawn from the base with replacement, arrivals from the process. A
        longer one begins with the shorter one, and it is the same for every replica
        count. Without a time, it is a first look.
        """
        if duration_s is not None:
            return self._lasting(index, duration_s)
        if not self.is_resampled:
            return self._as_read()
        if index not in self._samples:
            self._samples[index] = replace(
                self._first_look(index), source=self.base.source, notes=self.base.notes
            )
        return self._samples[index]

    def _as_read(self) -> Trace:
        """Return all requests of the base, once each."""
        return self.base

    @abstractmethod
    def _first_look(self, index: int) -> Trace:
        """Return about ``request_count`` requests."""

    @abstractmethod
    def _lasting(self, index: int, duration_s: float) -> Trace:
        """Return the requests of a time. [s]"""

    @abstractmethod
    def behind_a_queue(self, arrivals: Trace, queued: int) -> tuple[Trace, int]:
        """Return a sample that starts with a queue, and how many are queued at most."""

    @abstractmethod
    def warmed_up(self, stay_s: float) -> Self:
        """Return the load with a warm-up for requests that stay so long. [s]"""

    @abstractmethod
    def as_served(self, first: Simulation) -> Self:
        """Return the load with what a deployment's first look tells of it."""


@dataclass(frozen=True, eq=False)
class OpenLoad(Load):
    """Requests that arrive whatever becomes of the others: a trace, or a process.

    A first look has ``request_count`` requests at exactly the rate: they show what is
    served, and bounds are about them. The mean rate of samples of a time is left to
    chance, as it is in service.
    """

    def _first_look(self, index: int) -> Trace:
        rng = np.random.default_rng((self.seed, index, 1))
        drawn = resample(self.base, self.request_count, rng)
        return timed(drawn, self.process or "poisson", self.rate_per_s, rng)

    def _lasting(self, index: int, duration_s: float) -> Trace:
        process = parse_arrivals(self.process or "poisson")
        expected = self.rate_per_s * duration_s
        n = int(expected + 6 * np.sqrt(expected)) + 16
        while True:
            rng = np.random.default_rng((self.seed, index, 2))
            arrival_s = process.arrivals_s(n, self.rate_per_s, rng)
            arrival_s -= arrival_s[0]
            if arrival_s[-1] >= duration_s:
                break
            n *= 2
        n = int(np.searchsorted(arrival_s, duration_s))
        drawn = resample(self.base, n, np.random.default_rng((self.seed, index, 3)))
        return replace(drawn, arrival_s=arrival_s[:n], notes=self.base.notes)

    def crowd(self, request_count: int) -> Trace:
        """Return requests of the mix that all arrive at time 0."""
        rng = np.random.default_rng((self.seed, 4))
        drawn = resample(self.base, request_count, rng)
        return replace(drawn, arrival_s=np.zeros(request_count))

    def behind_a_queue(self, arrivals: Trace, queued: int) -> tuple[Trace, int]:
        """Return arrivals behind as many requests of the mix, all at time 0."""
        return joined(self.crowd(queued), arrivals), queued

    def warmed_up(self, stay_s: float) -> Self:
        """Return the load with a warm-up of three stays, at most a fifth of a sample.

        It is fixed before the simulation, so that the first look at every replica count
        and the lower bound are about the same requests.
        """
        if self.process is None:
            return self
        warmup_s = float(min(_STAYS * stay_s, _SHARE * self.trace.duration_s))
        return replace(self, warmup_s=warmup_s)

    def as_served(self, first: Simulation) -> Self:
        """Return the load: it is known beforehand."""
        return self


@dataclass(frozen=True, eq=False)
class UserLoad(Load):
    """Requests of users who each wait for an answer, think, and ask again.

    At which rate is known from a deployment's first look (``as_served``).
    """

    users: Users = ONE_USER
    stay_s: float = 0.0  # of a request alone [s]

    @property
    def is_open(self) -> bool:
        """Whether requests arrive whatever becomes of the others."""
        return False

    @property
    def asks_once(self) -> bool:
        """Whether there are no more requests than users."""
        return not self.is_resampled and self.users.count >= len(self.base)

    @property
    def falls_in_step(self) -> bool:
        """Whether all think as long, and do think."""
        return self.users.mean_think_s > 0 and not self.users.is_exponential

    def _as_read(self) -> Trace:
        return self.users.asking(self.base, np.random.default_rng((self.seed, 2)))

    def _first_look(self, index: int) -> Trace:
        return self._lasting(index, self.request_count / self._most_per_s)

    @property
    def _most_per_s(self) -> float:
        """Rate of users who are answered as one who is alone. [requests/s]"""
        return self.users.count / max(self.users.mean_think_s + self.stay_s, 1e-9)

    def _lasting(self, index: int, duration_s: float) -> Trace:
        # More than they ask: they ask no more when the time is over.
        rate_per_s = self._most_per_s
        if np.isfinite(self.rate_per_s):
            rate_per_s = min(rate_per_s, self.rate_per_s)
        n = 2 * int(rate_per_s * duration_s) + self.users.count
        drawn = resample(self.base, n, np.random.default_rng((self.seed, index, 3)))
        drawn = replace(drawn, notes=self.base.notes)
        rng = np.random.default_rng((self.seed, index, 2))
        return self.users.asking(drawn, rng, duration_s)

    def behind_a_queue(self, arrivals: Trace, queued: int) -> tuple[Trace, int]:
        """Return what the users ask when all begin at time 0."""
        assert arrivals.think_s is not None
        think_s = arrivals.think_s.copy()
        think_s[: arrivals.users] = 0.0
        return replace(arrivals, think_s=think_s), arrivals.users

    def warmed_up(self, stay_s: float) -> Self:
        """Return the load: its warm-up is that of a deployment."""
        return replace(self, stay_s=stay_s)

    def as_served(self, first: Simulation) -> Self:
        """Return the load at the rate at which a deployment answers its users."""
        totals = first.totals
        known = replace(self, rate_per_s=totals.rate_per_s)
        if self.has_given_warmup or not self.is_resampled:
            return known
        warmup_s = min(_STAYS * self.stay_s, _SHARE * totals.duration_s)
        return replace(known, warmup_s=float(warmup_s))


def scaled(load: OpenLoad, times: float) -> OpenLoad:
    """Return requests as read, their arrivals scaled in time to ``times`` the rate."""
    base = load.base
    if base.duration_s > 0:
        base = rescale(base, times * base.rate_per_s)
    return replace(
        load,
        base=base,
        rate_per_s=times * load.rate_per_s,
        day_s=load.day_s / times,
        _samples={},
    )


def timed(
    trace: Trace, process: str, rate_per_s: float, rng: np.random.Generator
) -> Trace:
    """Return the trace with drawn arrivals, scaled to their exact rate."""
    timed = with_arrivals(trace, rate_per_s, process, rng)
    return rescale(timed, rate_per_s) if timed.duration_s > 0 else timed
