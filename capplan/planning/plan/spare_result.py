"""The spare nodes of a plan, frozen."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NodesGone:
    """What the fleet attains while nodes are gone, the spares in the place of some."""

    nodes_gone: int
    replica_count: int  # that serve
    slo_attainment: float  # of the busiest hour; of all at a rate that stays


@dataclass(frozen=True)
class SpareNodes:
    """How many spare nodes keep the planned ones up, and what they are worth."""

    availability: float  # share of the time in which enough nodes are up
    repair_h: float  # until a failed node serves again [h]
    failures_per_node_day: float | None = None  # None where nodes are not known
    node_count: int | None = None  # planned, without spares
    spare_nodes: int | None = None
    # at the low and the high published rate of failures; None where it is given
    spare_nodes_range: tuple[int, int] | None = None
    replicas_per_node: int | None = None
    nodes_per_replica: int = 1  # a replica is down while any of its nodes is away
    usd_per_month: float | None = None  # of the spares [$]
    usd_per_node_month: float | None = None  # of one node more [$]
    # in which the requests arrive that tell; None: all, at a rate that stays [s]
    busiest_s: float | None = None
    # nodes are gone during all requests: such replicas are not simulated as they die
    is_gone_throughout: bool = False
    # none, then one more than the spares, and two more
    gone: tuple[NodesGone, ...] = ()
    reason: str = ""  # why no number is known
    untested: str = ""  # why nothing was taken away
