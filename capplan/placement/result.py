"""The result of a placement: assignment, replica count, lower bound and status."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np


class Status(StrEnum):
    """How good the replica count of a placement is."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class Placement:
    """Placement of one heartbeat.

    It is optimal when the bound equals the count, feasible with a gap; infeasible when
    no placement exists within ``max_replicas``; unknown when none was found.
    """

    status: Status
    assignment: np.ndarray | None  # replica of each request, shape (n,)
    replica_count: int | None
    lower_bound: int  # on the replicas of any placement
    bound_source: str  # how the bound was proven
    found_by: str  # heuristic or solver
    solver: str  # solver or heuristic chosen
    scale: str  # integer units of the problem, and whether they are exact
    runtime_s: float
    conflict: tuple[str, ...] = ()  # constraints that cannot hold together
    heuristic_counts: dict[str, int] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Relative gap between replica count and lower bound."""
        if not self.replica_count:
            return float("nan")
        return (self.replica_count - self.lower_bound) / self.replica_count
