"""A HorizontalPodAutoscaler with the plan's target, and the metric that it reads."""

from typing import Any

from capplan.engines.vllm import RUNNING, WAITING
from capplan.report.exports.planned import Planned
from capplan.report.exports.template import filled
from capplan.simulator.autoscalers.hpa import RULES

METRIC = "vllm_requests_in_flight"
"""Requests running and waiting on a pod, as the adapter is told to name them."""
ADAPTER_FILE = "prometheus_adapter.yaml"


def autoscaler(planned: Planned, workload: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the autoscaler of a workload; none where no target was measured.

    It never has fewer replicas than were planned. What it does in time is what the
    autoscaler ``hpa`` of ``capplan autoscale`` does by default.
    """
    target = planned.target_in_flight
    if target is None:
        return []
    default = {key: knob.default for key, knob in RULES.settings.items()}

    def policies(way: str) -> list[dict[str, Any]]:
        period_s = int(default[f"{way}_period"])
        kinds = {"Pods": f"{way}_pods", "Percent": f"{way}_percent"}
        return [
            {"type": kind, "value": int(default[key]), "periodSeconds": period_s}
            for kind, key in kinds.items()
            if default[key] > 0
        ]

    behavior = {
        f"scale{way.capitalize()}": {
            "stabilizationWindowSeconds": int(default[f"{way}_window"]),
            "policies": policies(way),
        }
        for way in ("up", "down")
    }
    return [
        filled(
            "autoscaler",
            name=workload["metadata"]["name"],
            api=workload["apiVersion"],
            kind=workload["kind"],
            least=planned.pool.replica_count,
            most=planned.most_replicas,
            metric=METRIC,
            target=quantity(target),
            behavior=behavior,
        )
    ]


def adapter() -> dict[str, Any]:
    """Return values of the chart prometheus-adapter, which give pods the metric."""
    of = "{<<.LabelMatchers>>}"
    return filled(
        "adapter",
        metric=METRIC,
        series=f'{RUNNING}{{namespace!="",pod!=""}}',
        query=f"sum({RUNNING}{of} + {WAITING}{of}) by (<<.GroupBy>>)",
    )


def in_flight_query(selector: str) -> str:
    """Return Prometheus' query of the requests in flight on all pods of a workload."""
    return f"sum({RUNNING}{{{selector}}} + {WAITING}{{{selector}}})"


def scaling_notes(planned: Planned) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what an autoscaler lacks, and what it needs."""
    if planned.target_in_flight is None:
        return no_target(planned), ()
    return (), (
        f"the metric {METRIC} of pods, from Prometheus by its adapter with "
        f"{ADAPTER_FILE}; without it the count stays at the plan's",
        "minReplicas is the plan's count: `capplan autoscale` says whether fewer pay",
    )


def no_target(planned: Planned) -> tuple[str, ...]:
    """Return why there is no autoscaler; nothing where a target was measured."""
    if planned.sustained is not None:
        return ()
    of = (
        "two pools"
        if planned.is_disaggregated
        else "users, nor without capplan plan --out"
    )
    return (f"an autoscaler: what a replica holds is not measured of {of}",)


def quantity(value: float) -> str:
    """Return a target as a quantity of Kubernetes, never above it.

    Examples
    --------
    >>> quantity(98.56), quantity(2.5), quantity(0.0129)
    ('98', '2500m', '12m')
    """
    return str(int(value)) if value >= 10 else f"{max(1, int(1000 * value))}m"
