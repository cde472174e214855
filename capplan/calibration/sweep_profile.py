"""Calibrate a profile with load tests that state means per number of users or rate."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from capplan.calibration.load_test import SweepPoint
from capplan.calibration.sweep_fit import Served, SweepFit, fit_engine_time
from capplan.calibration.sweep_score import score, served_error
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError, warn
from capplan.latency.engine_time import EngineTime, ServedError
from capplan.latency.profile import LOAD_TESTS, Profile
from capplan.latency.terms import tables
from capplan.latency.with_engine import calibrated, with_engine_time

_FEWEST_SHAPES = 3
"""Pairs of lengths from which a spread is taken; below it the kind's is nearer."""

_FARTHEST = 8.0
"""Measured over predicted TPOT beyond which the unit must be wrong."""

_NEAR = 0.5
"""Median relative error of the fitted times above which nothing was fitted."""

_MISFIT = 0.3
"""Median relative error of the fitted times of a pair of lengths to warn of."""


class SweepProfile(NamedTuple):
    """The calibrated profile of a sweep, and the fit it is made of."""

    profile: Profile
    points: list[SweepPoint]
    fit: SweepFit
    held_out: np.ndarray  # (points,): simulated ÷ measured, its load left out
    notes: tuple[str, ...] = ()  # what the files state, and what was left out


def fit_sweep(
    points: list[SweepPoint],
    base: Profile,
    engine: EngineSettings,
    experts: bool,
    *,
    source: str,
    kv_times: float = 1.0,
) -> SweepProfile:
    """Return the profile on which the simulated users wait as long as the real ones.

    A factor on the base's kernels, the time of an iteration and that of a running
    request are fitted; each load is also predicted from the others. ``kv_times``
    is the KV that attention reads over the base's. [bytes/byte]
    """
    most = max(point.concurrency or engine.max_num_seqs for point in points)
    tokens, front_s = engine.max_num_batched_tokens, base.request_s
    kernels = tables(base.decode, base.fused, most, tokens, request_s=front_s)
    kernels = kernels.reading(kv_times)
    engine = replace(engine, prefix_caching=False)
    served = [Served(point, kernels, engine) for point in points]
    prior = with_engine_time(base, experts).engine_time or EngineTime(source="none")
    _check_units(served, prior, base, source)
    try:
        fit = fit_engine_time(served, prior)
        held_out = _left_out(served, prior, fit.time)
        off = float(np.median(np.abs(fit.ratio - 1)))
    except np.linalg.LinAlgError:
        off = np.inf
    if off > _NEAR:
        raise InputError(
            f"{source}: no time of an engine comes near these load tests, which do "
            "not change with their load as a batch does; expected means per number "
            "of users or rate, up to a full batch"
        )
    _warn_of_misfit(points, fit.ratio, source)
    time = fit.time.model_copy(
        update={"source": source, "served": _error(points, held_out)}
    )
    fit = fit._replace(time=time)
    found = calibrated(base, time, **{LOAD_TESTS: len(points)})
    return SweepProfile(found, points, fit, held_out)


def _warn_of_misfit(
    points: Sequence[SweepPoint], ratio: np.ndarray, source: str
) -> None:
    """Warn of lengths whose times the fitted engine does not have."""
    for shape in dict.fromkeys(point.curve for point in points):
        rows = [at for at, point in enumerate(points) if point.curve == shape]
        off = float(np.median(np.abs(ratio[rows] - 1)))
        if off > _MISFIT:
            isl, osl, *_ = shape
            warn(
                f"{source}: with {isl:,} + {osl:,} tokens the fitted times are off by "
                f"{100 * off:.0f} % in the median; are the lengths, users and times "
                "those of one engine?"
            )


def _check_units(
    served: Sequence[Served], prior: EngineTime, base: Profile, source: str
) -> None:
    """Refuse times that no engine can have with this profile."""
    ratios = [test.simulated(prior).slower(test.point) for test in served]
    slower = float(np.median(ratios))
    if 1 / _FARTHEST <= slower <= _FARTHEST:
        return
    hint = "is this another LLM, GPU or TP degree?"
    if 1 / _FARTHEST <= slower / 1e3 <= _FARTHEST:
        hint = "are these seconds? expected milliseconds"
    elif 1 / _FARTHEST <= slower * 1e3 <= _FARTHEST:
        hint = "are these microseconds? expected milliseconds"
    raise InputError(
        f"{source}: times are {1 / slower:.3g} times what {base.name} predicts; {hint}"
    )


def _left_out(
    served: Sequence[Served], prior: EngineTime, near: EngineTime
) -> np.ndarray:
    """Return simulated ÷ measured of each test by the fit to other loads.

    At a rate a search from the prior is long: it begins near the fit to all tests.
    """
    at_a_rate = any(test.point.rate_per_s is not None for test in served)
    ratio = np.full(len(served), np.nan)
    for load in {test.point.load for test in served}:
        others = [test for test in served if test.point.load != load]
        start = near if at_a_rate else prior
        time = fit_engine_time(others, prior, start=start).time
        for row, test in enumerate(served):
            if test.point.load == load:
                ratio[row] = test.simulated(time).slower(test.point)
    return ratio


def _error(points: list[SweepPoint], held_out: np.ndarray) -> ServedError | None:
    """Return the error on loads left out; None of fewer than three shapes."""
    scores = []
    for shape in sorted({point.curve for point in points}):
        rows = [at for at, p in enumerate(points) if p.curve == shape]
        seen_s = [points[at].tpot_s for at in rows]
        if len(rows) < 3 or any(value is None for value in seen_s):
            continue
        measured_s = np.array(seen_s, np.float64)
        loads = [points[at].rate_per_s or points[at].concurrency or 0 for at in rows]
        scores.append(score(loads, measured_s, measured_s * held_out[rows]))
    return served_error(scores) if len(scores) >= _FEWEST_SHAPES else None
