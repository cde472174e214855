"""Parts of pods that all targets on Kubernetes share."""

import math
from typing import Any

from capplan.planning.configure.launch import Launch
from capplan.report.exports.gpu_names import gpu_names
from capplan.report.exports.planned import Planned, PlannedPool
from capplan.report.exports.template import filled

IMAGE = "vllm/vllm-openai:v0.32.0"
"""vLLM's own image, of the release whose flags and rules capplan is tested with."""
PORT = 8000
"""Port of ``vllm serve`` by default."""
GPU = "nvidia.com/gpu"
_PRODUCT = "nvidia.com/gpu.product"
"""Label of nodes by NVIDIA's GPU Feature Discovery."""
_PERIOD_S = 10
_STOP_S = 30
"""Time to stop after the last request: Kubernetes' own default. [s]"""
_SHM = "16Gi"
"""Shared memory between the processes of a replica; assumed."""
SHM_NOTE = f"/dev/shm of {_SHM}"


def drain_s(planned: Planned) -> int:
    """Return how long a replica goes on answering when it is to stop. [s]"""
    return max(1, math.ceil(planned.e2e_p99_s))


def grace_s(planned: Planned) -> int:
    """Return the time until a replica that is to stop is killed. [s]"""
    return drain_s(planned) + _STOP_S


def pod_values(
    planned: Planned, pool: PlannedPool, image: str, port: int | str = PORT
) -> dict[str, Any]:
    """Return what the pods of a pool have for the names of templates.

    The node and the image are there when a kubelet starts to count the tries of a cold
    start: room to spare.
    """
    product = gpu_names(pool.gpu).product
    return {
        "image": image,
        "gpus": str(pool.gpus),
        "replicas": pool.replica_count,
        "tp": pool.tp,
        "drain_s": str(drain_s(planned)),
        "grace_s": grace_s(planned),
        # none where no label is known
        "selector": {"nodeSelector": {_PRODUCT: product}} if product else {},
        "port": port,
        "period_s": _PERIOD_S,
        "tries": max(1, math.ceil(pool.cold_start_s / _PERIOD_S)),
        "shm_size": _SHM,
        "nixl": [filled("nixl_host"), filled("nixl_port")] if pool.role else [],
    }


def words_of(launch: Launch) -> dict[str, list[str]]:
    """Return the command of a container and its arguments."""
    return {"command": list(launch.words[:2]), "args": list(launch.words[2:])}


def unverified(planned: Planned, *more: str) -> tuple[str, ...]:
    """Return the names in pods that nobody looked up."""
    products = dict.fromkeys(gpu_names(pool.gpu).product for pool in planned.pools)
    found = [f"the label {_PRODUCT}={product}" for product in products if product]
    return (*more, *found)
