"""Settings that autoscalers share, and what is refused of them."""

import math
from collections.abc import Callable, Mapping

from capplan.deployment.policy import Knob
from capplan.errors import InputError
from capplan.simulator.autoscalers.view import Decide, Known, View

MOST_REPLICAS = 65_536
MOST_S = 7 * 86_400.0
"""Longest period or window: a week. [s]"""
TINY = 1e-9
"""What a count may be above a whole number by rounding alone."""


def common(period_s: float, most: int = 100, fewest: int = 1) -> dict[str, Knob]:
    """Return the fewest and the most replicas, and the time between two ticks."""
    return {
        "min": Knob(fewest, fewest, MOST_REPLICAS),
        "max": Knob(most, 1, MOST_REPLICAS),
        "period": time(period_s, 0.1),
    }


def time(default_s: float, least_s: float = 0.0) -> Knob:
    """Return a setting that is a time."""
    return Knob(default_s, least_s, MOST_S, is_duration=True)


def rate() -> dict[str, Knob]:
    """Return the setting of the rate that a replica serves within its SLO."""
    return {"rate": Knob(0.0, 1e-6, 1e9, optional=True)}


def rate_per_replica_per_s(
    name: str, settings: Mapping[str, float], known: Known, otherwise: str = ""
) -> float:
    """Return the largest rate that a replica serves within its SLO. [requests/s]"""
    rate_per_s = settings["rate"] or known.rate_per_replica_per_s
    if not rate_per_s > 0:
        raise InputError(
            f"autoscaler {name}: the rate that a replica serves within its SLO is not "
            f"known; give it in requests/s, as in {name}:rate=4.2{otherwise}"
        )
    return rate_per_s


def keeping(
    settings: Mapping[str, float],
) -> Callable[[Callable[[View, int], int]], Decide]:
    """Return what tells a decider the count that it asked for last, and bounds it.

    At first that is the count of those ready and starting.
    """

    def of(decided: Callable[[View, int], int]) -> Decide:
        current = -1

        def decide(view: View) -> int:
            nonlocal current
            if current < 0:
                current = view.ready + view.starting
            current = within(decided(view, current), settings)
            return current

        return decide

    return of


def within(count: int, settings: Mapping[str, float]) -> int:
    """Return a count of replicas within ``min`` and ``max``."""
    return min(max(count, int(settings["min"])), int(settings["max"]))


def whole(count: float) -> int:
    """Return a count rounded up, but not for what rounding added."""
    return math.ceil(count - TINY)
