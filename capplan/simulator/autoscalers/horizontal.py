"""Kubernetes' HorizontalPodAutoscaler: the count by a metric, windows and rates.

From pkg/controller/podautoscaler/replica_calculator.go and horizontal.go, read in the
copies at omerap12/kubernetes a769d588; defaults of ``behavior`` from
pkg/apis/autoscaling/v2/defaults.go. What differs here:

- Without a ``behavior`` in its manifest Kubernetes goes up to max(2·n, 4); here the
  default ``behavior`` always holds, which is max(2·n, n + 4) in 15 s.
- Metrics are those of the tick, without the delay of scrapes and adapters.
- A count of 0 that is below ``min`` is raised; Kubernetes takes it as switched off.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from capplan.deployment.policy import Knob
from capplan.simulator.autoscalers.settings import time

TOLERANCE = 0.1
"""``--horizontal-pod-autoscaler-tolerance``."""
SYNC_S = 15.0
"""``--horizontal-pod-autoscaler-sync-period``. [s]"""
_MILLI = 1000
"""Kubernetes counts metrics in thousandths, cut to whole ones."""


def pod_replicas(
    total: float,
    current: int,
    ready: int,
    unready: int,
    missing: int,
    target: float,
    tolerance: float,
) -> int:
    """Return the count by a metric of each pod (calcPlainMetricReplicas).

    ``total`` is the metric's sum over the ready pods. Upwards, unready pods and those
    whose metric is missing count with 0; downwards, those missing count at the target.
    A result that changes direction is dropped.
    """
    if ready == 0:
        return current
    wanted = round(target * _MILLI)
    used = round(total * _MILLI)
    ratio = used // ready / wanted
    if ratio == 1:
        return current
    up_with_unready = unready > 0 and ratio > 1
    if not up_with_unready and missing == 0:
        if _within(ratio, tolerance):
            return current
        return math.ceil(ratio * ready)
    pods = ready + missing + (unready if up_with_unready else 0)
    if ratio < 1:
        used += missing * wanted
    again = used // pods / wanted
    if _within(again, tolerance) or (ratio < 1 < again) or (ratio > 1 > again):
        return current
    count = math.ceil(again * pods)
    if (again < 1 and count > current) or (again > 1 and count < current):
        return current
    return count


def external_replicas(
    total: float, current: int, target: float, tolerance: float
) -> int:
    """Return the count by a metric of the whole (GetExternalPerPodMetricReplicas).

    Who is ready does not matter: ``total`` is shared by all pods that there should be.
    """
    wanted = round(target * _MILLI)
    used = round(total * _MILLI)
    if current > 0 and _within(used / (wanted * current), tolerance):
        return current
    return math.ceil(used / wanted)


def _within(ratio: float, tolerance: float) -> bool:
    return 1.0 - tolerance <= ratio <= 1.0 + tolerance


class Behavior(NamedTuple):
    """``spec.behavior``, with ``selectPolicy: Max``; a limit of 0 is none."""

    up_window_s: float
    down_window_s: float
    up_pods: int
    up_percent: float
    up_period_s: float
    down_pods: int
    down_percent: float
    down_period_s: float


DEFAULT = Behavior(0.0, 300.0, 4, 100.0, 15.0, 0, 100.0, 15.0)


def behavior_settings(behavior: Behavior = DEFAULT) -> dict[str, Knob]:
    """Return the settings of tolerance and behavior."""
    return {
        "tolerance": Knob(TOLERANCE, 0.0, 10.0),
        "up_window": time(behavior.up_window_s),
        "down_window": time(behavior.down_window_s),
        "up_pods": Knob(behavior.up_pods, 0),
        "up_percent": Knob(behavior.up_percent, 0.0),
        "up_period": time(behavior.up_period_s, 1.0),
        "down_pods": Knob(behavior.down_pods, 0),
        "down_percent": Knob(behavior.down_percent, 0.0, 100.0),
        "down_period": time(behavior.down_period_s, 1.0),
    }


def behavior_of(settings: Mapping[str, float]) -> Behavior:
    """Return the behavior that settings ask for."""
    # Pods are whole: a setting is where its default is.
    return Behavior._make(
        settings[name.removesuffix("_s")] for name in Behavior._fields
    )


Changes = Iterable[tuple[float, int]]
"""When counts changed, and by how much. [s], [replicas]"""


def up_limit(behavior: Behavior, changes: Changes, now_s: float, current: int) -> int:
    """Return the highest count that the rates allow, at least the current one."""
    limit = current
    start = current - _changed_since(now_s - behavior.up_period_s, changes)
    if behavior.up_pods:
        limit = max(limit, start + behavior.up_pods)
    if behavior.up_percent:
        limit = max(limit, math.ceil(start * (1 + behavior.up_percent / 100)))
    return limit


def down_limit(behavior: Behavior, changes: Changes, now_s: float, current: int) -> int:
    """Return the lowest count that the rates allow, at most the current one."""
    limit = current
    start = current - _changed_since(now_s - behavior.down_period_s, changes)
    if behavior.down_pods:
        limit = min(limit, start - behavior.down_pods)
    if behavior.down_percent:
        limit = min(limit, int(start * (1 - behavior.down_percent / 100)))
    return limit


def _changed_since(time_s: float, changes: Changes) -> int:
    return sum(change for at_s, change in changes if at_s > time_s)


Normalize = Callable[[float, int, int], int]
"""``normalize(now_s, current, desired)`` returns the count that is set."""


def normalizer(behavior: Behavior, least: int, most: int) -> Normalize:
    """Return what windows, rates and bounds make of one recommendation after another.

    As normalizeDesiredReplicasWithBehaviors: the stabilization window of a direction
    is open at its old end, and so is the period of a limit.
    """
    recommended: deque[tuple[float, int]] = deque()
    changes: deque[tuple[float, int]] = deque()  # +: up, -: down
    window_s = max(behavior.up_window_s, behavior.down_window_s)
    period_s = max(behavior.up_period_s, behavior.down_period_s)

    def changed(now_s: float, current: int, count: int) -> int:
        while changes and changes[0][0] < now_s - period_s:
            changes.popleft()
        if count != current:
            changes.append((now_s, count - current))
        return count

    def normalize(now_s: float, current: int, desired: int) -> int:
        if not recommended:
            recommended.append((now_s, current))
        if not least <= current <= most:
            return changed(now_s, current, min(max(current, least), most))
        while recommended[0][0] < now_s - window_s and len(recommended) > 1:
            recommended.popleft()
        lowest = highest = desired
        for at_s, count in recommended:
            if at_s > now_s - behavior.up_window_s and count < lowest:
                lowest = count
            if at_s > now_s - behavior.down_window_s and count > highest:
                highest = count
        recommended.append((now_s, desired))
        stable = min(max(current, lowest), highest)
        if stable > current:
            stable = min(stable, most, up_limit(behavior, changes, now_s, current))
        elif stable < current:
            stable = max(stable, least, down_limit(behavior, changes, now_s, current))
        return changed(now_s, current, stable)

    return normalize
