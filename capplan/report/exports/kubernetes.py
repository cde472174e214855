"""Kubernetes: a Deployment with its Service, autoscaler and disruption budget."""

from typing import Any

from capplan.report.exports.export import Export, Given, Target, node_needs
from capplan.report.exports.pods import (
    IMAGE,
    SHM_NOTE,
    container,
    pod,
    served,
    unverified,
)
from capplan.report.exports.scaling import (
    ADAPTER_FILE,
    adapter,
    autoscaler,
    scaling_notes,
)

RANDOM = "a Service sends each connection to any replica; put a router before them"
"""What a Service does in place of the plan's router."""


def _write(given: Given) -> Export:
    """Return the manifests of a plan of one pool, and the rule of its metric."""
    planned, pool, name = given.planned, given.planned.pool, given.planned.name
    labels = {"app.kubernetes.io/name": name}
    each = served(container(planned, pool.launch, given.image, pool.gpus), pool)
    spec = {
        "replicas": pool.replica_count,
        "selector": {"matchLabels": labels},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
        },
        "template": {"metadata": {"labels": labels}, "spec": pod(planned, pool, each)},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
    nodes = f"{node_needs(pool)}, and once more while a new version rolls out"
    front = service(name, labels)
    return behind_service(given, "k8s.yaml", deployment, front, (nodes,))


def behind_service(
    given: Given,
    file: str,
    workload: dict[str, Any],
    front: dict[str, Any],
    needs: tuple[str, ...],
) -> Export:
    """Return a workload behind a Service, with autoscaler and disruption budget.

    ``needs`` are those of the workload.
    """
    planned = given.planned
    scaled = autoscaler(planned, workload)
    no_scaling, scaling_needs = scaling_notes(planned)
    budget = _budget(planned.name, front["spec"]["selector"])
    return Export(
        {
            file: [workload, front, *scaled, budget],
            **({ADAPTER_FILE: [adapter()]} if scaled else {}),
        },
        lacks=(*given.lacks, *no_scaling),
        needs=(
            *needs,
            *scaling_needs,
            "the Secret hf-token with the key token for gated LLMs",
        ),
        unverified=unverified(planned, f"the image {given.image}", SHM_NOTE),
    )


def service(name: str, selector: dict[str, str]) -> dict[str, Any]:
    """Return the Service before pods."""
    port = {"name": "http", "port": 80, "targetPort": "http"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": selector, "ports": [port]},
    }


def _budget(name: str, selector: dict[str, str]) -> dict[str, Any]:
    """Return a disruption budget of one replica at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector}},
    }


TARGET = Target(_write, image=IMAGE, has_proxy=False, otherwise=RANDOM)
