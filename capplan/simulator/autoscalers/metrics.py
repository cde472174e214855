"""Metrics that autoscalers compare with a target, and their targets by default.

The target of requests in flight and of the arrival rate is 0.8 of what a replica
serves within its SLO: a target of all of it would scale up when it is too late. Waiting
requests: 5, the threshold of vLLM's production-stack (helm/templates/
scaledobject-vllm.yaml at a6c01db0). KV: 0.8, the ``kvCacheThreshold`` of llm-d's WVA.
"""

import math
from collections.abc import Callable, Mapping

from capplan.deployment.policy import Knob
from capplan.errors import InputError
from capplan.simulator.autoscalers.view import Known, View

METRICS = ("in-flight", "running", "waiting", "kv", "rate")
_SHARE = 0.8
_WAITING = 5.0
_KV_SHARE = 0.8


def metric_settings(default: str) -> dict[str, Knob]:
    """Return the settings of metric and target."""
    return {
        "metric": Knob(METRICS.index(default), choices=METRICS),
        "target": Knob(0.0, 0.001, 1e9, optional=True),
    }


def metric_of(settings: Mapping[str, float]) -> Callable[[View], float]:
    """Return the sum of the metric over the replicas that take requests."""
    return _SUMS[METRICS[int(settings["metric"])]]


def target_of(name: str, settings: Mapping[str, float], known: Known) -> float:
    """Return the target of each replica."""
    metric = METRICS[int(settings["metric"])]
    target = settings["target"]
    if target == 0:
        target = {
            "waiting": _WAITING,
            "kv": _KV_SHARE,
            "rate": _SHARE * known.rate_per_replica_per_s,
        }.get(metric, _SHARE * known.in_flight_per_replica)
    if not target > 0 or math.isinf(target):
        raise InputError(
            f"autoscaler {name}: what a replica serves within its SLO is not known, so "
            f"no target of {metric}; give it, as in {name}:metric={metric},target=20"
        )
    return target


_SUMS: dict[str, Callable[[View], float]] = {
    "in-flight": lambda view: float(view.running.sum() + view.waiting.sum()),
    "running": lambda view: float(view.running.sum()),
    "waiting": lambda view: float(view.waiting.sum()),
    "kv": lambda view: float(view.kv_share.sum()),
    "rate": lambda view: view.arrived / view.since_s if view.since_s > 0 else math.nan,
}
