"""Fit an engine's own time to load tests: a factor, an iteration's and a request's.

Load tests give means per concurrency. Each is simulated as a closed loop, so what is
fitted is the time that makes the simulated users wait as long as the real ones.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize

from capplan.calibration.closed_loop import ClosedLoop, SweepPoint, closed_loop
from capplan.deployment import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.latency.engine_time import EngineTime

NAMES = ("factor", "iteration_s", "per_request_s")
_UNITS = np.array([1.0, 1e-3, 1e-5])  # one step of each changes a TPOT by percents
_NOISE = 0.03  # relative error within which two load tests of an engine repeat
_PRIOR_SPREAD = np.array([0.15, 0.5e-3, 3e-5])
_LEAST_FACTOR, _MOST_FACTOR = 0.3, 4.0
_STEP = 0.03


class Served(NamedTuple):
    """A load test, and the engine that it was run on without its own time."""

    point: SweepPoint
    tables: LatencyTables
    engine: EngineSettings

    def simulated(self, time: EngineTime, seed: int = 0) -> ClosedLoop:
        """Return the test as an engine with this time of its own would serve it."""
        return closed_loop(time.applied(self.tables), self.engine, self.point, seed)


class SweepFit(NamedTuple):
    """The time that explains load tests, and how well they determine it."""

    time: EngineTime
    standard_errors: np.ndarray  # (3,), in the order of NAMES
    determined: np.ndarray  # (3,) bool: by the points more than by the prior
    ratio: np.ndarray  # (points,): simulated ÷ measured time


def fit_engine_time(
    served: Sequence[Served], prior: EngineTime, *, fixed_factor: bool = False
) -> SweepFit:
    """Return the engine's time that explains load tests best.

    Minimises the relative errors of the times that the tests state, with a loss in
    which outliers weigh little.
    ``prior`` holds what the points do not determine: a factor is drawn to it as by an
    error of 15 %, an iteration's time of 0.5 ms and a request's of 30 µs.
    """
    start = np.array([prior.factor, prior.iteration_s, prior.per_request_s])
    free = np.array([not fixed_factor, True, True])

    def time_of(values: np.ndarray) -> EngineTime:
        whole = start.copy()
        whole[free] = values * _UNITS[free]
        names = dict(zip(NAMES, whole.tolist(), strict=True))
        return prior.model_copy(update=names)

    def ratios(values: np.ndarray) -> np.ndarray:
        time = time_of(values)
        return np.array([test.simulated(time).slower(test.point) for test in served])

    def residuals(values: np.ndarray) -> np.ndarray:
        drawn = (values * _UNITS[free] - start[free]) / _PRIOR_SPREAD[free]
        return np.concatenate([(ratios(values) - 1) / _NOISE, drawn])

    low = np.array([_LEAST_FACTOR, 0.0, 0.0]) / _UNITS
    high = np.array([_MOST_FACTOR, np.inf, np.inf]) / _UNITS
    solution = optimize.least_squares(
        residuals,
        np.maximum(start / _UNITS, low + 1e-3)[free],
        bounds=(low[free], high[free]),
        loss="soft_l1",
        f_scale=2.0,
        diff_step=_STEP,
        x_scale=1.0,
        xtol=1e-3,
        ftol=1e-4,
        max_nfev=12,
    )
    errors, determined = _certainty(np.asarray(solution.jac), free)
    return SweepFit(
        time_of(solution.x), errors, determined, ratios(np.asarray(solution.x))
    )


def _certainty(jacobian: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard errors, and which values the points alone determine."""
    count = int(free.sum())
    from_points = jacobian[:-count].T @ jacobian[:-count]
    together = from_points + jacobian[-count:].T @ jacobian[-count:]
    errors, determined = np.zeros(3), np.zeros(3, bool)
    inverse = np.linalg.inv(together)
    errors[free] = np.sqrt(np.diag(inverse)) * _UNITS[free]
    # A value that its prior would hold as well without any point is not determined.
    determined[free] = errors[free] < 0.5 * _PRIOR_SPREAD[free]
    return errors, determined
