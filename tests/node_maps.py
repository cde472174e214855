"""What a node map promises."""

from capplan.fleet.node_map import NodeMap


def survives(found: NodeMap, group: int, count: int) -> bool:
    """Return whether replicas of a group are whole when any one node fails."""
    hit = [
        {part.replica for part in node if part.group == group} for node in found.nodes
    ]
    return all(len(replicas) < count for replicas in hit)
