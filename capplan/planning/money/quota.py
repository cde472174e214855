"""How many nodes can be had, and which plans need more."""

from collections.abc import Iterable, Mapping, Sequence

from capplan.deployment.pools import Pool
from capplan.errors import InputError
from capplan.planning.money.cost import alike, paid_nodes


def check_quota(max_nodes: Mapping[str, int], gpus: Iterable[str]) -> None:
    """Refuse quotas of GPUs that a plan does not look at."""
    known = sorted(set(gpus))
    for name in max_nodes:
        if name not in known:
            raise InputError(
                f"--max-nodes {name}: not among the GPUs of this plan, "
                f"{', '.join(known)}"
            )


def over_quota(max_nodes: Mapping[str, int], pools: Sequence[Pool]) -> str | None:
    """Return which nodes, or GPUs sold singly, are more than can be had; or None."""
    needed: dict[str, int] = {}
    units: dict[str, str] = {}
    for pool in pools:
        if pool.configuration.price is None:
            gpu = pool.configuration.gpu
            needed[gpu] = needed.get(gpu, 0) + pool.gpu_count
            units[gpu] = "GPUs"
    for price, group in alike(pools):
        gpu = group[0].configuration.gpu
        needed[gpu] = needed.get(gpu, 0) + int(paid_nodes(price, group).units)
        units[gpu] = "GPUs" if price.gpus_per_node is None else "nodes"
    for gpu, count in needed.items():
        most = max_nodes.get(gpu)
        if most is not None and count > most:
            return f"needs {count:,} {units[gpu]} of {gpu}; --max-nodes allows {most:,}"
    return None
