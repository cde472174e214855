"""What autoscalers cost and attain beside fleets of a fixed size."""

from dataclasses import dataclass

import numpy as np

from capplan.bounds.replica_time import ReplicaTime
from capplan.deployment.pools import Deployment
from capplan.planning.autoscale.cases import Outcome
from capplan.planning.autoscale.losses import Loss
from capplan.planning.autoscale.settings import PERFECT, AutoscaleSettings
from capplan.planning.evaluate.replica_load import ReplicaLoad
from capplan.planning.shown import Shown
from capplan.workload.slo import Slo

FIXED = "fixed"
"""Name of the fleet without an autoscaler."""
_HOUR_S = 3600.0


@dataclass(frozen=True, eq=False)
class PolicyResult:
    """One policy, or the fixed fleet, on the requests."""

    name: str
    policy: str  # with the settings it ran with; empty for the fixed fleet
    outcome: Outcome
    # smallest fixed fleet that attains as much, in all and in the worst hour; None
    # where none does
    fixed: Outcome | None = None
    # the longest cold start with which it pays, None where none does; and one with
    # which it does not, None where all that were looked at do [s]
    break_even_s: tuple[float | None, float | None] | None = None

    @property
    def meets(self) -> bool:
        """Whether it attains the target."""
        return self.outcome.meets

    @property
    def of_static(self) -> float | None:
        """Its bill, else its GPU-hours, over those of the fixed fleet as good."""
        return None if self.fixed is None else self.outcome.share_of(self.fixed)

    @property
    def pays(self) -> bool:
        """Whether it attains the target for less than a fixed fleet."""
        fixed = self.fixed
        return self.meets and fixed is not None and self.outcome.costs_less_than(fixed)


@dataclass(frozen=True, eq=False, repr=False)
class Autoscaled(Shown):
    """Autoscalers and fixed fleets on the same requests."""

    settings: AutoscaleSettings
    deployment: Deployment  # as it starts
    slo: Slo
    trace_source: str
    arrivals_since_s: np.ndarray  # of all requests, since the first [s]
    class_names: tuple[str, ...]
    cold_start_s: float
    reason: str = ""  # why no fixed fleet attains the target
    fixed: PolicyResult | None = None  # the smallest that attains the target
    sustained: ReplicaLoad | None = None  # what one replica does; None: not asked for
    policies: tuple[PolicyResult, ...] = ()
    bound: ReplicaTime | None = None
    losses: tuple[Loss, ...] = ()
    interrupted: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def fleets(self) -> list[PolicyResult]:
        """The fixed fleet and the policies, as far as they are known."""
        return [row for row in (self.fixed, *self.policies) if row is not None]

    @property
    def lower_bound_gpu_hours(self) -> float | None:
        """No fleet attains the target with fewer, whoever scales it. [GPU h]"""
        if self.bound is None:
            return None
        return self.bound.replica_s / _HOUR_S * self.deployment.pool.configuration.gpus

    @property
    def best(self) -> PolicyResult | None:
        """The cheapest that attains the target, perfect aside; of equals the fixed."""
        policy, fixed = (
            row if row is not None and row.meets else None
            for row in (self.best_policy, self.fixed)
        )
        if policy is None or fixed is None:
            return policy or fixed
        return policy if policy.outcome.costs_less_than(fixed.outcome) else fixed

    @property
    def best_policy(self) -> PolicyResult | None:
        """The cheapest policy that attains the target, perfect aside; or the first."""
        able = [row for row in self.policies if row.meets and row.name != PERFECT]
        first = next(iter(self.policies), None)
        return min(
            able,
            key=lambda row: (
                row.outcome.usd_per_month or 0.0,
                row.outcome.gpu_hours_paid,
            ),
            default=first,
        )
