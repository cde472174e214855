"""llm-d: values of its chart llm-d-modelservice."""

import math
from typing import Any

from capplan.deployment.pools import PREFILL
from capplan.report.exports.export import Export, Given, Target, nodes_needed
from capplan.report.exports.planned import RANKS, TP, Planned, PlannedPool
from capplan.report.exports.pods import (
    PORT,
    SHM_NOTE,
    gpu_resources,
    grace_s,
    lifecycle,
    nixl_host,
    node_selector,
    probe,
    shared_memory,
    shared_memory_mount,
    startup_probe,
    unverified,
)
from capplan.report.exports.scaling import no_target

IMAGE = "ghcr.io/llm-d/llm-d-cuda:v0.4.0"
CHART = "v0.4.12"
_BEHIND_PROXY = 8200
"""Port of vLLM behind the routing sidecar, which takes the service's own."""
_ROOM = 1.2
"""Room for a checkpoint over its weights in GPU memory; assumed."""


def _write(given: Given) -> Export:
    """Return the values of a release: a decode pool, and a prefill pool if there is."""
    planned, image, pool = given.planned, given.image, given.planned.pool
    label = planned.name
    values: dict[str, Any] = {
        "multinode": False,
        "modelArtifacts": {
            "name": planned.checkpoint,
            "uri": f"hf://{planned.checkpoint}",
            "authSecretName": "hf-token",
            "labels": {
                "llm-d.ai/inferenceServing": "true",
                "llm-d.ai/model": label,
            },
        },
        "accelerator": {"type": "nvidia"},
        "routing": {
            "servicePort": PORT,
            "proxy": {
                "enabled": planned.is_disaggregated,
                "targetPort": _BEHIND_PROXY,
                "secure": False,
            },
        },
        "decode": _of_pool(planned, pool, image),
        "prefill": {"create": False},
    }
    if pool.weight_bytes is not None:
        gib = math.ceil(_ROOM * pool.weight_bytes / 2**30)
        values["modelArtifacts"]["size"] = f"{gib}Gi"
    if planned.is_disaggregated:
        values["prefill"] = _of_pool(planned, planned.pools[0], image)
    target = planned.target_in_flight
    scaling = (
        no_target(planned)
        if target is None
        else (
            "an autoscaler, which the chart has not: aim at "
            f"{target:.6g} requests in flight a replica",
        )
    )
    return Export(
        {"llm_d_values.yaml": [values]},
        lacks=(*given.lacks, *scaling),
        needs=(
            f"the chart llm-d-modelservice {CHART}, and llm-d's gateway and scheduler "
            f"with an InferencePool of llm-d.ai/model={label}",
            *nodes_needed(planned),
            "the Secret hf-token with the key HF_TOKEN",
        ),
        unverified=unverified(
            planned,
            f"the image {image}",
            SHM_NOTE,
            f"{_ROOM:g} times the weights for the checkpoint",
        ),
    )


def _of_pool(planned: Planned, pool: PlannedPool, image: str) -> dict[str, Any]:
    """Return the values of a pool; the chart gives checkpoint, port, TP and ranks."""
    behind = planned.is_disaggregated and pool.role != PREFILL
    port = _BEHIND_PROXY if behind else PORT
    at_port = probe(port=port)
    flags = pool.launch.without(TP, RANKS)
    ranks = {"data": pool.ranks, "dataLocal": pool.ranks} if pool.ranks > 1 else {}
    return {
        "create": True,
        "replicas": pool.replica_count,
        "parallelism": {"tensor": pool.tp, **ranks},
        **node_selector(pool),
        "terminationGracePeriodSeconds": grace_s(planned),
        "volumes": [shared_memory()],
        "containers": [
            {
                "name": "vllm",
                "image": image,
                "modelCommand": "vllmServe",
                "args": list(flags.words[3:]),
                "env": nixl_host() if pool.role else [],
                "ports": [{"name": "metrics", "containerPort": port}],
                "resources": gpu_resources(pool.gpus),
                "mountModelVolume": True,
                "volumeMounts": [shared_memory_mount()],
                "extraConfig": {
                    "lifecycle": lifecycle(planned),
                    "startupProbe": startup_probe(pool, **at_port),
                    "readinessProbe": {**at_port, "periodSeconds": 5},
                },
            }
        ],
    }


TARGET = Target(
    _write,
    image=IMAGE,
    routers={"llm-d": ""},
    otherwise="llm-d's own scheduler routes",
)
