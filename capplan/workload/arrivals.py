"""Arrival processes for traces without times; other rates for traces with times.

A process is a function ``arrive(n, rate_per_s, parameters, rng)`` that returns the
arrivals of n requests; to add one, write it and list it in ``ARRIVALS``.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.workload.forest import begins_s, begun, session_of
from capplan.workload.trace import Trace

Parameters = Mapping[str, tuple[float, ...]]
"""Values of each parameter: one, or one per component of a sum."""


MOST_RATE_PER_S = 1e5
"""Arrival rate that a trace may be given. [requests/s]"""

_MOST_CV = 100.0
_MOST_SHAPE = 10.0
_MOST_SIGMA = 5.0
_STEPS_PER_REQUEST = 100.0
_REQUESTS_PER_STEP = 1e5
"""Bounds of a Cox process: beyond them it is Poisson, or one rate throughout."""


class Arrivals(NamedTuple):
    """A family of arrival processes."""

    arrive: Callable[[int, float, Parameters, np.random.Generator], np.ndarray]  # [s]
    needs: tuple[str, ...] = ()  # names of its parameters, required and positive


def poisson(
    n: int, rate_per_s: float, parameters: Parameters, rng: np.random.Generator
) -> np.ndarray:
    """Return arrivals with independent exponential gaps. [s]"""
    return np.cumsum(rng.exponential(1 / rate_per_s, n))


def gamma(
    n: int, rate_per_s: float, parameters: Parameters, rng: np.random.Generator
) -> np.ndarray:
    """Return arrivals with gamma gaps of coefficient of variation ``cv``. [s]

    Shape k gives cv = 1/√k: 1 is Poisson, above is bursty, below is regular.
    """
    cv = parameters["cv"][0]
    if not 1 / _MOST_CV <= cv <= _MOST_CV:
        raise InputError(
            f"arrivals gamma: cv is {cv:g}; expected {1 / _MOST_CV:g} to {_MOST_CV:g}"
        )
    shape = 1 / cv**2
    return np.cumsum(rng.gamma(shape, 1 / (shape * rate_per_s), n))


def weibull(
    n: int, rate_per_s: float, parameters: Parameters, rng: np.random.Generator
) -> np.ndarray:
    """Return arrivals with Weibull gaps of a ``shape``; 1 is Poisson. [s]"""
    shape = parameters["shape"][0]
    if not 1 / _MOST_SHAPE <= shape <= _MOST_SHAPE:
        raise InputError(
            f"arrivals weibull: shape is {shape:g}; expected {1 / _MOST_SHAPE:g} to "
            f"{_MOST_SHAPE:g}"
        )
    return np.cumsum(rng.weibull(shape, n) / (math.gamma(1 + 1 / shape) * rate_per_s))


def constant(
    n: int, rate_per_s: float, parameters: Parameters, rng: np.random.Generator
) -> np.ndarray:
    """Return arrivals with equal gaps. [s]"""
    return np.arange(n) / rate_per_s


def cox(
    n: int, rate_per_s: float, parameters: Parameters, rng: np.random.Generator
) -> np.ndarray:
    """Return arrivals of a Cox process: Poisson with a random, varying rate. [s]

    The log rate is a sum of stationary Ornstein-Uhlenbeck processes, one per pair
    of ``sigma`` (standard deviation) and ``tau_s`` (correlation time), piecewise
    constant over a tenth of the shortest ``tau_s``. Its mean is ``rate_per_s``.
    """
    from scipy.signal import lfilter

    sigma = np.array(parameters["sigma"])
    tau_s = np.array(parameters["tau_s"])
    step_s = float(tau_s.min()) / 10
    if sigma.max() > _MOST_SIGMA:
        raise InputError(
            f"arrivals cox: sigma is {sigma.max():g}; expected at most {_MOST_SIGMA:g}"
        )
    if not 1 / _STEPS_PER_REQUEST <= rate_per_s * step_s <= _REQUESTS_PER_STEP:
        least_s = 10 / _STEPS_PER_REQUEST / rate_per_s
        raise InputError(
            f"arrivals cox: tau_s is {tau_s.min():g}; expected {least_s:g} to "
            f"{10 * _REQUESTS_PER_STEP / rate_per_s:g} at {rate_per_s:g} requests/s"
        )
    decay = np.exp(-step_s / tau_s)
    level = sigma * rng.standard_normal(len(sigma))
    start_s = 0.0
    parts: list[np.ndarray] = []
    missing = n
    while missing > 0:
        steps = max(256, int(1.2 * missing / (rate_per_s * step_s)) + 1)
        steps = min(steps, 1_000_000)
        noise = rng.standard_normal((steps, len(sigma))) * sigma * np.sqrt(1 - decay**2)
        levels = np.empty_like(noise)
        for part in range(len(sigma)):
            levels[:, part], _ = lfilter(
                [1], [1, -decay[part]], noise[:, part], zi=[decay[part] * level[part]]
            )
        level = levels[-1]
        # E[exp(X)] = exp(σ²/2) for a normal X, so this keeps the mean rate.
        log_rate = levels.sum(axis=1) - (sigma**2).sum() / 2
        count = rng.poisson(rate_per_s * step_s * np.exp(log_rate))
        begins_s = start_s + step_s * np.arange(steps)
        within_s = rng.random(int(count.sum())) * step_s
        parts.append(np.sort(np.repeat(begins_s, count) + within_s)[:missing])
        missing -= len(parts[-1])
        start_s += steps * step_s
    return np.concatenate(parts)


ARRIVALS = {
    "poisson": Arrivals(poisson),
    "gamma": Arrivals(gamma, ("cv",)),
    "weibull": Arrivals(weibull, ("shape",)),
    "constant": Arrivals(constant),
    "cox": Arrivals(cox, ("sigma", "tau_s")),
}
"""Arrival processes by name."""


@dataclass(frozen=True)
class ArrivalProcess:
    """An arrival process with its parameters."""

    name: str = "poisson"  # one of ``ARRIVALS``
    parameters: Parameters = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in ARRIVALS:
            raise InputError(
                f"unknown arrivals {self.name!r}; expected {', '.join(ARRIVALS)}"
            )
        needs = ARRIVALS[self.name].needs
        if set(needs) != set(self.parameters):
            given = ", ".join(self.parameters) or "nothing"
            raise InputError(
                f"arrivals {self.name} take {' and '.join(needs) or 'nothing'}; "
                f"given: {given} (as in gamma:cv=2)"
            )
        for name, values in self.parameters.items():
            if not values or not all(0 < value < float("inf") for value in values):
                raise InputError(
                    f"arrivals {self.name}: {name} is {values}; expected more than 0"
                )
        if len({len(values) for values in self.parameters.values()}) > 1:
            raise InputError(
                f"arrivals {self.name}: {' and '.join(needs)} differ in number"
            )

    def __str__(self) -> str:
        """Return the text that ``parse_arrivals`` reads."""
        given = ",".join(
            f"{name}={'/'.join(f'{value:g}' for value in values)}"
            for name, values in self.parameters.items()
        )
        return f"{self.name}:{given}" if given else self.name

    def arrivals_s(
        self, n: int, rate_per_s: float, rng: np.random.Generator
    ) -> np.ndarray:
        """Return the arrivals of ``n`` requests from time 0, shape (n,). [s]"""
        _check_rate(rate_per_s)
        return ARRIVALS[self.name].arrive(n, rate_per_s, self.parameters, rng)

    def within_s(self, n: int, window_s: float, rng: np.random.Generator) -> np.ndarray:
        """Return ``n`` arrivals whose scaled gaps fill a window, shape (n,). [s]"""
        drawn_s = self.arrivals_s(n + 1, (n + 1) / window_s, rng)
        return drawn_s[:-1] * (window_s / max(float(drawn_s[-1]), 1e-300))


def parse_arrivals(text: str) -> ArrivalProcess:
    """Return the process written as ``poisson`` or ``gamma:cv=2``."""
    name, _, given = text.strip().partition(":")
    parameters: dict[str, tuple[float, ...]] = {}
    for part in filter(None, given.split(",")):
        key, equals, values = part.partition("=")
        try:
            numbers = tuple(float(value) for value in values.split("/"))
        except ValueError:
            numbers = ()
        if not equals or not numbers or key.strip() in parameters:
            raise InputError(
                f"--arrivals {text!r}: {part!r} is no parameter; "
                "expected as in gamma:cv=2"
            )
        parameters[key.strip()] = numbers
    return ArrivalProcess(name, parameters)


def with_arrivals(
    trace: Trace, rate_per_s: float, text: str, rng: np.random.Generator
) -> Trace:
    """Return the trace with arrivals drawn from a process, of sessions if it has some.

    ``rate_per_s`` is then of sessions; the waits in them stay.
    """
    process = parse_arrivals(text)
    if trace.has_turns:
        begin_s = process.arrivals_s(int(session_of(trace).max()) + 1, rate_per_s, rng)
        note = f"sessions begin: {process} at {rate_per_s:g} sessions/s"
        return begun(trace, begin_s).changed(notes=(*trace.notes, note), clock_s=None)
    arrival_s = process.arrivals_s(len(trace), rate_per_s, rng)
    note = f"arrivals: {process} at {rate_per_s:g} requests/s"
    notes = (*trace.notes, note)
    return trace.changed(arrival_s=arrival_s, notes=notes, clock_s=None)


def rescale(trace: Trace, rate_per_s: float) -> Trace:
    """Return the trace with its gaps scaled to a mean rate; the first arrival stays.

    Of conversations those between the begins of sessions.
    """
    _check_rate(rate_per_s)
    if trace.arrival_s is None or not trace.duration_s > 0:
        raise InputError(
            f"{trace.source}: no arrivals that differ to rescale; "
            "expected times, or an arrival process such as poisson"
        )
    if trace.has_turns:
        return _sessions_at(trace, rate_per_s)
    factor = trace.rate_per_s / rate_per_s
    first_s = trace.arrival_s[0]
    note = f"arrivals rescaled from {trace.rate_per_s:.4g} to {rate_per_s:g} requests/s"
    return trace.changed(
        arrival_s=first_s + (trace.arrival_s - first_s) * factor,
        notes=(*trace.notes, note),
    )


def _sessions_at(trace: Trace, rate_per_s: float) -> Trace:
    """Return the trace with sessions that begin at a mean rate; the first stays."""
    begin_s = begins_s(trace)
    first_s = begin_s.min()
    gap_s = (begin_s.max() - first_s) / max(1, len(begin_s) - 1)
    note = f"sessions begin at {rate_per_s:g}/s"
    at_s = first_s + (begin_s - first_s) / (gap_s * rate_per_s) if gap_s else begin_s
    return begun(trace, at_s).changed(notes=(*trace.notes, note))


def no_times(trace: Trace) -> str:
    """Return how to give arrivals to a trace that has none."""
    text = f"{trace.source}: no arrival times"
    if trace.unread_columns:
        first = trace.unread_columns[0]
        text += (
            f"; if an ignored column ({', '.join(trace.unread_columns)}) holds them, "
            f"name it, as in --columns {quote(f'arrival_s={first}')}; else"
        )
    else:
        text += ";"
    if told := [note for note in trace.notes if ": give --" in note]:
        return f"{trace.source}: no arrival times; {told[0]}"
    return f"{text} give --rate R, with --arrivals PROCESS where they are not Poisson"


def _check_rate(rate_per_s: float) -> None:
    if not 0 < rate_per_s < float("inf"):
        raise InputError(
            f"--rate is {rate_per_s:g} requests/s; expected a number more than 0"
        )
