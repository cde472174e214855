"""Kubernetes' HorizontalPodAutoscaler on a metric of each replica.

The count by pkg/controller/podautoscaler/replica_calculator.go, the windows and rates
by horizontal.go (see ``horizontal.py``): every 15 s, nothing within 10 % of the target,
up at once by at most 100 % or 4 replicas in 15 s, down to the highest recommendation of
the last 300 s. A replica that starts counts as a pending pod (``starting=unready``) or
as a running one without the metric (``missing``): vLLM's pods are the first until their
image is there and the second while they load weights. Metric and target are the user's
in Kubernetes; here they are by default requests in flight, running and waiting, and
0.8 of those that a replica holds within its SLO. ``rate`` is that of the last period,
all of it counted to the replicas that take requests.
"""

import math
from collections.abc import Mapping

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers.horizontal import (
    SYNC_S,
    behavior_of,
    behavior_settings,
    normalizer,
    pod_replicas,
)
from capplan.simulator.autoscalers.metrics import metric_of, metric_settings, target_of
from capplan.simulator.autoscalers.settings import common, keeping
from capplan.simulator.autoscalers.view import Decide, Known, View

RULES = Rules(
    {
        **common(SYNC_S),
        **metric_settings("in-flight"),
        "starting": Knob(0, choices=("unready", "missing")),
        **behavior_settings(),
    }
)


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider that compares a metric with its target."""
    metric = metric_of(settings)
    target = target_of("hpa", settings, known)
    tolerance = settings["tolerance"]
    missing = bool(settings["starting"])
    least, most = int(settings["min"]), int(settings["max"])
    normalize = normalizer(behavior_of(settings), least, most)

    @keeping(settings)
    def decide(view: View, current: int) -> int:
        absent = max(current - view.ready, 0)
        total = metric(view)
        desired = current
        if not math.isnan(total):
            desired = pod_replicas(
                total,
                current,
                view.ready,
                0 if missing else absent,
                absent if missing else 0,
                target,
                tolerance,
            )
        return normalize(view.now_s, current, desired)

    return decide
