"""LeaderWorkerSet: replicas that may span nodes."""

from capplan.errors import InputError
from capplan.planning.configure.launch import Launch
from capplan.report.exports.export import Export, Given, Target, node_needs
from capplan.report.exports.kubernetes import RANDOM, behind_service, service
from capplan.report.exports.pods import IMAGE, container, pod, served

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
    per_node = pool.gpus // size
    leader = served(container(planned, launch, image, per_node), pool)
    silent = Launch((*launch.words, "--headless"))
    worker = container(planned, silent, image, per_node)
    labels = {"app.kubernetes.io/name": name}
    template = {"metadata": {"labels": labels}, "spec": pod(planned, pool, leader)}
    groups = {"size": size, "restartPolicy": "RecreateGroupOnPodRestart"}
    if size > 1:
        groups["leaderTemplate"] = template
        groups["workerTemplate"] = {
            "metadata": {"labels": labels},
            "spec": pod(planned, pool, worker),
        }
    else:
        groups["workerTemplate"] = template
    workload = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {"replicas": pool.replica_count, "leaderWorkerTemplate": groups},
    }
    before = service(f"{name}-http", {**labels, **_LEADER})
    needs = ("the controller of LeaderWorkerSet", node_needs(pool))
    return behind_service(given, "lws.yaml", workload, before, needs)


TARGET = Target(_write, image=IMAGE, has_proxy=False, has_nodes=True, otherwise=RANDOM)
