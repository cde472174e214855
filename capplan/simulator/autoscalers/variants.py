"""What both versions of llm-d's Workload Variant Autoscaler (WVA) share.

llm-d/llm-d-workload-variant-autoscaler b08b1c77. It reads each replica's peak of the
last minute (internal/collector/registration/saturation.go), decides every ``reconcile``
(60 s) and publishes a count, which the HPA of its chart
(charts/workload-variant-autoscaler: templates/hpa.yaml, values.yaml) reads every 15 s
as an external metric of target 1: windows of 240 s both ways, 10 replicas in 150 s.

That HPA's tolerance is of the whole count: one more or one fewer of 10 or more replicas
is within 10 %, so that WVA V1, which goes by one, never leaves 10 replicas, which is
the chart's ``maxReplicas``. ``tolerance=0`` lets it. (kubernetes/kubernetes#116984 and
gocrane/crane#836 tell of the same with other metrics.)
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from capplan.deployment.policy import Knob
from capplan.simulator.autoscalers.horizontal import (
    SYNC_S,
    Behavior,
    behavior_of,
    behavior_settings,
    external_replicas,
    normalizer,
)
from capplan.simulator.autoscalers.settings import common, keeping, time
from capplan.simulator.autoscalers.view import Decide, View

CHART = Behavior(240.0, 240.0, 10, 0.0, 150.0, 10, 0.0, 150.0)
PEAK_S = 60.0
"""``max_over_time(...[1m])``. [s]"""


class Peak(NamedTuple):
    """Highest use of each replica in the last minute, shape (ready,)."""

    kv_share: np.ndarray
    waiting: np.ndarray


class Seen(NamedTuple):
    """What WVA decides on."""

    view: View
    peak: Peak
    current: int  # replicas of the deployment: those ready and those that lack


def wva_settings(own: dict[str, Knob]) -> dict[str, Knob]:
    """Return the settings of a version and of its HPA."""
    return {
        **common(SYNC_S),
        "reconcile": time(60.0, 1.0),
        "kv": Knob(0.80, 0.01, 1.0),
        "queue": Knob(5.0, 0.0, 1e6),
        **own,
        **behavior_settings(CHART),
    }


def peaks() -> Callable[[View], Peak]:
    """Return what keeps the peaks of replicas over the last minute.

    Replicas are known by their place. One that closed takes its past with it.
    """
    seen: deque[tuple[float, np.ndarray, np.ndarray]] = deque()

    def peak(view: View) -> Peak:
        while seen and seen[0][0] <= view.now_s - PEAK_S:
            seen.popleft()
        kv_share, waiting = view.kv_share.copy(), view.waiting.copy()
        n = len(kv_share)
        for _, old_kv, old_waiting in reversed(seen):
            n = min(n, len(old_kv))
            np.maximum(kv_share[:n], old_kv[:n], out=kv_share[:n])
            np.maximum(waiting[:n], old_waiting[:n], out=waiting[:n])
        seen.append((view.now_s, view.kv_share, view.waiting))
        return Peak(kv_share, waiting)

    return peak


def through_hpa(
    settings: Mapping[str, float], decided: Callable[[Seen, int], int]
) -> Decide:
    """Return a decider that publishes ``decided(seen, published)`` and lets HPA act."""
    tolerance = settings["tolerance"]
    normalize = normalizer(
        behavior_of(settings), int(settings["min"]), int(settings["max"])
    )
    peak = peaks()
    published = 0  # nothing yet
    reconciled_s = float("-inf")

    @keeping(settings)
    def decide(view: View, current: int) -> int:
        nonlocal published, reconciled_s
        seen = Seen(view, peak(view), current)
        if view.now_s - reconciled_s >= settings["reconcile"]:
            reconciled_s = view.now_s
            published = decided(seen, published)
        desired = external_replicas(published, current, 1.0, tolerance)
        return normalize(view.now_s, current, desired)

    return decide
