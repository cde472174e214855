"""Docker Compose: the replicas of one host."""

import math

from capplan.report.exports.export import Export, Given, Target
from capplan.report.exports.gpu_names import gpu_names
from capplan.report.exports.pods import IMAGE, PORT, drain_s, grace_s
from capplan.report.exports.template import filled


def _write(given: Given) -> Export:
    """Return a file for each host of the plan: they are alike, but for the last."""
    planned, pool = given.planned, given.planned.pool
    gpu_names(pool.gpu)
    per_host = min(
        (pool.gpus_per_node or pool.gpus) // pool.gpus or 1, pool.replica_count
    )
    hosts = math.ceil(pool.replica_count / per_host)
    words = [_plain(word) for word in pool.launch.words]
    services = {
        f"vllm-{index}": filled(
            "compose",
            image=given.image,
            entrypoint=words[:2],
            command=words[2:],
            ports=f"{PORT + index}:{PORT}",
            grace=f"{grace_s(planned)}s",
            start_period=f"{math.ceil(pool.cold_start_s)}s",
            device_ids=[str(index * pool.gpus + gpu) for gpu in range(pool.gpus)],
        )
        for index in range(per_host)
    }
    document = {"name": planned.name, "services": services, "volumes": {"hf-cache": {}}}
    last = pool.replica_count - (hosts - 1) * per_host
    fewer = f"; on the last one {last} of its {per_host} services" * (last != per_host)
    return Export(
        {"compose.yaml": [document]},
        lacks=(
            f"the {pool.replica_count} replicas of the plan: a Compose file is of one "
            f"host; start it on {hosts} with {per_host * pool.gpus} {pool.gpu} "
            f"each{fewer}",
            *given.lacks,
            "an autoscaler",
            f"requests in flight at a stop ({drain_s(planned)} s of them): take the "
            "host from the load balancer first",
        ),
        needs=("Docker with the NVIDIA Container Toolkit", "HF_TOKEN for gated LLMs"),
        unverified=(f"the image {given.image}",),
    )


def _plain(word: str) -> str:
    """Return a word that Compose does not interpolate."""
    return word.replace("$", "$$")


TARGET = Target(
    _write,
    image=IMAGE,
    has_proxy=False,
    otherwise="Compose routes nothing; put a load balancer before",
)
