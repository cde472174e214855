"""Conversations and agents as a load: whole sessions, so many at once or at a rate."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from capplan.planning.load.load import Load
from capplan.simulator.results.answers import Answers
from capplan.simulator.results.times import Simulation
from capplan.workload.running import ONE_SESSION, Mix, Sessions
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

_CYCLES = 20.0
"""Turns of each session that a first look spans."""
_SESSIONS = 60
"""Sessions that it has in the mean, at least: intervals are between them."""
MOST_TURNS = 400_000
"""Turns of one sample at most."""
_MOST_S = 48 * 3600.0
"""Time of one sample at most. [s]"""


@dataclass(frozen=True)
class SessionSpan:
    """What counts of a sample on one fleet, from its begin."""

    from_s: float  # arrivals before are warm-up [s]
    until_s: float  # later ones would see the load go down [s]
    counts: bool = True  # whether enough of the sample does
    wanted_s: float = 0.0  # how long a sample is of which enough does [s]
    turnovers: float = 0.0  # how often caches are filled anew in what counts


@dataclass(frozen=True, eq=False)
class SessionLoad(Load):
    """Sessions whose turns come after answers, drawn whole from those of the base.

    They are found in the middle when a sample begins. When turns come, and at which
    rate, is known from a simulation alone.
    """

    sessions: Sessions = ONE_SESSION
    # of each request of the base alone on a replica; None before it is known [s]
    stay_s: np.ndarray | None = None
    turns_wanted: int = 0
    span: SessionSpan | None = None  # None before a fleet has told
    _mixes: dict[int, Mix] = field(default_factory=dict, repr=False)

    is_open: ClassVar[bool] = False

    @property
    def mix(self) -> Mix:
        """Sessions to draw from."""
        if 0 not in self._mixes:
            stay_s = np.zeros(len(self.base)) if self.stay_s is None else self.stay_s
            self._mixes[0] = Mix(self.base, stay_s)
        return self._mixes[0]

    @property
    def is_resampled(self) -> bool:
        """Whether there are more samples than one: sessions are always drawn."""
        return True

    @property
    def running(self) -> float:
        """Sessions that run in the mean, if each request ran alone."""
        return self.sessions.running(float(self.mix.lasts_s.mean()))

    @property
    def most_replicas(self) -> int:
        """Replicas above which more are not tried: one a session."""
        return max(1, int(np.ceil(self.running)))

    @property
    def turns_per_s(self) -> float:
        """Turns asked, if each request ran alone. [1/s]"""
        return self._turns_per_s(self.mix)

    def _turns_per_s(self, mix: Mix) -> float:
        running = self.sessions.running(float(mix.lasts_s.mean()))
        return running * float(mix.turns.sum() / mix.lasts_s.sum())

    def least_per_s(self, slo: Slo) -> float:
        """Return the turns that come at least where none stays beyond its limits. [1/s]

        One without limits is taken to have the widest of the others. 0 where limits do
        not say how long a turn may stay and so many sessions run at once.
        """
        stay_s = _longest_s(self.base, slo)
        if not np.isfinite(stay_s).all():
            if self.sessions.lanes is not None:
                return 0.0
            stay_s = np.zeros(len(self.base))  # they begin whatever becomes of others
        return self._turns_per_s(Mix(self.base, stay_s))

    @property
    def first_look_s(self) -> float:
        """Time of a first look. [s]"""
        mean_s = float(self.mix.lasts_s.mean())
        wanted_s = max(
            _CYCLES * self.running / self.turns_per_s,
            self.turns_wanted / self.turns_per_s,
            mean_s * (_SESSIONS / max(self.running, 1e-9) - 1),
        )
        return min(wanted_s, self.most_s)

    @property
    def most_s(self) -> float:
        """Time of one sample at most. [s]"""
        return float(min(MOST_TURNS / self.turns_per_s, _MOST_S))

    def sample(self, index: int, duration_s: float | None = None) -> Trace:
        """Return the sessions of one simulation, begun in a time. [s]"""
        if duration_s is not None:
            return self._drawn(index, duration_s)
        if index not in self._samples:
            self._samples[index] = self._drawn(index, self.first_look_s)
        return self._samples[index]

    def _drawn(self, index: int, duration_s: float) -> Trace:
        rng = np.random.default_rng((self.seed, index, 1))
        drawn = self.sessions.drawn(self.mix, rng, duration_s)
        return drawn.changed(notes=self.base.notes)

    @property
    def until_s(self) -> float:
        """From when on requests of a sample do not count. [s]"""
        return np.inf if self.span is None else self.span.until_s

    def counted(self, index: int = 0) -> np.ndarray:
        """Return which requests of a sample may count, shape (n,), bool: all."""
        return np.ones(len(self.sample(index)), bool)

    def warmed_up(self, stay_s: float) -> Self:
        """Return the load: its warm-up is that of a deployment."""
        return self

    def as_served(
        self, first: Simulation, simulated: Callable[[Trace], Simulation]
    ) -> tuple[Self, Simulation]:
        """Return both: what counts of a sample is that of a deployment."""
        return self, first

    def unsteady(self, answers: Answers | None) -> str:
        """Return nothing: what is not settled is told by the judgement."""
        return ""

    def alone(self, stay_s: np.ndarray, turns_wanted: int) -> Self:
        """Return the load where it is known how long requests take alone. [s]"""
        return replace(
            self, stay_s=stay_s, turns_wanted=turns_wanted, _mixes={}, _samples={}
        )


def _longest_s(trace: Trace, slo: Slo) -> np.ndarray:
    """Return how long each turn may stay, shape (n,); infinite where none says. [s]"""
    limits_s = np.array(slo.columns(trace.request_class, trace.class_names))
    free = ~np.isfinite(limits_s).any(axis=0)
    if not free.all():
        limits_s[:, free] = limits_s[:, ~free].max(axis=1, keepdims=True)
    ttft_s, tpot_s, tbt_s, e2e_s = limits_s
    steps = trace.output_tokens - 1
    gaps_s = np.where(steps > 0, np.minimum(tpot_s, tbt_s), 0.0) * steps
    return np.asarray(np.minimum(ttft_s + gaps_s, e2e_s))
