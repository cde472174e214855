"""Times of an engine that explain the windows of a fleet: a profile of its own."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from capplan.errors import InputError
from capplan.latency.measured_factor import MeasuredFactor
from capplan.latency.profile import BACKTEST, Profile
from capplan.latency.with_engine import calibrated
from capplan.planning.backtest.phi import CONFIDENCE, pooled, widened
from capplan.planning.backtest.result import Backtest
from capplan.workload.readers.columns import EPOCH_S

_FEWEST = 3
_SPREAD = 2.0
"""Windows, and their most over least running requests, that tell two numbers apart."""


class FittedTimes(NamedTuple):
    """A factor on the time of every iteration, and a time beside it."""

    factor: float
    iteration_s: float = 0.0

    def slower(self, assumed_s: np.ndarray) -> np.ndarray:
        """Return by which factor iterations take longer than assumed."""
        beside = self.iteration_s / assumed_s if self.iteration_s else 0.0
        return np.full(len(assumed_s), self.factor) + beside


class FleetFit(NamedTuple):
    """The profile that explains a fleet's windows, and how well."""

    backtest: Backtest
    times: FittedTimes
    held_out: np.ndarray  # predicted ÷ measured iterations of windows left out
    profile: Profile

    def __str__(self) -> str:
        """Return what was fitted, to which windows, and the error on those left out."""
        phi, beside = self.backtest.phi, self.times.iteration_s
        assert phi is not None
        text = f"{self.times.factor:.3f} × what was assumed"
        if beside:
            text += f" and {1e3 * beside:+.2f} ms each, which loads tell apart"
        else:
            text += f" [{phi.low:.3f}, {phi.high:.3f}], one factor"
        off = np.abs(self.held_out - 1)
        error = "of one window, so no error on others is known"
        if len(off):
            error = (
                f"windows left out are predicted within {100 * np.median(off):.1f} % "
                f"in the median and {100 * off.max():.1f} % at worst"
            )
        return f"Iterations take {text} ({phi.windows} windows); {error}."


def fitted(found: Backtest, source: str, date: str = "") -> FleetFit:
    """Return the profile of a backtest's configuration that explains its windows.

    ``source`` is what was read; ``date`` is by default the day of the last window.
    """
    windows, phi = [each for each in found.windows if each.phi is not None], found.phi
    replica = found.configuration
    if phi is None:
        raise InputError(
            f"{source}: requests wait in every window, which tells the throughput and "
            "no iteration times; expected hours with less load"
        )
    factors = np.array([each.phi for each in windows], np.float64)
    measured = [each.measured.get("itl_s_mean", np.nan) for each in windows]
    running = np.array([each.measured.get("running", np.nan) for each in windows])
    assumed_s = np.array(measured) / factors
    apart = len(windows) >= _FEWEST and running.max() >= _SPREAD * running.min()
    times, held_out = fitted_times(factors, assumed_s, are_apart=bool(apart))
    time = replica.own_time(times.factor, source)
    iteration_s = time.iteration_s + times.iteration_s
    if iteration_s < 0:  # less than the kernels, which no engine takes
        times, held_out = fitted_times(factors, assumed_s, are_apart=False)
        time, iteration_s = replica.own_time(times.factor, source), time.iteration_s
    if times.iteration_s:
        phi = widened(pooled(factors / times.slower(assumed_s)))
    days = [_day(x) for x in (found.windows[0].first_s, found.windows[-1].last_s)]
    when = " to ".join(dict.fromkeys(filter(None, days)))
    said = f"{source} ({', '.join(filter(None, (f'{phi.windows} windows', when)))})"
    of = f"{found.llm}/{replica.gpu}/{replica.layout}"
    update = {"iteration_s": iteration_s, "source": said}
    assert isinstance(replica.profile, Profile)
    profile = calibrated(
        replica.profile,
        time.model_copy(update=update),
        **{BACKTEST: str(MeasuredFactor(*phi[:3], of))},
    )
    profile = profile.model_copy(update={"llm": found.llm, "date": date or days[1]})
    return FleetFit(found, times, held_out, profile)


def _day(moment_s: float) -> str:
    """Return the day of a clock in UTC; empty of times without one."""
    if moment_s < EPOCH_S:
        return ""
    return datetime.fromtimestamp(moment_s, UTC).date().isoformat()


def fitted_times(
    phi: np.ndarray, assumed_s: np.ndarray, *, are_apart: bool
) -> tuple[FittedTimes, np.ndarray]:
    """Return the times that explain factors of windows, and what they predict.

    That is iteration times of each window over those measured, by a fit to the others;
    none of one window. Two numbers where windows ``are_apart`` in load, 0 is not within
    Student's interval of the time beside, and they predict better than one factor.
    """
    one = _one(phi, assumed_s), _left_out(_one, phi, assumed_s)
    if not (are_apart and np.isfinite(assumed_s).all()):
        return one
    two = _two(phi, assumed_s), _left_out(_two, phi, assumed_s)
    is_better = np.square(two[1] - 1).sum() < np.square(one[1] - 1).sum()
    return two if is_better and _is_told(two[0], phi, assumed_s) else one


def _one(phi: np.ndarray, assumed_s: np.ndarray) -> FittedTimes:
    return FittedTimes(float(np.exp(np.log(phi).mean())))


def _two(phi: np.ndarray, assumed_s: np.ndarray) -> FittedTimes:
    return FittedTimes(*np.linalg.lstsq(_design(assumed_s), phi)[0].tolist())


def _design(assumed_s: np.ndarray) -> np.ndarray:
    return np.stack([np.ones(len(assumed_s)), 1 / assumed_s], axis=1)


def _left_out(
    fit: Callable[[np.ndarray, np.ndarray], FittedTimes],
    phi: np.ndarray,
    assumed_s: np.ndarray,
) -> np.ndarray:
    """Return what a fit to the other windows predicts of each, over its factor."""
    if len(phi) < 2:
        return np.zeros(0)
    others = [np.arange(len(phi)) != k for k in range(len(phi))]
    found = [fit(phi[rows], assumed_s[rows]).slower(assumed_s) for rows in others]
    return np.diagonal(found) / phi


def _is_told(times: FittedTimes, phi: np.ndarray, assumed_s: np.ndarray) -> bool:
    """Return whether the time beside is not 0 by chance, and the factor not below."""
    design, free = _design(assumed_s), len(phi) - 2
    spread = float(np.square(phi - times.slower(assumed_s)).sum()) / free
    error_s = np.sqrt(spread * np.linalg.inv(design.T @ design)[1, 1])
    reach_s = float(stdtrit(free, 0.5 + CONFIDENCE / 2)) * error_s
    return times.factor > 0 and abs(times.iteration_s) > reach_s
