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
from capplan.report.exports.pods import grace_s, pod_values, unverified
from capplan.report.exports.template import filled

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
    front = filled(
        "dynamo_component",
        name="Frontend",
        kind="frontend",
        replicas=1,
        image=image,
        command=["python3"],
        args=frontend,
        around={},
        limits={},
    )
    workers = [_worker(planned, pool, image) for pool in planned.pools]
    document = filled("dynamo", name=planned.name, components=[front, *workers])
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
    values = pod_values(planned, pool, image)
    around = {"terminationGracePeriodSeconds": grace_s(planned), **values["selector"]}
    kind = pool.role or "worker"
    return filled(
        "dynamo_component",
        name=kind,
        kind=kind,
        command=["python3", "-m", "dynamo.vllm"],
        args=words,
        around=around,
        limits={"resources": filled("resources", **values)},
        **values,
    )


TARGET = Target(
    _write,
    image=IMAGE,
    has_ranks=False,
    routers=ROUTER_MODES,
    otherwise="Dynamo's frontend has no such mode",
)
