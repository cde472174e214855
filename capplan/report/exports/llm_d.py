"""llm-d: values of its chart llm-d-modelservice."""

import math
from typing import Any

from capplan.deployment.pools import PREFILL
from capplan.report.exports.export import Export, Given, Target, nodes_needed
from capplan.report.exports.planned import RANKS, TP, Planned, PlannedPool
from capplan.report.exports.pods import PORT, SHM_NOTE, pod_values, unverified
from capplan.report.exports.scaling import no_target
from capplan.report.exports.template import filled

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
    size = {}
    if pool.weight_bytes is not None:
        size = {"size": f"{math.ceil(_ROOM * pool.weight_bytes / 2**30)}Gi"}
    prefill: dict[str, Any] = {"create": False}
    if planned.is_disaggregated:
        prefill = _of_pool(planned, planned.pools[0], image)
    values = filled(
        "llm_d",
        name=label,
        checkpoint=planned.checkpoint,
        uri=f"hf://{planned.checkpoint}",
        size=size,
        is_disaggregated=planned.is_disaggregated,
        behind_proxy=_BEHIND_PROXY,
        decode=_of_pool(planned, pool, image),
        prefill=prefill,
    )
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
    flags = pool.launch.without(TP, RANKS)
    ranks = {"data": pool.ranks, "dataLocal": pool.ranks} if pool.ranks > 1 else {}
    values = pod_values(planned, pool, image, port)
    return filled("llm_d_pool", ranks=ranks, args=list(flags.words[3:]), **values)


TARGET = Target(
    _write, image=IMAGE, routers={"llm-d": ""}, otherwise="llm-d's own scheduler routes"
)
