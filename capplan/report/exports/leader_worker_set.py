"""LeaderWorkerSet: replicas that may span nodes."""

from typing import Any

from capplan.errors import InputError
from capplan.planning.configure.launch import Launch
from capplan.report.exports.export import Export, Given, Target, node_needs
from capplan.report.exports.kubernetes import RANDOM, behind_service
from capplan.report.exports.pods import IMAGE, pod_values, words_of
from capplan.report.exports.template import filled

_LEADER = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
"""Label of the pod that answers requests."""
_FOUND = ("$(LWS_GROUP_SIZE)", "$(LWS_WORKER_INDEX)", "$(LWS_LEADER_ADDRESS)")
"""What the set tells a pod of its group: nodes, its place, the address of the first."""


def _write(given: Given) -> Export:
    """Return a group of pods for each replica, one pod a node.

    The nodes of a replica find one another by what the set puts into their environment:
    vLLM's ``--nnodes``, ``--node-rank`` and ``--master-addr``.
    """
    planned, image, pool = given.planned, given.image, given.planned.pool
    name, size = planned.name, pool.nodes_per_replica
    if pool.gpus % size:
        raise InputError(
            f"{planned.path}: {pool.gpus} GPUs on {size} nodes: vLLM takes as many "
            "GPUs on each; expected a multiple of it"
        )
    launch = pool.launch
    if size > 1:
        launch = launch.across(*_FOUND)
    labels = {"app.kubernetes.io/name": name}
    values = pod_values(planned, pool, image, "http")
    values["gpus"] = str(pool.gpus // size)

    def template(kind: str, command: Launch) -> dict[str, Any]:
        main = filled(kind, **values, **words_of(command))
        pod = filled("pod", main=main, **values)
        return {"metadata": {"labels": labels}, "spec": pod}

    leader = template("served", launch)
    templates = {"workerTemplate": leader}
    if size > 1:
        silent = template("container", Launch((*launch.words, "--headless")))
        templates = {"leaderTemplate": leader, "workerTemplate": silent}
    workload = filled(
        "leader_worker_set", name=name, size=size, templates=templates, **values
    )
    before = filled("service", name=f"{name}-http", pods={**labels, **_LEADER})
    needs = ("the controller of LeaderWorkerSet", node_needs(pool))
    return behind_service(given, "lws.yaml", workload, before, needs)


TARGET = Target(_write, image=IMAGE, has_proxy=False, has_nodes=True, otherwise=RANDOM)
