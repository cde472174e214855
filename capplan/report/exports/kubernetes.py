"""Kubernetes: a Deployment with its Service, autoscaler and disruption budget."""

from typing import Any

from capplan.report.exports.export import Export, Given, Target, node_needs
from capplan.report.exports.pods import (
    IMAGE,
    SHM_NOTE,
    pod_values,
    unverified,
    words_of,
)
from capplan.report.exports.scaling import (
    ADAPTER_FILE,
    adapter,
    autoscaler,
    scaling_notes,
)
from capplan.report.exports.template import filled

RANDOM = "a Service sends each connection to any replica; put a router before them"
"""What a Service does in place of the plan's router."""


def _write(given: Given) -> Export:
    """Return the manifests of a plan of one pool, and the rule of its metric."""
    planned, pool, name = given.planned, given.planned.pool, given.planned.name
    labels = {"app.kubernetes.io/name": name}
    values = pod_values(planned, pool, given.image, "http")
    each = filled("served", **values, **words_of(pool.launch))
    deployment = filled("kubernetes", name=name, labels=labels, main=each, **values)
    nodes = f"{node_needs(pool)}, and once more while a new version rolls out"
    front = filled("service", name=name, pods=labels)
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
    pods = front["spec"]["selector"]
    budget = filled("budget", name=planned.name, pods=pods)
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


TARGET = Target(_write, image=IMAGE, has_proxy=False, otherwise=RANDOM)
