"""Nodes that are rented whole: their GPUs and the links between these."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from capplan.csv_file import read_rows
from capplan.errors import InputError

_NODES = Path(__file__).parent / "data/nodes.csv"


@dataclass(frozen=True)
class Node:
    """A machine that is rented whole, as its provider names it."""

    name: str
    provider: str
    gpu: str  # name in the catalog
    gpus: int
    # GPUs that NVLink or Infinity Fabric joins, 1 without; None where it is not known
    nvlink_domain_gpus: int | None = None
    vcpus: int | None = None
    memory_gib: float | None = None  # of the host
    host_power_w: float | None = None  # most that it draws with its GPUs
    as_of: str = ""  # date of the source
    source: str = ""

    def holds(self, tp: int) -> bool:
        """Return whether it holds a replica of this TP degree."""
        return holds(self.gpus, self.nvlink_domain_gpus, tp)


def holds(gpus: int | None, nvlink_domain_gpus: int | None, tp: int) -> bool:
    """Return whether a node is known to hold a replica, and may join its GPUs.

    Where no two GPUs are joined, replicas use PCIe.
    """
    joined = nvlink_domain_gpus in (None, 1) or nvlink_domain_gpus >= tp
    return (gpus or 0) >= tp and joined


@cache
def nodes() -> tuple[Node, ...]:
    """Return the nodes of the catalog."""
    rows = [{"name": row["node"], **row} for _, row in read_rows(_NODES)[1]]
    given = [{name: cell for name, cell in row.items() if cell} for row in rows]
    return TypeAdapter(tuple[Node, ...]).validate_python(given)


def find_node(name: str, provider: str = "") -> Node | None:
    """Return the node of a name, of a provider where one is given; case is ignored.

    None where the catalog has none. A name that several providers use needs one.
    """
    found = [
        node
        for node in nodes()
        if node.name.lower() == name.lower()
        if not provider or node.provider.lower() == provider.lower()
    ]
    if len(found) > 1:
        owners = ", ".join(node.provider for node in found)
        raise InputError(f"node {name!r} is offered by {owners}; name the provider")
    return found[0] if found else None


def least_memory_gib(gpu: str) -> float | None:
    """Return the host memory for each GPU of the nodes that have least of it. [GiB]

    None where that of no node with the GPU is known.
    """
    known = [
        node.memory_gib / node.gpus
        for node in nodes()
        if node.gpu == gpu and node.memory_gib is not None
    ]
    return min(known, default=None)


def nodes_for(
    replicas: Iterable[tuple[int, int]], gpus_per_node: int
) -> tuple[int, int]:
    """Return the whole nodes that replicas take, and the GPUs left over in them.

    ``replicas`` are pairs of GPUs of a replica and number of such replicas, placed
    largest first. A replica larger than a node takes whole nodes of its own, of which
    smaller ones fill the rest.
    """
    nodes, used = 0, 0
    free: dict[int, int] = {}  # nodes by the GPUs that are free in them
    for size, count in sorted(replicas, reverse=True):
        used += size * count
        whole, rest = divmod(size, gpus_per_node)
        nodes += whole * count
        while rest and count > 0:
            able = [room for room, left in free.items() if left and room >= rest]
            room = min(able, default=gpus_per_node)
            # As many as fit each node of this room, node by node at once.
            fit = min(room // rest, count)
            taken = count // fit
            if able:
                taken = min(taken, free[room])
                free[room] -= taken
            else:
                nodes += taken
            left_over = room - fit * rest
            free[left_over] = free.get(left_over, 0) + taken
            count -= fit * taken
    return nodes, nodes * gpus_per_node - used
