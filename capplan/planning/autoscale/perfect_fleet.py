"""The cheapest fleet that knows the arrivals to come and attains the target."""

from collections.abc import Callable

from capplan.planning.autoscale.cases import Outcome
from capplan.planning.autoscale.known_to_policies import given_to, with_settings

PERIODS_S = (60.0, 300.0, 900.0, 3600.0)
"""Periods that are tried: short ones follow single requests, long ones the day. [s]"""
STEP = 1.06
"""Ratio of neighbouring rates of a replica that are tried."""
_MOST_STEPS = 24
TUNED = ("period", "rate")
"""Settings that are chosen where the user gave neither."""


def cheapest(
    run_with: Callable[[str], Outcome], policy: str, rate_per_s: float, lasts_s: float
) -> tuple[str, Outcome]:
    """Return a policy that knows the arrivals, with the best period and rate.

    Of each period the highest rate of a replica that attains the target, to 6 % and
    within four times ``rate_per_s`` and a quarter of it; of these that with the fewest
    replica-hours. Where none attains it, that with ``rate_per_s``.
    """
    found = []
    for period_s in (each for each in PERIODS_S if each < lasts_s):

        def at(step: int, period_s: float = period_s) -> tuple[str, Outcome]:
            rate = float(f"{rate_per_s * STEP**step:.6g}")
            text = with_settings(policy, {"period": f"{period_s:g}s", "rate": rate})
            return text, run_with(text)

        low, high, best = -_MOST_STEPS - 1, _MOST_STEPS + 1, None
        while high - low > 1:
            middle = (low + high) // 2
            tried = at(middle)
            if tried[1].meets:
                low, best = middle, tried
            else:
                high = middle
        if best is not None:
            found.append(best)
    if found:
        return min(found, key=lambda each: each[1].hours.paid_h)
    text = with_settings(policy, {"rate": rate_per_s})
    return text, run_with(text)


def is_tuned(policy: str) -> bool:
    """Return whether period and rate are to be chosen."""
    return not given_to(policy) & set(TUNED)
