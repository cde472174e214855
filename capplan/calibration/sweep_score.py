"""How well a prediction meets a sweep: in TPOT, and in users of a replica."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from capplan.latency.capacity import LEVELS
from capplan.latency.engine_time import ServedError


class SweepScore(NamedTuple):
    """One sweep against its prediction; ratios are predicted ÷ measured."""

    tpot: float  # median over the concurrencies
    tpot_error: float  # median of the absolute relative error
    capacity: tuple[float, ...]  # at each of LEVELS times the lowest measured TPOT
    ratios: tuple[float, ...]  # of each point, by users


def score(
    users: ArrayLike, measured_s: ArrayLike, predicted_s: ArrayLike
) -> SweepScore:
    """Return the score of a sweep, all of shape (points,)."""
    order = np.argsort(users, kind="stable")
    at = np.asarray(users, np.float64)[order]
    measured, predicted = (np.asarray(x)[order] for x in (measured_s, predicted_s))
    lowest_s = float(measured.min())
    ratio = predicted / measured
    return SweepScore(
        tpot=float(np.median(ratio)),
        tpot_error=float(np.median(np.abs(ratio - 1))),
        capacity=tuple(
            users_within(at, predicted, level * lowest_s)
            / users_within(at, measured, level * lowest_s)
            for level in LEVELS
        ),
        ratios=tuple(ratio.tolist()),
    )


def users_within(users: np.ndarray, tpot_s: np.ndarray, limit_s: float) -> float:
    """Return the users at which a rising TPOT passes a limit, between the points.

    Below the fewest users in proportion to the TPOT, past the most on the last line.

    Examples
    --------
    >>> users_within(np.array([4.0, 8.0]), np.array([0.01, 0.02]), 0.015)
    6.0
    """
    above = np.flatnonzero(tpot_s > limit_s)
    if not len(above):
        slope = (tpot_s[-1] - tpot_s[-2]) / (users[-1] - users[-2])
        # A TPOT that does not rise says nothing of where it would.
        slope = max(slope, 0.1 * tpot_s[-1] / users[-1])
        return float(users[-1] + (limit_s - tpot_s[-1]) / slope)
    first = int(above[0])
    if first == 0:
        return float(users[0] * limit_s / tpot_s[0])
    share = (limit_s - tpot_s[first - 1]) / (tpot_s[first] - tpot_s[first - 1])
    return float(users[first - 1] + share * (users[first] - users[first - 1]))


def served_error(
    scores: Sequence[SweepScore], groups: Sequence[object] | None = None
) -> ServedError:
    """Return the spread of measured ÷ predicted over sweeps.

    Each of the ``groups`` that the sweeps belong to counts alike. Few groups say little
    of the next: the spread of two around their median is taken half as wide again, that
    of three a quarter.
    """
    names: list[object] = list(range(len(scores)) if groups is None else groups)
    weights = np.array([1 / names.count(name) for name in names])

    def quantiles(ratios: Sequence[float]) -> list[float]:
        measured = 1 / np.asarray(ratios)
        order = np.argsort(measured)
        # Each ratio stands in the middle of its share of the weight.
        at = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
        low, middle, high = np.log(np.interp([0.1, 0.5, 0.9], at, measured[order]))
        wider = 1 + max(0, 4 - len(set(names))) / 4
        spread = middle + wider * np.array([low - middle, 0.0, high - middle])
        return [round(float(value), 3) for value in np.exp(spread)]

    return ServedError(
        sweeps=len(scores),
        tpot=quantiles([one.tpot for one in scores]),
        capacity=quantiles([one.capacity[0] for one in scores]),
    )
