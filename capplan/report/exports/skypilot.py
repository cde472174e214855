"""SkyPilot: a service of replicas on any cloud."""

import math
import shlex
from typing import Any

from capplan.report.exports.export import Export, Given, Target
from capplan.report.exports.gpu_names import gpu_names
from capplan.report.exports.pods import IMAGE, PORT
from capplan.report.exports.scaling import no_target
from capplan.report.exports.template import filled

POLICIES = {"jsq": "least_load", "round-robin": "round_robin"}
"""SkyServe's load balancing policies by our routers."""


def _write(given: Given) -> Export:
    """Return the task with its service."""
    planned, image, pool = given.planned, given.image, given.planned.pool
    accelerator, lacks = gpu_names(pool.gpu).skypilot, given.lacks
    replicas: dict[str, Any] = {"replicas": pool.replica_count}
    target = planned.target_per_s
    if target is None:
        lacks += no_target(planned)
    else:
        policy = {
            "min_replicas": pool.replica_count,
            "max_replicas": planned.most_replicas,
            "target_qps_per_replica": float(f"{target:.6g}"),
        }
        replicas = {"replica_policy": policy}
        lacks += ("a target of requests in flight: it is of requests per second",)
        wanted = math.ceil(planned.rate_per_s / target)
        if wanted > pool.replica_count:
            lacks += (
                f"the plan's count: at {planned.rate_per_s:.6g} requests/s this target "
                f"asks for {wanted} replicas, not {pool.replica_count}",
            )
    document = filled(
        "skypilot",
        name=planned.name,
        accelerators=f"{accelerator}:{pool.gpus}",
        image=f"docker:{image}",
        port=PORT,
        cold_start_s=math.ceil(pool.cold_start_s),
        router=given.router or "least_load",
        replicas=replicas,
        run=f"{shlex.join(pool.launch.words)}\n",
    )
    return Export(
        {"skypilot.yaml": [document]},
        lacks=lacks,
        needs=("sky serve up skypilot.yaml --secret HF_TOKEN, with a cloud enabled",),
        unverified=(
            f"the image {image}, and that SkyPilot starts in it",
            f"the accelerator {accelerator} as {pool.gpu}: some clouds have another "
            "form of it by that name",
        ),
    )


TARGET = Target(
    _write,
    image=IMAGE,
    has_proxy=False,
    routers=POLICIES,
    otherwise="SkyServe balances by least_load",
)
