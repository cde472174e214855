"""KEDA: none or one replica by itself, one to many through Kubernetes' HPA.

kedacore/keda 8b4f083c, pkg/scaling/executor/scale_scaledobjects.go: every ``polling``
(30 s) it looks whether the trigger is above ``activation``; from none it goes to one,
or ``min``, and with ``min=0`` from any count to none when the trigger was not above it
for longer than ``cooldown`` (300 s). Until it was above it once, ``initial_cooldown``
(0 s) counts instead, from when the ScaledObject was made: here the start of the trace.
So a fleet to which nothing comes is closed at the first poll after it. In between the
HPA reads the metric as an external one, every 15 s: the sum over its threshold, whoever
is ready.

Metric and threshold by default are those of vLLM's production-stack (a6c01db0,
docs/source/use_cases/autoscaling-keda.rst): requests that wait, 5 for each replica. Its
query returns a series for each replica, which KEDA's Prometheus scaler refuses when
there are several ("returned multiple elements"); here they are summed. Its page on
scaling to zero adds a second trigger that is 1 where requests came in the last minute:
``keepalive=on``. Without it a fleet that serves all without a queue is scaled to none.
Its example has ``min=1,max=3,polling=15s,cooldown=360s``.
"""

import math
from collections.abc import Mapping

from capplan.deployment.policy import Knob, Rules
from capplan.simulator.autoscalers.horizontal import (
    SYNC_S,
    behavior_of,
    behavior_settings,
    external_replicas,
    normalizer,
)
from capplan.simulator.autoscalers.metrics import metric_of, metric_settings, target_of
from capplan.simulator.autoscalers.settings import common, keeping, time
from capplan.simulator.autoscalers.view import Decide, Known, View

RULES = Rules(
    {
        **common(SYNC_S, fewest=0),
        "polling": time(30.0, 1.0),
        "cooldown": time(300.0),
        "initial_cooldown": time(0.0),
        **metric_settings("waiting"),
        "activation": Knob(0.0, 0.0, 1e9),
        "keepalive": Knob(1, choices=("off", "on")),
        **behavior_settings(),
    }
)
_KEPT_ALIVE_S = 60.0
"""How long the second trigger is on after a request. [s]"""


def start(settings: Mapping[str, float], known: Known) -> Decide:
    """Return a decider that scales between none and many."""
    metric = metric_of(settings)
    target = target_of("keda", settings, known)
    tolerance = settings["tolerance"]
    least, most = int(settings["min"]), int(settings["max"])
    normalize = normalizer(behavior_of(settings), max(least, 1), most)
    poll_s = came_s = -math.inf
    active_s, cooldown_s = known.start_s, settings["initial_cooldown"]

    def alive(view: View) -> bool:
        nonlocal came_s
        if view.arrived > 0 or view.held > 0:
            came_s = view.now_s
        return bool(settings["keepalive"]) and view.now_s - came_s < _KEPT_ALIVE_S

    @keeping(settings)
    def decide(view: View, current: int) -> int:
        nonlocal poll_s, active_s, cooldown_s
        kept_alive = alive(view)
        total = metric(view) if view.ready else math.nan
        if current > 0:
            desired = current
            if not math.isnan(total):
                desired = external_replicas(total, current, target, tolerance)
            current = normalize(view.now_s, current, desired)
        if view.now_s - poll_s >= settings["polling"]:
            poll_s = view.now_s
            if kept_alive or total > settings["activation"]:
                active_s, cooldown_s = view.now_s, settings["cooldown"]
                current = max(current, least, 1)
            elif least == 0 and view.now_s - active_s > cooldown_s:
                current = 0
            else:
                current = max(current, least)
        return current

    return decide
