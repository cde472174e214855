"""What a fleet is asked to serve: samples of it, and what of a sample counts."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from capplan.planning.load.worst_windows import LogClock
from capplan.simulator.results.answers import Answers
from capplan.simulator.results.sample import sample_of
from capplan.simulator.results.times import Simulation
from capplan.workload.arrivals import parse_arrivals, rescale, with_arrivals
from capplan.workload.days import DAY_S
from capplan.workload.synthesis import joined, resample
from capplan.workload.trace import Trace
from capplan.workload.users import ONE_USER, Users

_STAYS, _SHARE = 3, 0.2
"""Stays of a warm-up, and the part of a first look that it takes at most."""
ROUNDS = 10
"""Answers to each user in what counts of a sample, at least."""
_ROUNDS_BEFORE, _ROUNDS_AFTER = 2.5, 1.5
"""Rounds before those that count, so that users who ask in step are halfway, and after
them, so that no request that counts sees the load go down."""
MOST_OF_USERS = 2_000_000
"""Requests of a sample of users at most."""
_LITTLE = 0.03
"""Difference between users and rate times round that a sample may have."""

Saturations = dict[tuple[Any, ...], tuple[Any, ...]]
"""What replicas complete of the same requests: see ``saturation``."""


@dataclass(frozen=True, eq=False)
class Load:
    """Requests that arrive whatever becomes of the others: a trace, or a process.

    A first look has ``request_count`` requests at exactly the rate: they show what is
    served, and bounds are about them. The mean rate of samples of a time is left to
    chance, as it is in service.
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
    lasts_s: float = 0.0  # of samples, where a deployment has told; 0: it has not [s]
    day_s: float = DAY_S  # a day of the base, which may be scaled in time [s]
    _samples: dict[int, Trace] = field(default_factory=dict, repr=False)
    # by latency tables, engine, an SLO that these see, role and hand-off, with what
    # ``saturation`` found of them
    saturations: Saturations = field(default_factory=dict, repr=False)

    is_open: ClassVar[bool] = True
    """Whether requests arrive whatever becomes of the others."""

    @property
    def falls_in_step(self) -> bool:
        """Whether what is served changes over hours, whatever the fleet.

        Users who all think as long bunch, as buses do: who waits behind others comes
        back behind them.
        """
        return False

    @property
    def most_replicas(self) -> int | None:
        """Replicas above which more are not tried; None: whatever a fleet may have."""
        return None

    @property
    def until_s(self) -> float:
        """From when on requests of a first look do not count. [s]"""
        return np.inf

    def whole_rounds_s(self, duration_s: float) -> float:
        """Return a time, of users so many rounds of theirs at least. [s]"""
        return duration_s

    def unsteady(self, answers: Answers | None) -> str:
        """Return what contradicts itself in what users were answered; empty: none."""
        return ""

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
        if sample.arrival_s is None or sample.has_waits:
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
            self._samples[index] = self._first_look(index).changed(
                source=self.base.source, notes=self.base.notes
            )
        return self._samples[index]

    def _as_read(self) -> Trace:
        """Return all requests of the base, once each."""
        return self.base

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
        return drawn.changed(arrival_s=arrival_s[:n], notes=self.base.notes)

    def crowd(self, request_count: int) -> Trace:
        """Return requests of the mix that all arrive at time 0."""
        rng = np.random.default_rng((self.seed, 4))
        drawn = resample(self.base, request_count, rng)
        return drawn.changed(arrival_s=np.zeros(request_count))

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

    def as_served(
        self, first: Simulation, simulated: Callable[[Trace], Simulation]
    ) -> tuple[Self, Simulation]:
        """Return both: the load is known beforehand."""
        return self, first


