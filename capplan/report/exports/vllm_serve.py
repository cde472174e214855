"""The commands of vLLM, as a shell script."""

import shlex

from capplan.report.exports.export import Export, Given, Target

_NIXL = (
    "VLLM_NIXL_SIDE_CHANNEL_HOST and VLLM_NIXL_SIDE_CHANNEL_PORT in the environment of "
    "each replica: an address that the others reach"
)


def _write(given: Given) -> Export:
    """Return a script that starts one replica; of two pools, that of its argument."""
    planned = given.planned
    lines = {pool.role: shlex.join(pool.launch.words) for pool in planned.pools}
    lacks = []
    for pool in planned.pools:
        if pool.nodes_per_replica > 1:
            lacks.append(
                f"a replica of {pool.gpus} GPUs on {pool.nodes_per_replica} nodes: add "
                f"--nnodes {pool.nodes_per_replica} --node-rank RANK --master-addr "
                "ADDRESS on each, and --headless on all but the first"
            )
    if planned.is_disaggregated:
        cases = "".join(f"{role}) exec {line} ;;\n" for role, line in lines.items())
        usage = f'*) echo "usage: $0 {"|".join(lines)}" >&2; exit 2 ;;\n'
        body = f'case "$1" in\n{cases}{usage}esac\n'
    else:
        body = "".join(f"exec {line}\n" for line in lines.values())
    counts = " and ".join(
        f"{pool.replica_count} {pool.role}".strip() for pool in planned.pools
    )
    lacks.append(
        f"the count of replicas: start {counts}, behind a router ({planned.router})"
    )
    needs = [
        f"{pool.gpus} {pool.gpu} for a {f'{pool.role} replica'.strip()}"
        for pool in planned.pools
    ]
    return Export(
        {"vllm.sh": f"#!/bin/sh\n{body}"},
        lacks=tuple(lacks),
        needs=(*needs, *((_NIXL,) if planned.is_disaggregated else ())),
    )


TARGET = Target(_write, has_nodes=True, is_local=True)
