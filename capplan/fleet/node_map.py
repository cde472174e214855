"""Which replica stands on which node, so that no failed node takes all of one kind."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from capplan.fleet.nodes import nodes_for


@dataclass(frozen=True)
class Group:
    """Replicas that stand in for one another: of one LLM, and of one role."""

    gpus: int  # of a replica
    count: int  # of replicas


@dataclass(frozen=True)
class Part:
    """GPUs of a node that a replica has."""

    group: int  # its index
    replica: int  # which of the group, from 0
    gpus: int


@dataclass(frozen=True)
class NodeMap:
    """The replicas on each node."""

    gpus_per_node: int
    nodes: tuple[tuple[Part, ...], ...]
    # nodes that hold them where all replicas of a group may share one
    nodes_without_rule: int

    @property
    def stranded_gpus(self) -> int:
        """GPUs of these nodes that no replica has."""
        used = sum(part.gpus for node in self.nodes for part in node)
        return len(self.nodes) * self.gpus_per_node - used


def node_map(groups: Sequence[Group], gpus_per_node: int) -> NodeMap:
    """Return replicas on the fewest nodes with two failure domains for each group.

    A group of two replicas or more has no node whose failure takes all of them. Where
    the GPUs of replicas divide one another and those of a node, as powers of two do, no
    fewer nodes are enough; of other sizes it is a packing, never with more nodes than
    the groups take apart. The largest replicas come first, each onto the node with the
    most room, the first two of a group onto two nodes: so the room for smaller ones is
    as even as it can be.
    """
    gpus = sum(group.gpus * group.count for group in groups)
    fewest = math.ceil(gpus / gpus_per_node)
    if any(group.count > 1 for group in groups):
        fewest = max(fewest, 2)
    without, _ = nodes_for([(g.gpus, g.count) for g in groups], gpus_per_node)
    apart: tuple[tuple[Part, ...], ...] | None = None
    is_alone = sum(group.count > 0 for group in groups) < 2
    count = fewest
    while apart is None or count < len(apart):
        for tight in (False, True):
            found = _packed(groups, gpus_per_node, count, tight=tight)
            if found is not None:
                return NodeMap(gpus_per_node, found, without)
        count += 1
        if apart is None and not is_alone:  # needed as a limit, and seldom
            apart = _apart(groups, gpus_per_node)
    return NodeMap(gpus_per_node, apart, without)


def _apart(groups: Sequence[Group], gpus_per_node: int) -> tuple[tuple[Part, ...], ...]:
    """Return each group on nodes of its own."""
    nodes: list[tuple[Part, ...]] = []
    for index, group in enumerate(groups):
        alone = node_map([group], gpus_per_node).nodes
        nodes += [
            tuple(Part(index, part.replica, part.gpus) for part in node)
            for node in alone
        ]
    return tuple(nodes)


def _packed(
    groups: Sequence[Group], gpus_per_node: int, count: int, *, tight: bool = False
) -> tuple[tuple[Part, ...], ...] | None:
    """Return replicas on so many nodes, ``tight`` or evenly; None without room."""
    nodes: list[list[Part]] = [[] for _ in range(count)]
    taken = 0  # nodes that one replica has for itself
    for index, group in enumerate(groups):
        for replica in range(group.count):
            for _ in range(group.gpus // gpus_per_node):
                if taken == count:
                    return None
                nodes[taken].append(Part(index, replica, gpus_per_node))
                taken += 1
    room = [(-gpus_per_node, node) for node in range(taken, count)]
    sizes = {group.gpus % gpus_per_node for group in groups if group.count} - {0}
    for size in sorted(sizes, reverse=True):
        alike = [
            (index, group.count)
            for index, group in enumerate(groups)
            if group.gpus % gpus_per_node == size
        ]
        firsts = [(i, r) for i, n in alike if n > 1 for r in range(2)]
        others = [(i, r) for i, n in alike for r in range(2 if n > 1 else 0, n)]
        if not _seeded(firsts, size, room, nodes):
            return None
        placed = _tightly if tight else _evenly
        if not placed(others, size, room, nodes):
            return None
    return tuple(map(tuple, nodes))


_Room = list[tuple[int, int]]
"""A heap of nodes by their free GPUs, negative, so that the most come first."""


def _seeded(
    firsts: list[tuple[int, int]], size: int, room: _Room, nodes: list[list[Part]]
) -> bool:
    """Place the first two replicas of each group on the two nodes with most room."""
    for index, replica in firsts[::2]:
        if len(room) < 2:
            return False
        one, other = heapq.heappop(room), heapq.heappop(room)
        for which, (free, node) in ((replica, one), (replica + 1, other)):
            if -free < size:
                return False
            nodes[node].append(Part(index, which, size))
            heapq.heappush(room, (free + size, node))
    return True


def _evenly(
    others: list[tuple[int, int]], size: int, room: _Room, nodes: list[list[Part]]
) -> bool:
    """Place replicas, each on the node with the most room."""
    for index, replica in others:
        if not room or -room[0][0] < size:
            return False
        free, node = room[0]
        nodes[node].append(Part(index, replica, size))
        heapq.heapreplace(room, (free + size, node))
    return True


def _tightly(
    others: list[tuple[int, int]], size: int, room: _Room, nodes: list[list[Part]]
) -> bool:
    """Place replicas, each on the node that it leaves the least room."""
    for index, replica in others:
        fitting = [place for place in room if -place[0] >= size]
        if not fitting:
            return False
        free, node = max(fitting)
        nodes[node].append(Part(index, replica, size))
        room.remove((free, node))
        room.append((free + size, node))
    heapq.heapify(room)
    return True
