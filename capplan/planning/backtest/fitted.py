"""Times of an engine that explain the windows of a fleet: a profile of its own."""

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
_OWN_ERROR = 0.02
"""Error of a factor where nothing but chance differs: what one explains as well."""


class FleetFit(NamedTuple):
    """The profile that explains a fleet's windows, and how well."""

    backtest: Backtest
    factor: float  # on the time of every iteration
    beside_s: float  # of each iteration; 0: one factor explains the windows as well
    held_out: np.ndarray  # predicted ÷ measured iterations of windows left out
    profile: Profile

    def __str__(self) -> str:
        """Return what was fitted, to which windows, and the error on those left out."""
        phi = self.backtest.phi
        assert phi is not None
        how = f"[{phi.low:.3f}, {phi.high:.3f}], one factor"
        if self.beside_s:
            how = f"and {1e3 * self.beside_s:+.2f} ms each, which loads tell apart"
        off = np.abs(self.held_out - 1)
        error = "one window, so no error on others is known"
        if len(off):
            middle, worst = 100 * np.median(off), 100 * off.max()
            error = (
                f"{phi.windows} windows; those left out are predicted within "
                f"{middle:.1f} % in the median and {worst:.1f} % at worst"
            )
        return f"Iterations take {self.factor:.3f} × what was assumed {how}; {error}."


def fitted(found: Backtest, source: str, date: str = "") -> FleetFit:
    """Return the profile of a backtest's configuration that explains its windows.

    ``source`` is what was read; ``date`` is by default the day of the last window.
    """
    windows, phi = [each for each in found.windows if each.phi is not None], found.phi
    replica = found.configuration
    if phi is None:
        raise InputError(
            f"{source}: every window is saturated, which tells the throughput and no "
            "iteration times; expected hours with less load"
        )
    factors = np.array([each.phi for each in windows], np.float64)
    running, measured_s = (
        np.array([each.measured.get(name, np.nan) for each in windows])
        for name in ("running", "itl_s_mean")
    )
    own_s, beside_s = replica.own_time(1.0, source).iteration_s, 0.0
    factor, held_out = phi.value, left_out(np.ones((len(windows), 1)), factors)
    if len(windows) >= _FEWEST and running.max() >= _SPREAD * running.min():
        design = np.stack([np.ones(len(windows)), factors / measured_s], axis=1)
        two = two_numbers(design, factors, -own_s)
        if two is not None:
            factor, beside_s = two
            held_out = left_out(design, factors)
            phi = widened(pooled(factors / (design @ two)))
    time = replica.own_time(factor, source)
    days = [_day(x) for x in (found.windows[0].first_s, found.windows[-1].last_s)]
    when = " to ".join(dict.fromkeys(filter(None, days)))
    count = "one window" if phi.windows == 1 else f"{phi.windows} windows"
    said = f"{source} ({', '.join(filter(None, (count, when)))})"
    update = {"iteration_s": time.iteration_s + beside_s, "source": said}
    of = MeasuredFactor(*phi[:3], f"{found.llm}/{replica.gpu}/{replica.layout}")
    assert isinstance(replica.profile, Profile)
    profile = calibrated(
        replica.profile, time.model_copy(update=update), **{BACKTEST: str(of)}
    ).model_copy(update={"llm": found.llm, "date": date or days[1]})
    return FleetFit(found, factor, beside_s, held_out, profile)


def _day(moment_s: float) -> str:
    """Return the day of a clock in UTC; empty of times without one."""
    is_clock = moment_s > EPOCH_S
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d}" if is_clock else ""


def two_numbers(
    design: np.ndarray, factors: np.ndarray, least_s: float
) -> np.ndarray | None:
    """Return a factor and a time beside that explain factors of windows.

    ``design`` has 1 and one over the assumed iteration time of each. None where 0 is
    within Student's interval of the time, one factor predicts windows left out better
    or within 2 %, or an iteration would take less than its kernels, by more than
    ``least_s`` times the factor.
    """
    if not np.isfinite(design).all():
        return None
    two, free = np.linalg.lstsq(design, factors)[0], len(factors) - 2
    one, both = (left_out(design[:, :k], factors) for k in (1, 2))
    spread = float(np.square(factors - design @ two).sum()) / free
    error_s = np.sqrt(spread * np.linalg.inv(design.T @ design)[1, 1])
    reach_s = float(stdtrit(free, 0.5 + CONFIDENCE / 2)) * error_s
    is_better = np.square(both - 1).sum() < np.square(one - 1).sum()
    is_better &= bool(np.abs(one - 1).max() > _OWN_ERROR)
    is_told = abs(two[1]) > reach_s and two[0] > 0 and two[1] >= least_s * two[0]
    return two if is_better and is_told else None


def left_out(design: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return what a fit to the other windows predicts of each, over its factor."""
    if len(factors) == 1:
        return np.array([])
    # The residual over one less the leverage: the others need not be fitted again.
    leverage = np.einsum("ij,ji->i", design, np.linalg.pinv(design))
    off = (factors - design @ np.linalg.lstsq(design, factors)[0]) / (1 - leverage)
    return 1 - off / factors
