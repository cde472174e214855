"""Errors of a profile as users of a replica, since users buy GPUs and not milliseconds.

TPOT is flat in the batch: an error of 10 % of it may be 40 % of the requests that a
replica serves within a limit.
"""

import numpy as np

from capplan.latency.contract import LatencyTables
from capplan.latency.engine_time import ServedError
from capplan.latency.measured_factor import MeasuredFactor
from capplan.latency.profile import Profile

LEVELS = (1.25, 1.5, 2.0)
"""TPOT limits, as multiples of the TPOT of a request alone."""

CONTEXT = 1536
"""Of each request: a prompt of 1,024 tokens and half of an output of as many."""

_MOST_USERS = 1024
_LOW, _HIGH = 0.1, 0.9


def users(profile: Profile, limit_s: float, quantile: float = 0.5) -> float:
    """Return the requests that decode together within a TPOT limit.

    0 where none does, and at most 1,024; fractions count.
    """
    return _users(profile.tables(_MOST_USERS, 1, quantile=quantile), limit_s)


def _users(tables: LatencyTables, limit_s: float) -> float:
    most = len(tables.decode_s) - 1
    batch = np.arange(1, most + 1)
    tpot_s = tables.decode_s[1:] + tables.decode_context_s[1:] * batch * CONTEXT
    tpot_s = np.maximum.accumulate(tpot_s)
    above = int(np.searchsorted(tpot_s, limit_s, side="right"))
    if above == 0 or above == most:
        return float(above)
    step_s = tpot_s[above] - tpot_s[above - 1]
    return above + float((limit_s - tpot_s[above - 1]) / step_s)


def measured_ratio(
    tables: LatencyTables, factor: MeasuredFactor
) -> tuple[float, float, float]:
    """Return what a replica sustains where its factor is the high, the found, the low.

    ``tables`` are those with the factor found.
    """
    alone_s = float(tables.decode_s[1] + tables.decode_context_s[1] * CONTEXT)
    limit_s = LEVELS[0] * alone_s
    planned = max(_users(tables, limit_s), 1.0)
    low, high = (
        _users(tables, limit_s * factor.value / end) / planned
        for end in (factor.high, factor.low)
    )
    return min(low, 1.0), 1.0, max(high, 1.0)


def alone_s(profile: Profile) -> float:
    """Return the TPOT of a request alone, as half of the engines have it. [s]"""
    tables = profile.tables(1, 1)
    return float(tables.decode_s[1] + tables.decode_context_s[1] * CONTEXT)


def capacity_range(profile: Profile, level: float) -> tuple[float, float]:
    """Return what 80 % of such engines sustain at a TPOT limit, over the median.

    ``level`` is the limit over the TPOT of a request alone. By the profile's own curve
    and the spread of the engines' times.
    """
    limit_s = level * alone_s(profile)
    middle = max(users(profile, limit_s), 1.0)
    low, high = (users(profile, limit_s, quantile) for quantile in (_HIGH, _LOW))
    return low / middle, high / middle


def capacity_ratio(profile: Profile, quantile: float) -> tuple[float, float] | None:
    """Return what 80 % of such engines sustain of a plan made at a quantile of times.

    None where no error is known.
    """
    found = capacity_quantiles(profile, quantile)
    return None if found is None else (found[0], found[2])


def capacity_quantiles(
    profile: Profile, quantile: float, of_layout: ServedError | None = None
) -> tuple[float, float, float] | None:
    """Return what engines sustain of a plan made at a quantile of times: 10, 50, 90 %.

    Counted in sweeps where there are any, those ``of_layout`` before others, else by
    the curve at the lowest level; None where no error is known.
    """
    if profile.backtested is not None:
        tables = profile.tables(_MOST_USERS, 1, quantile=quantile)
        return measured_ratio(tables, profile.backtested)
    time = profile.engine_time
    served = of_layout or (None if time is None else time.served)
    if time is not None and served is not None:
        # The sweeps were held against times as fitted; the plan's are slower or faster.
        fitted = profile.model_copy(
            update={"engine_time": time.model_copy(update={"served": None})}
        )
        limit_s = LEVELS[0] * alone_s(fitted)
        planned = max(users(profile, limit_s, quantile), 1.0)
        share = planned / max(users(fitted, limit_s), 1.0)
        low, middle, high = (sustained / share for sustained in served.capacity)
        return low, middle, high
    if profile.kernels_from is not None or not profile.sigma("decode"):
        return None
    limit_s = LEVELS[0] * alone_s(profile)
    planned = max(users(profile, limit_s, quantile), 1.0)
    low, middle, high = (
        users(profile, limit_s, share) / planned for share in (_HIGH, 0.5, _LOW)
    )
    return low, middle, high