@dataclass(frozen=True, eq=False)
class UserLoad(Load):
    """Requests of users who each wait for an answer, think, and ask again.

    When they arrive, and at which rate, is known from a deployment's first look alone
    (``as_served``).
    """

    users: Users = ONE_USER
    stay_s: float = 0.0  # of a request alone [s]
    may_repeat: bool = False  # whether requests as read are drawn again where too few
    counted_s: float = np.inf  # of them, after the warm-up [s]

    is_open: ClassVar[bool] = False

    @property
    def asks_once(self) -> bool:
        """Whether there are no more requests than users."""
        return not self.may_repeat and self.users.count >= len(self.base)

    @property
    def _rounds(self) -> float:
        """Answers to each user in what counts of a sample; infinite if all counts."""
        return self.counted_s * self.rate_per_s / self._asking

    @property
    def _asking(self) -> int:
        """Users who ask at all."""
        count = self.users.count
        return count if self.is_resampled else min(count, len(self.base))

    @property
    def falls_in_step(self) -> bool:
        """Whether all think as long, and do think."""
        return self.users.mean_think_s > 0 and not self.users.is_exponential

    def _as_read(self) -> Trace:
        return self.users.asking(self.base, np.random.default_rng((self.seed, 2)))

    def _first_look(self, index: int) -> Trace:
        return self._lasting(
            index, self.lasts_s or self.request_count / self._most_per_s
        )

    @property
    def _most_per_s(self) -> float:
        """Rate of users who are answered as one who is alone. [requests/s]"""
        return self.users.count / max(self.users.mean_think_s + self.stay_s, 1e-9)

    def _lasting(self, index: int, duration_s: float) -> Trace:
        # More than they ask: they ask no more when the time is over.
        rate_per_s = self._most_per_s
        if np.isfinite(self.rate_per_s):
            rate_per_s = self.rate_per_s
        n = 2 * int(rate_per_s * duration_s) + 2 * self.users.count
        drawn = resample(self.base, n, np.random.default_rng((self.seed, index, 3)))
        drawn = drawn.changed(notes=self.base.notes)
        rng = np.random.default_rng((self.seed, index, 2))
        return self.users.asking(drawn, rng, duration_s)

    def behind_a_queue(self, arrivals: Trace, queued: int) -> tuple[Trace, int]:
        """Return what the users ask when all begin at time 0."""
        assert arrivals.think_s is not None
        think_s = arrivals.think_s.copy()
        think_s[: arrivals.users] = 0.0
        return arrivals.changed(think_s=think_s), arrivals.users

    def warmed_up(self, stay_s: float) -> Self:
        """Return the load: its warm-up is that of a deployment."""
        return replace(self, stay_s=stay_s)

    @property
    def until_s(self) -> float:
        """From when on requests of a sample do not count. [s]"""
        return self.warmup_s + self.counted_s

    def whole_rounds_s(self, duration_s: float) -> float:
        """Return a time of so many rounds of the users at least. [s]"""
        round_s = self.users.count / self.rate_per_s
        return float(np.ceil(duration_s / round_s) * round_s)

    def as_served(
        self, first: Simulation, simulated: Callable[[Trace], Simulation]
    ) -> tuple[Self, Simulation]:
        """Return the load at the rate of a deployment, and a sample that shows it.

        The sample is made longer until each user has had ten answers in what counts of
        it and Little's law holds, or the most requests are asked.
        """
        if np.isfinite(self.counted_s):
            return self, first
        load, lasts_s = self._counting(first), first.totals.duration_s
        while self.may_repeat:
            answers = sample_of(first, None, load.warmup_s, (), load.until_s).answers
            known = ROUNDS - 0.5 < load._rounds < np.inf  # whole numbers
            if known and not load.unsteady(answers):
                break
            most_s = MOST_OF_USERS / load.rate_per_s
            round_s = load.users.count / load.rate_per_s
            wanted_s = (ROUNDS + 1 + _ROUNDS_BEFORE + _ROUNDS_AFTER) * round_s
            if self.has_given_warmup:
                wanted_s += self.warmup_s
            wanted_s = max(wanted_s, (2.0 if known else 1.25) * lasts_s)
            if lasts_s >= 0.99 * most_s:
                break
            lasts_s = min(wanted_s, most_s)
            count = max(load.request_count, 1)
            load = replace(load, lasts_s=lasts_s, request_count=count, _samples={})
            first = simulated(load.trace)
            load = load._counting(first)
        return load, first

    def _counting(self, first: Simulation) -> Self:
        """Return the load with what of a sample counts: whole rounds of its users.

        So that what is answered in it does not depend on where it begins. All of a
        sample that is shorter counts.
        """
        times, until_s = first.table, first.asked_until_s
        assert until_s is not None
        since_s = times.arrival_s - times.arrival_s[0]
        lasts_s = until_s - float(times.arrival_s[0])
        settled = (since_s > _SHARE * lasts_s) & (since_s < (1 - _SHARE) * lasts_s)
        stays_s = times.e2e_s[settled] if settled.any() else times.e2e_s
        round_s = max(float(stays_s.mean()) + self.users.mean_think_s, 1e-9)
        load = replace(self, rate_per_s=self._asking / round_s, counted_s=np.inf)
        warmup_s = _ROUNDS_BEFORE * round_s
        if self.has_given_warmup:
            warmup_s = self.warmup_s
        rounds = int((lasts_s - warmup_s) / round_s - _ROUNDS_AFTER)
        if rounds < 1:
            return load
        return replace(load, warmup_s=warmup_s, counted_s=rounds * round_s)

    def unsteady(self, answers: Answers | None) -> str:
        """Return what contradicts itself in what users were answered; empty: none.

        Little's law has as many users as rate times round, and the rate has as many
        tokens as were given.
        """
        if answers is None or not answers.asked:
            return ""
        users, of = self._asking, answers.users(self.users.mean_think_s)
        if abs(of / users - 1) > _LITTLE:
            return (
                f"by Little's law {of:,.3g} users ask where there are {users:,}: the "
                "sample is too short to tell their rate"
            )
        if abs(answers.given_tokens - answers.output_tokens) > (
            _LITTLE * answers.output_tokens
        ):
            return "output tokens differ from those of the answers: the sample is short"
        return ""


def scaled(load: Load, times: float) -> Load:
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
