"""Pools of replicas behind a router, before any count of them is simulated."""

from dataclasses import dataclass, replace
from typing import Any

from capplan.deployment.pools import DECODE, PREFILL, Counts, Deployment, Pool
from capplan.planning.configure.deployments import of_counts
from capplan.planning.evaluate.candidate import Candidate, PoolPlan
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.evaluate.run import Run, run_of
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.counts import Price
from capplan.planning.size.prospects import Prospect, price_of_pools


@dataclass(frozen=True, eq=False)
class Shape:
    """One pool, or replicas of one GPU type for prompts and for decoding."""

    pools: tuple[Prospect, ...]
    settings: PlanSettings
    router: str
    rivals: tuple[Price, ...] = ()  # of other shapes that meet the SLO

    def __str__(self) -> str:
        return str(self.candidate(""))

    @property
    def at_least(self) -> Counts:
        """Fewest replicas of each pool, by its bound and its utilisation."""
        return tuple(pool.at_least for pool in self.pools)

    def deployment(self, counts: Counts) -> Deployment:
        """Return so many replicas of each pool behind the router."""
        of = [pool.configuration for pool in self.pools]
        return of_counts(self.settings, of, counts, self.router)

    def run(self, inputs: PlanInputs, counts: Counts, **how: Any) -> Run:
        """Return so many replicas simulated and judged; see :func:`run_of`."""
        return run_of(inputs, self.deployment(counts), **how)

    def price_of(self, counts: Counts) -> Price:
        """Return $/h, infinite without a price, and GPUs of so many replicas."""
        of = (pool.configuration for pool in self.pools)
        return price_of_pools(*map(Pool, of, counts))

    def competes(self, counts: Counts) -> bool:
        """Return whether replicas cost less, or are fewer GPUs, than all rivals."""
        usd, gpu_count = self.price_of(counts)
        return all(usd < other for other, _ in self.rivals) or all(
            gpu_count < other for _, other in self.rivals
        )

    def candidate(self, status: str) -> Candidate:
        """Return its candidate, with the bounds of its pools and without a run."""
        if len(self.pools) == 1:
            return self.pools[0].candidate(status)
        pools = tuple(
            PoolPlan(role, each.configuration, each.bound, each.sample)
            for role, each in zip((PREFILL, DECODE), self.pools, strict=True)
        )
        candidate = Candidate.of(self.pools[-1].configuration, status)
        return replace(candidate, pools=pools)
