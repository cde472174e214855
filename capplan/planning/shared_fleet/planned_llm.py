"""An LLM as its plan has it: replicas, what they run on, and when they are needed."""

from dataclasses import dataclass

from capplan.fleet.price import Price
from capplan.planning.load.demand_curve import DemandCurve


@dataclass(frozen=True)
class PlannedPool:
    """Replicas that do the same."""

    role: str  # "prefill" or "decode"; empty where replicas do both
    gpu: str
    tp: int  # tensor-parallel degree of a rank
    replica_count: int
    price: Price | None  # None where none is known
    gpus: int  # of a replica, of all its ranks


@dataclass(frozen=True, eq=False)
class PlannedLlm:
    """An LLM as its plan has it."""

    name: str  # unique among those that share nodes
    source: str  # path of its plan
    pools: tuple[PlannedPool, ...]
    curve: DemandCurve | None = None  # None where it needs as many at all hours
    why_constant: str = ""  # where there is none

    @property
    def replica_count(self) -> int:
        """Replicas of all its pools."""
        return sum(pool.replica_count for pool in self.pools)
