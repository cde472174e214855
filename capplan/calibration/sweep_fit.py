"""Fit an engine's own time to load tests: factors on its kernels, and times beside.

Load tests give means per number of users or rate. Each is simulated, so what is fitted
is the time that makes the simulated users wait as long as the real ones.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import optimize

from capplan.calibration.load_test import LoadTest, SweepPoint, load_test
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.latency.engine_time import EngineTime

NAMES = (
    "decode_factor",
    "prefill_factor",
    "iteration_s",
    "per_request_s",
    "prefill_iteration_s",
    "request_s",
    "prompt_token_s",
)
_UNITS = np.array([1.0, 1.0, 1e-3, 1e-5, 1e-2, 1e-2, 1e-5])
"""One step of each changes a TPOT or TTFT by percents."""
PRIOR_SPREAD = (0.15, 0.5, 0.5e-3, 3e-5, 1e-2, 1.5e-2, 1e-5)
UNTOLD = ("prefill_iteration_s",)
"""What one sweep does not tell from the factor of prefill."""
_LEAST_FACTOR, _MOST_FACTOR = 0.3, 6.0
_IN_LOOP = 5  # the first values change the simulation, the others its TTFT alone

_TPOT_NOISE = 0.03  # relative error within which two load tests of an engine repeat
_RATE_NOISE = 0.05
_TTFT_NOISE = 0.1
_BURST_TPOT_NOISE = 0.3  # where all ask at once, TPOT is that of the order of prompts
_STEP = 0.03
_TAKEN = 2
_SEARCH = {"xtol": 3e-3, "ftol": 1e-3, "max_nfev": 10}
_SEARCH_AT_A_RATE = {"xtol": 1e-4, "ftol": 1e-4, "max_nfev": 40}
"""When a search ends: near saturation times bend, so that first steps overshoot."""
_SHIFT = 1.0  # steps are relative to the values, and from 0 there would be none


class Served(NamedTuple):
    """A load test, and the engine that it was run on without its own time."""

    point: SweepPoint
    tables: LatencyTables
    engine: EngineSettings

    def simulated(self, time: EngineTime, seed: int = 0) -> LoadTest:
        """Return the test as an engine with this time of its own would serve it."""
        return load_test(time.applied(self.tables), self.engine, self.point, seed)

    def errors(self, loop: LoadTest) -> list[float]:
        """Return log(simulated ÷ measured) of what the test states, over its noise."""
        point = self.point
        tpot_noise = _BURST_TPOT_NOISE if point.is_burst else _TPOT_NOISE
        # What arrives at a rate leaves at that rate, whatever the engine's time.
        per_s = None if point.rate_per_s else point.output_tokens_per_s
        pairs = (
            (loop.tpot_s, point.tpot_s, tpot_noise),
            (loop.ttft_s, point.ttft_s, _TTFT_NOISE),
            (loop.output_tokens_per_s, per_s, _RATE_NOISE),
        )
        return [
            float(np.log(max(simulated, 1e-9) / measured)) / noise
            for simulated, measured, noise in pairs
            if measured is not None
        ]


class SweepFit(NamedTuple):
    """The time that explains load tests, and how well they determine it."""

    time: EngineTime
    standard_errors: np.ndarray  # (7,), in the order of NAMES
    determined: np.ndarray  # (7,) bool: by the points more than by the prior
    ratio: np.ndarray  # (points,): simulated ÷ measured time


class _Slopes:
    """Derivatives by differences; those that take simulations at the first points only.

    They change little along the way, and each takes a simulation of every test for
    every value. A simulated schedule is discrete, so differences are over long steps.
    Those of values in front of the loop take none, and are taken at every point.
    """

    def __init__(
        self, residuals: Callable[[np.ndarray], np.ndarray], in_loop: np.ndarray
    ) -> None:
        self._residuals, self._in_loop = residuals, in_loop
        self._taken = 0
        self._last: np.ndarray = np.zeros((0, 0))

    def at(self, values: np.ndarray) -> np.ndarray:
        """Return the derivatives near values, shape (residuals, values)."""
        here = self._residuals(values)
        anew = self._taken < _TAKEN
        self._taken += 1
        slopes: np.ndarray = np.zeros((len(here), len(values)))
        slopes = slopes if anew else self._last.copy()
        for column in np.flatnonzero(np.ones(len(values)) if anew else ~self._in_loop):
            step = np.zeros(len(values))
            step[column] = _STEP * max(values[column], _SHIFT)
            slopes[:, column] = (self._residuals(values + step) - here) / step[column]
        self._last = slopes
        return slopes


def fit_engine_time(
    served: Sequence[Served],
    prior: EngineTime,
    *,
    fixed: Sequence[str] = UNTOLD,
    spread: Sequence[float] = PRIOR_SPREAD,
    start: EngineTime | None = None,
    weights: Sequence[float] | None = None,
) -> SweepFit:
    """Return the engine's time that explains load tests best.

    Minimises the relative errors of the times and rates that the tests state, with a
    loss in which outliers weigh little.
    ``prior`` holds what the points do not determine: factors are drawn to it as by an
    error of 15 % (decoding) and 50 % (prefill), an iteration's time of 0.5 ms, a
    running request's of 30 µs, a request's of 15 ms and a prompt token's of 10 µs,
    unless ``spread`` says otherwise, in the order of ``NAMES``.
    Names that are ``fixed`` stay. The search begins at ``start``, by default the prior.
    Tests count by their ``weights``, by default alike.
    """
    share = np.sqrt(np.ones(len(served)) if weights is None else weights).tolist()
    drawn_to = np.array([getattr(prior, name) for name in NAMES])
    first = np.array([getattr(start or prior, name) for name in NAMES])
    free = np.array([name not in fixed for name in NAMES])
    spreads = np.array(spread)[free]

    @cache
    def simulated(in_loop: tuple[float, ...]) -> list[LoadTest]:
        others = dict.fromkeys(NAMES[_IN_LOOP:], 0.0)
        values = dict(zip(NAMES, in_loop, strict=False))
        time = prior.model_copy(update=others | values)
        return [test.simulated(time) for test in served]

    def loops(time: EngineTime) -> list[LoadTest]:
        """Return what the users of each test see."""
        found = []
        in_loop = tuple(getattr(time, name) for name in NAMES[:_IN_LOOP])
        for test, loop in zip(served, simulated(in_loop), strict=True):
            in_front_s = time.request_s + time.prompt_token_s * test.point.mean_isl
            found.append(loop._replace(ttft_s=loop.ttft_s + in_front_s))
        return found

    def time_of(values: np.ndarray) -> EngineTime:
        whole = drawn_to.copy()
        whole[free] = (values - _SHIFT) * _UNITS[free]
        return prior.model_copy(update=dict(zip(NAMES, whole.tolist(), strict=True)))

    def residuals(values: np.ndarray) -> np.ndarray:
        drawn = (values - _SHIFT) * _UNITS[free] - drawn_to[free]
        drawn /= spreads
        tests = zip(served, loops(time_of(values)), share, strict=True)
        errors = [w * error for test, loop, w in tests for error in test.errors(loop)]
        return np.concatenate([errors, drawn])

    low = np.array([_LEAST_FACTOR, _LEAST_FACTOR, *[0.0] * 5]) / _UNITS
    high = np.array([_MOST_FACTOR, _MOST_FACTOR, *[np.inf] * 5]) / _UNITS
    at_a_rate = any(test.point.rate_per_s is not None for test in served)
    slopes = _Slopes(residuals, (np.arange(len(NAMES)) < _IN_LOOP)[free])
    solution = optimize.least_squares(
        residuals,
        (np.clip(first / _UNITS, low + 1e-3, high) + _SHIFT)[free],
        bounds=((low + _SHIFT)[free], (high + _SHIFT)[free]),
        loss="soft_l1",
        f_scale=2.0,
        jac=slopes.at,
        x_scale=1.0,
        **(_SEARCH_AT_A_RATE if at_a_rate else _SEARCH),
    )
    errors, determined = _certainty(np.asarray(solution.jac), free, spreads)
    time = time_of(np.asarray(solution.x))
    pairs = zip(loops(time), served, strict=True)
    ratio = np.array([loop.slower(test.point) for loop, test in pairs])
    return SweepFit(time, errors, determined, ratio)


def _certainty(
    jacobian: np.ndarray, free: np.ndarray, spreads: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard errors, and which values the points alone determine."""
    count = int(free.sum())
    from_points = jacobian[:-count].T @ jacobian[:-count]
    together = from_points + jacobian[-count:].T @ jacobian[-count:]
    errors, determined = np.zeros(len(NAMES)), np.zeros(len(NAMES), bool)
    inverse = np.linalg.inv(together)
    errors[free] = np.sqrt(np.diag(inverse)) * _UNITS[free]
    # A value that its prior would hold as well without any point is not determined.
    determined[free] = errors[free] < 0.5 * spreads
    return errors, determined
