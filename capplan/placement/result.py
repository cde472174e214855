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

    Parameters
    ----------
    status
        Optimal when the bound equals the count, feasible with a gap; infeasible when
        no placement exists within ``max_replicas``; unknown when none was found.
    assignment
        Replica of each request, shape (n,); None without a placement.
    replica_count
        Replicas used; None without a placement.
    lower_bound
        Lower bound on the replicas of any placement.
    bound_source
        How the bound was proven.
    found_by
        Heuristic or solver that found the placement.
    solver
        Solver or heuristic chosen.
    scale
        Integer units of the model, and whether they are exact.
    runtime_s
        Wall time. [s]
    conflict
        When infeasible, the constraints that cannot hold together.
    heuristic_counts
        Replicas of each heuristic that ran.
    """

    status: Status
    assignment: np.ndarray | None
    replica_count: int | None
    lower_bound: int
    bound_source: str
    found_by: str
    solver: str
    scale: str
    runtime_s: float
    conflict: tuple[str, ...] = ()
    heuristic_counts: dict[str, int] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """Relative gap between replica count and lower bound."""
        if not self.replica_count:
            return float("nan")
        return (self.replica_count - self.lower_bound) / self.replica_count
