"""KServe: an LLMInferenceService, with a prefill pool where there is one."""

import shlex
from typing import Any

from capplan.report.exports.export import Export, Given, Target, nodes_needed
from capplan.report.exports.planned import Planned, PlannedPool
from capplan.report.exports.pods import (
    gpu_resources,
    grace_s,
    lifecycle,
    nixl_host,
    node_selector,
    startup_probe,
    unverified,
)
from capplan.report.exports.scaling import in_flight_query, no_target

_PROMETHEUS = "http://prometheus-operated.monitoring.svc:9090"


def _write(given: Given) -> Export:
    """Return the service; of one pool KEDA scales it by the requests in flight."""
    planned, image, pool = given.planned, given.image, given.planned.pool
    target = planned.target_in_flight
    spec: dict[str, Any] = {
        "model": {"uri": f"hf://{planned.checkpoint}", "name": planned.checkpoint}
    }
    if target is None:
        spec["replicas"] = pool.replica_count
    else:
        spec["scaling"] = {
            "minReplicas": pool.replica_count,
            "maxReplicas": planned.most_replicas,
            "keda": {"triggers": [_trigger(planned, target)]},
        }
    spec |= _of_pool(planned, pool, image)
    spec["router"] = {"route": {}, "gateway": {}, "scheduler": {}}
    if planned.is_disaggregated:
        prefill = planned.pools[0]
        of = _of_pool(planned, prefill, image)
        spec["prefill"] = {"replicas": prefill.replica_count, **of}
    document = {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": planned.name},
        "spec": spec,
    }
    scales = target is not None
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


def _trigger(planned: Planned, target: float) -> dict[str, Any]:
    pods = in_flight_query(f'model_name="{planned.checkpoint}"')
    return {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": _PROMETHEUS,
            "query": pods,
            "threshold": f"{target:.6g}",
        },
    }


def _of_pool(planned: Planned, pool: PlannedPool, image: str) -> dict[str, Any]:
    """Return the parallelism and the pods of a pool.

    Ranks on one node are flags of its one pod: KServe's own are of workers beside it.
    """
    flags = shlex.join(pool.launch.words[3:])
    main = {
        "name": "main",
        **({"image": image} if image else {}),
        "env": [
            {"name": "VLLM_ADDITIONAL_ARGS", "value": flags},
            *(nixl_host() if pool.role else ()),
        ],
        "resources": gpu_resources(pool.gpus),
        "lifecycle": lifecycle(planned),
        "startupProbe": startup_probe(pool),
    }
    return {
        "parallelism": {"tensor": pool.tp},
        "template": {
            "terminationGracePeriodSeconds": grace_s(planned),
            **node_selector(pool),
            "containers": [main],
        },
    }


TARGET = Target(
    _write,
    image="",
    routers={"llm-d": ""},
    otherwise="KServe's scheduler is llm-d's",
)
