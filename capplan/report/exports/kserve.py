"""KServe: an LLMInferenceService, with a prefill pool where there is one."""

import shlex
from typing import Any

from capplan.report.exports.export import Export, Given, Target, nodes_needed
from capplan.report.exports.planned import Planned, PlannedPool
from capplan.report.exports.pods import pod_values, unverified
from capplan.report.exports.scaling import in_flight_query, no_target
from capplan.report.exports.template import filled

_PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"


def _write(given: Given) -> Export:
    """Return the service; of one pool KEDA scales it by the requests in flight."""
    planned, image, pool = given.planned, given.image, given.planned.pool
    target = planned.target_in_flight
    scales, prefill = target is not None, planned.pools[0]
    scaling: dict[str, Any] = {"replicas": pool.replica_count}
    if target is not None:
        scaling = filled(
            "kserve_scaling",
            least=pool.replica_count,
            most=planned.most_replicas,
            prometheus=_PROMETHEUS,
            query=in_flight_query(f'model_name="{planned.checkpoint}"'),
            threshold=f"{target:.6g}",
        )
    other: dict[str, Any] = {}
    if planned.is_disaggregated:
        of = _of_pool(planned, prefill, image)
        other = {"prefill": {"replicas": prefill.replica_count, **of}}
    document = filled(
        "kserve",
        name=planned.name,
        uri=f"hf://{planned.checkpoint}",
        checkpoint=planned.checkpoint,
        scaling=scaling,
        pool=_of_pool(planned, pool, image),
        prefill=other,
    )
    return Export(
        {"kserve.yaml": [document]},
        lacks=(*given.lacks, *no_target(planned)),
        needs=(
            "KServe with LLMInferenceService of v1alpha2, whose preset of vLLM reads "
            "VLLM_ADDITIONAL_ARGS",
            *nodes_needed(planned),
            *(("KEDA, and Prometheus that scrapes the pods",) if scales else ()),
        ),
        unverified=unverified(
            planned,
            f"the image {image}" if image else "the image of KServe's preset",
            *((f"Prometheus at {_PROMETHEUS}",) if scales else ()),
        ),
    )


def _of_pool(planned: Planned, pool: PlannedPool, image: str) -> dict[str, Any]:
    """Return the parallelism and the pods of a pool.

    Ranks on one node are flags of its one pod: KServe's own are of workers beside it.
    """
    return filled(
        "kserve_pool",
        own_image={"image": image} if image else {},
        flags=shlex.join(pool.launch.words[3:]),
        **pod_values(planned, pool, image),
    )


TARGET = Target(
    _write, image="", routers={"llm-d": ""}, otherwise="KServe's scheduler is llm-d's"
)
