"""NVIDIA Dynamo: a DynamoGraphDeployment."""

from typing import Any

from capplan.report.exports.export import (
    API_SERVERS,
    Export,
    Given,
    Target,
    no_api_servers,
    nodes_needed,
)
from capplan.report.exports.planned import Planned, PlannedPool
from capplan.report.exports.pods import (
    gpu_resources,
    grace_s,
    node_selector,
    unverified,
)

IMAGE = "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1"
"""That of Dynamo's own templates, of this release."""
ROUTER_MODES = {
    "dynamo-kv": "kv",
    "round-robin": "round-robin",
    "jsq": "least-loaded",
    "power-of-two": "power-of-two",
}
"""Dynamo's ``--router-mode`` by our routers."""


def _write(given: Given) -> Export:
    """Return the graph: a frontend, and a worker or a prefill and a decode worker."""
    planned, image = given.planned, given.image
    frontend = ["-m", "dynamo.frontend"]
    if given.router is not None:
        frontend += ["--router-mode", given.router]
    main = _container(image, ["python3"], frontend)
    components = [
        _component("Frontend", "frontend", 1, {"containers": [main]}),
        *(_worker(planned, pool, image) for pool in planned.pools),
    ]
    document = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": planned.name},
        "spec": {"components": components},
    }
    return Export(
        {"dynamo.yaml": [document]},
        lacks=(
            *given.lacks,
            *no_api_servers(planned, "Dynamo's frontend"),
            "an autoscaler: Dynamo's planner is a component of its own",
            "a probe from the cold start: Dynamo's operator gives a worker two hours",
        ),
        needs=(
            "Dynamo's operator",
            *nodes_needed(planned),
            "the Secret hf-token-secret with HF_TOKEN",
        ),
        unverified=unverified(
            planned,
            f"the image {image}",
            "that Dynamo's worker takes each flag of vLLM",
        ),
    )


def _worker(planned: Planned, pool: PlannedPool, image: str) -> dict[str, Any]:
    flags = pool.launch.without(API_SERVERS).words[3:]
    mode = ["--disaggregation-mode", pool.role] if pool.role else []
    words = ["--model", pool.launch.checkpoint, *flags, *mode]
    main = _container(image, ["python3", "-m", "dynamo.vllm"], words)
    main["resources"] = gpu_resources(pool.gpus)
    pod = {
        "terminationGracePeriodSeconds": grace_s(planned),
        **node_selector(pool),
        "containers": [main],
    }
    kind = pool.role or "worker"
    return _component(kind, kind, pool.replica_count, pod)


def _container(image: str, command: list[str], args: list[str]) -> dict[str, Any]:
    secret = {"secretRef": {"name": "hf-token-secret"}}
    return {
        "name": "main",
        "image": image,
        "command": command,
        "args": args,
        "envFrom": [secret],
    }


def _component(
    name: str, kind: str, replicas: int, pod: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "replicas": replicas,
        "podTemplate": {"spec": pod},
    }


TARGET = Target(
    _write,
    image=IMAGE,
    has_ranks=False,
    routers=ROUTER_MODES,
    otherwise="Dynamo's frontend has no such mode",
)
