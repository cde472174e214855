"""What a fleet is asked to serve: samples of it, and what of a sample counts."""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from capplan.workload.arrivals import parse_arrivals, rescale, with_arrivals
from capplan.workload.synthesis import resample
from capplan.workload.trace import Trace


class Load(Protocol):
    """What is served, whoever decides when requests arrive.

    Nothing here tells arrivals before a simulation: those of users who wait for an
    answer are known from its result alone.
    """

    def sample(self, index: int, duration_s: float | None = None) -> Trace:
        """Return what one simulation serves; ``index`` tells samples apart.

        It lasts ``duration_s``, or as long as a first look takes.
        """

    def counts(self, arrival_s: np.ndarray) -> np.ndarray:
        """Return which requests of a simulated first look count, shape (n,), bool.

        ``arrival_s`` is when they arrived, by the simulation's own clock.
        """


@dataclass(frozen=True, eq=False)
class OpenLoad:
    """Requests that arrive whatever becomes of the others: a trace, or a process."""

    base: Trace  # as read
    # of drawn times; None where they are the trace's own, which are then one sample of
    # what the user serves, and all count
    process: str | None
    rate_per_s: float = float("nan")  # of the process [requests/s]
    request_count: int = 0  # of a drawn sample; 0 where the base is taken as it is
    # arrivals in this first part do not count, in all samples where the user gave it
    warmup_s: float = 0.0  # [s]
    has_given_warmup: bool = False
    seed: int = 0  # of all samples
    _samples: dict[int, Trace] = field(default_factory=dict, repr=False)
    # by identity of a configuration and an SLO, with what ``saturation`` found of them
    saturations: dict[tuple[int, int], tuple[Any, ...]] = field(
        default_factory=dict, repr=False
    )

    @property
    def trace(self) -> Trace:
        """The first sample."""
        return self.sample(0)

    @property
    def is_resampled(self) -> bool:
        """Whether there are more samples than one."""
        return self.process is not None and self.request_count > 0

    def counts(self, arrival_s: np.ndarray) -> np.ndarray:
        """Return which requests of a sample count, shape (n,), bool."""
        return np.asarray(arrival_s >= arrival_s[0] + self.warmup_s)

    def counted(self, index: int = 0) -> np.ndarray:
        """Return which requests of a first look count, shape (n,), bool."""
        arrival_s = self.sample(index).arrival_s
        assert arrival_s is not None
        return self.counts(arrival_s)

    def sample(self, index: int, duration_s: float | None = None) -> Trace:
        """Return the arrivals of a time from the first one on, at time 0. [s]

        Lengths are drawn from the base with replacement, arrivals from the process,
        whose mean over the sample is left to chance as it is in service. A longer one
        begins with the shorter one, and it is the same for every replica count.

        Without a time, ``request_count`` requests at exactly the rate: they show what
        is served, and bounds are about them.
        """
        if duration_s is not None:
            return self._lasting(index, duration_s)
        if not self.is_resampled:
            return self.base
        if index not in self._samples:
            rng = np.random.default_rng((self.seed, index, 1))
            drawn = resample(self.base, self.request_count, rng)
            assert self.process is not None
            drawn = timed(drawn, self.process, self.rate_per_s, rng)
            self._samples[index] = replace(
                drawn, source=self.base.source, notes=self.base.notes
            )
        return self._samples[index]

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


def scaled(load: OpenLoad, times: float) -> OpenLoad:
    """Return requests as read, their arrivals scaled in time to ``times`` the rate."""
    base = load.base
    if base.duration_s > 0:
        base = rescale(base, times * base.rate_per_s)
    return replace(load, base=base, rate_per_s=times * load.rate_per_s, _samples={})


def timed(
    trace: Trace, process: str, rate_per_s: float, rng: np.random.Generator
) -> Trace:
    """Return the trace with drawn arrivals, scaled to their exact rate."""
    timed = with_arrivals(trace, rate_per_s, process, rng)
    return rescale(timed, rate_per_s) if timed.duration_s > 0 else timed
