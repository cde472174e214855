"""Replicas by the hour, as given or as a planner would propose from the trace.

``schedule:0=3,8=10,20=4`` has 3 replicas from hour 0, 10 from hour 8 and 4 from hour 20
on, every day; with an hour from 24 to 167 among them, every week. Hours count from the
start of the trace. With none given, each hour of the week has what its busiest quarter
of an hour needs, over all weeks of the trace: ⌈rate / rate that a replica serves within
its SLO⌉. It has then seen what it is judged by; a real planner has last week's trace.
Replicas are ordered ``ahead`` of their hour, by default a cold start, so that they take
requests when it comes.
"""

import math
from collections.abc import Mapping

import numpy as np

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers.settings import (
    MOST_REPLICAS,
    MOST_S,
    common,
    rate,
    rate_per_replica_per_s,
    whole,
    within,
)
from capplan.simulator.autoscalers.view import Decide, Known, View

_HOUR_S = 3600.0
_QUARTER_S = 900.0
_DAY, _WEEK = 24, 168
_HOURS = {str(hour): Knob(0, 1, MOST_REPLICAS, optional=True) for hour in range(_WEEK)}

RULES = Rules(
    {
        **common(60.0),
        **rate(),
        "ahead": Knob(-1.0, 0.0, MOST_S, is_duration=True, optional=True),
        **_HOURS,
    }
)


def given_hours(settings: Mapping[str, float]) -> list[int]:
    """Return the replicas of each hour of a day or week; empty where none is given."""
    given = {int(key): int(settings[key]) for key in _HOURS if settings[key] > 0}
    if not given:
        return []
    hours = _DAY if max(given) < _DAY else _WEEK
    count = given[max(given)]  # the last one goes on until the first comes again
    return [count := given.get(hour, count) for hour in range(hours)]


def leaves_alone(settings: Mapping[str, float], replicas: int) -> bool:
    """Return whether every hour has so many replicas."""
    return {within(count, settings) for count in given_hours(settings)} == {replicas}


def proposed_hours(
    arrival_s: np.ndarray, start_s: float, per_replica_per_s: float
) -> list[int]:
    """Return the replicas that each hour of the week needs.

    Quarters of an hour count from ``start_s``; the last one ends with the trace.
    """
    if len(arrival_s) == 0:
        return [1] * _WEEK
    since_s = np.sort(np.asarray(arrival_s, np.float64)) - start_s
    counts = np.bincount((since_s // _QUARTER_S).astype(np.int64))
    end_s = since_s[-1]
    counts[-1] = max(counts[-1], int((since_s > end_s - _QUARTER_S).sum()))
    hours = np.arange(len(counts)) // 4 % _WEEK
    busiest = np.zeros(_WEEK, np.int64)
    np.maximum.at(busiest, hours, counts)
    return [whole(n / _QUARTER_S / per_replica_per_s) for n in busiest.tolist()]


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider by the hour."""
    hours = given_hours(settings)
    if not hours:
        hint = ", or replicas by the hour, as in schedule:0=3,8=10,20=4"
        per_replica_per_s = rate_per_replica_per_s("schedule", settings, known, hint)
        hours = proposed_hours(known.arrival_s, known.start_s, per_replica_per_s)
    ahead_s = settings["ahead"] if settings["ahead"] >= 0 else known.cold_start_s
    reach_s = ahead_s + settings["period"]  # the next tick is too late for these

    def decide(view: View) -> int:
        since_s = view.now_s - known.start_s
        first = math.floor(since_s / _HOUR_S)
        end = math.ceil((since_s + reach_s) / _HOUR_S)
        end = min(max(end, first + 1), first + len(hours))
        count = max(hours[hour % len(hours)] for hour in range(first, end))
        return within(count, settings)

    return decide
