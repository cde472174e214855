"""Ray Serve: an application of its LLM builder."""

import math
from typing import Any

from capplan.report.exports.export import (
    API_SERVERS,
    Export,
    Given,
    Target,
    no_api_servers,
    nodes_needed,
)
from capplan.report.exports.gpu_names import gpu_names
from capplan.report.exports.planned import Planned, PlannedPool
from capplan.report.exports.scaling import no_target
from capplan.report.exports.template import filled

_APP, _PD_APP = "ray.serve.llm:build_openai_app", "ray.serve.llm:build_pd_openai_app"


def _write(given: Given) -> Export:
    """Return the configuration of ``serve deploy``."""
    planned = given.planned
    llms = [_of_pool(planned, pool) for pool in planned.pools]
    if planned.is_disaggregated:
        args: dict[str, Any] = {"prefill_config": llms[0], "decode_config": llms[1]}
    else:
        args = {"llm_configs": llms}
    app = _PD_APP if planned.is_disaggregated else _APP
    document = filled("ray", name=planned.name, app=app, args=args)
    return Export(
        {"ray.yaml": [document]},
        lacks=(
            *given.lacks,
            *no_api_servers(planned, "Ray's ingress"),
            *no_target(planned),
            "a probe from the cold start: Ray waits for a replica as long as it takes",
        ),
        needs=(
            "a Ray cluster with ray[llm], whose vLLM has each of engine_kwargs",
            *nodes_needed(planned),
            "HF_TOKEN in the environment of the cluster for gated LLMs",
        ),
        unverified=("which release of vLLM the cluster has",),
    )


def _of_pool(planned: Planned, pool: PlannedPool) -> dict[str, Any]:
    """Return the LLMConfig of a pool."""
    target = planned.target_in_flight
    # Those that wait in vLLM too: else the target may never be seen.
    most = max(pool.max_num_seqs, math.ceil(target or 0))
    deployment: dict[str, Any] = {"max_ongoing_requests": most}
    if target is None:
        deployment["num_replicas"] = pool.replica_count
    else:
        deployment["autoscaling_config"] = {
            "min_replicas": pool.replica_count,
            "max_replicas": planned.most_replicas,
            "target_ongoing_requests": float(f"{target:.6g}"),
        }
    accelerator = gpu_names(pool.gpu).ray
    return filled(
        "ray_llm",
        checkpoint=planned.checkpoint,
        accelerator={"accelerator_type": accelerator} if accelerator else {},
        deployment=deployment,
        arguments=pool.launch.without(API_SERVERS).arguments,
    )


TARGET = Target(
    _write,
    has_ranks=False,
    routers={"power-of-two": ""},
    otherwise="Ray chooses by power-of-two",
)
