"""Parts of pods that all targets on Kubernetes share."""

import math
from typing import Any

from capplan.planning.configure.launch import Launch
from capplan.report.exports.gpu_names import gpu_names
from capplan.report.exports.planned import Planned, PlannedPool

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
_NIXL_PORT = "5600"
"""Port of NIXL's side channel, as in llm-d's examples."""


def probe(path: str = "/health", port: int | str = PORT) -> dict[str, Any]:
    """Return the HTTP check of a replica."""
    return {"httpGet": {"path": path, "port": port}}


def startup_probe(pool: PlannedPool, **check: Any) -> dict[str, Any]:
    """Return a probe that gives a replica its cold start.

    The node and the image are there when a kubelet starts to count: room to spare.
    """
    tries = max(1, math.ceil(pool.cold_start_s / _PERIOD_S))
    how = check or probe()
    return {**how, "periodSeconds": _PERIOD_S, "failureThreshold": tries}


def drain_s(planned: Planned) -> int:
    """Return how long a replica goes on answering when it is to stop. [s]"""
    return max(1, math.ceil(planned.e2e_p99_s))


def grace_s(planned: Planned) -> int:
    """Return the time until a replica that is to stop is killed. [s]"""
    return drain_s(planned) + _STOP_S


def lifecycle(planned: Planned) -> dict[str, Any]:
    """Return what lets requests finish before vLLM gets the signal to stop.

    New ones go elsewhere meanwhile; vLLM aborts those that it has.
    """
    return {"preStop": {"exec": {"command": ["sleep", str(drain_s(planned))]}}}


def gpu_resources(count: int) -> dict[str, Any]:
    """Return the GPUs of a container."""
    return {"limits": {GPU: str(count)}, "requests": {GPU: str(count)}}


def node_selector(pool: PlannedPool) -> dict[str, dict[str, str]]:
    """Return the key of a pod for nodes with the GPU; none where no label is known."""
    product = gpu_names(pool.gpu).product
    return {"nodeSelector": {_PRODUCT: product}} if product else {}


def token() -> dict[str, Any]:
    """Return the environment variable with the token for Hugging Face."""
    key = {"name": "hf-token", "key": "token", "optional": True}
    return {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": key}}


def nixl_host() -> list[dict[str, Any]]:
    """Return the environment variables of NIXL's side channel."""
    host = {"fieldRef": {"fieldPath": "status.podIP"}}
    return [
        {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": host},
        {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": _NIXL_PORT},
    ]


def shared_memory() -> dict[str, Any]:
    """Return the volume behind ``/dev/shm``."""
    return {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _SHM}}


def shared_memory_mount() -> dict[str, Any]:
    """Return where a container has that volume."""
    return {"name": "shm", "mountPath": "/dev/shm"}


def container(
    planned: Planned, launch: Launch, image: str, gpu_count: int
) -> dict[str, Any]:
    """Return the container of ``vllm serve``, without its probes."""
    return {
        "name": "vllm",
        "image": image,
        "command": list(launch.words[:2]),
        "args": list(launch.words[2:]),
        "env": [token()],
        "resources": gpu_resources(gpu_count),
        "lifecycle": lifecycle(planned),
        "volumeMounts": [shared_memory_mount()],
    }


def served(container: dict[str, Any], pool: PlannedPool) -> dict[str, Any]:
    """Return a container that answers requests, with its port and probes."""
    at = probe(port="http")
    return {
        **container,
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": startup_probe(pool, **at),
        "readinessProbe": {**at, "periodSeconds": 5},
    }


def pod(
    planned: Planned, pool: PlannedPool, container: dict[str, Any]
) -> dict[str, Any]:
    """Return the specification of a pod with one container."""
    toleration = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
    return {
        "terminationGracePeriodSeconds": grace_s(planned),
        **node_selector(pool),
        "tolerations": [toleration],
        "containers": [container],
        "volumes": [shared_memory()],
    }


def unverified(planned: Planned, *more: str) -> tuple[str, ...]:
    """Return the names in pods that nobody looked up."""
    products = dict.fromkeys(gpu_names(pool.gpu).product for pool in planned.pools)
    found = [f"the label {_PRODUCT}={product}" for product in products if product]
    return (*more, *found)
