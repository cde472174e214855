"""Aladdin: workers by Eq. 7 where the arrival rate changes.

Aladdin, section 5.2, Eq. 7: N = ⌈k5·r + c5⌉ workers for the rate r, found anew where
the rate changes. By default k5 = 1/(rate that a replica serves within its SLO) and
c5 = 0; ``capplan demand`` fits both. ``least_rate`` is R: a lower rate counts as R.

The paper names no test and no heartbeat. Here a rate has changed where the arrivals of
the last ``window`` (30 s) are ``z`` (4) standard deviations of a Poisson count away
from what the mean rate since the last change gives; r is then that window's rate. Where
fewer than z² arrivals are expected no fall can be told so: a second window is long
enough for (2z)² of them, at most an hour, and a rate that halved is z off there. The
paper scales without a cold start.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers.settings import (
    common,
    keeping,
    rate,
    rate_per_replica_per_s,
    time,
    whole,
)
from capplan.simulator.autoscalers.view import Decide, Known, View

RULES = Rules(
    {
        **common(10.0),
        **rate(),
        "k5": Knob(0.0, 1e-9, 1e9, optional=True),
        "c5": Knob(0.0, -1e6, 1e6),
        "least_rate": Knob(0.0, 0.0, 1e9),
        "window": time(30.0, 0.1),
        "z": Knob(4.0, 0.1, 100.0),
    }
)
_LONGEST_S = 3600.0


class Arrivals:
    """How many requests came since any tick of the last hour."""

    def __init__(self) -> None:
        self._at_s = [-math.inf]
        self._counts = [0]  # of all until then

    def add(self, now_s: float, since_s: float, arrived: int) -> None:
        """Take in the arrivals of a tick."""
        if len(self._at_s) == 1:
            self._at_s[0] = now_s - since_s
        self._at_s.append(now_s)
        self._counts.append(self._counts[-1] + arrived)
        # Half a list at a time, so that a tick costs the same on average.
        if self._at_s[len(self._at_s) // 2] < now_s - 2 * _LONGEST_S:
            del self._at_s[: len(self._at_s) // 2]
            del self._counts[: len(self._counts) // 2]

    def since(self, time_s: float) -> tuple[int, float]:
        """Return the arrivals since the last tick until a time, and how long ago."""
        i = max(bisect_right(self._at_s, time_s + 1e-9) - 1, 0)
        return self._counts[-1] - self._counts[i], self._at_s[-1] - self._at_s[i]


def has_changed(count: int, expected: float, z: float) -> bool:
    """Return whether a Poisson count is z standard deviations from the expected."""
    return abs(count - expected) > z * math.sqrt(expected)


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider that acts at change points."""
    k5 = settings["k5"]
    if k5 == 0:
        hint = ", or k5 of Eq. 7, as in aladdin:k5=0.25"
        k5 = 1 / rate_per_replica_per_s("aladdin", settings, known, hint)
    c5, least_rate = settings["c5"], settings["least_rate"]
    short_s, z = settings["window"], settings["z"]
    arrivals = Arrivals()
    reference_s = math.nan  # the last change
    before: tuple[int, float] = (0, 0.0)  # arrivals and time since it, until a tick

    def workers(rate_per_s: float) -> int:
        return whole(k5 * max(rate_per_s, least_rate) + c5)

    @keeping(settings)
    def decide(view: View, current: int) -> int:
        nonlocal reference_s, before
        arrivals.add(view.now_s, view.since_s, view.arrived)
        count, span_s = arrivals.since(view.now_s - short_s)
        if math.isnan(reference_s):
            if span_s + 1e-9 >= short_s:
                reference_s, before = view.now_s - span_s, (count, span_s)
                return workers(count / span_s)
            return current
        before = (before[0] + view.arrived, before[1] + view.since_s)
        mean_per_s = before[0] / before[1]
        long_s = _LONGEST_S
        if mean_per_s > 0:
            long_s = min(max((2 * z) ** 2 / mean_per_s, short_s), _LONGEST_S)
        for window_s in (short_s, long_s):
            count, span_s = arrivals.since(view.now_s - window_s)
            span_s_known = min(span_s, view.now_s - reference_s)
            if span_s_known < span_s:
                continue  # it reaches beyond the last change
            if has_changed(count, mean_per_s * span_s, z):
                reference_s, before = view.now_s - span_s, (count, span_s)
                return workers(count / span_s)
        return current

    return decide
