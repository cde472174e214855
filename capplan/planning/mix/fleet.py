"""Pools of several kinds behind one split, simulated at any counts."""

import math
from dataclasses import dataclass, replace

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment, Pool
from capplan.deployment.split import Split
from capplan.planning.configure.deployments import one_pool
from capplan.planning.configure.launch import launch
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.evaluate.run import Run, run_of
from capplan.planning.mix.result import Kind, MixPool
from capplan.planning.money.cost import usd_per_h, usd_per_replica_h
from capplan.planning.money.quota import over_quota
from capplan.planning.size.prospects import MOST_REPLICAS
from capplan.units import format_usd

MIN_REPLICAS = 2
"""Replicas of a kind that is used: one alone is a single point of failure."""
_ADDED = 0.05
"""Share of a pool's replicas that are added at once."""


@dataclass(frozen=True, eq=False)
class MixRun:
    """A fleet that was simulated."""

    counts: tuple[int, ...]
    run: Run

    @property
    def meets(self) -> bool:
        """Whether the samples show that it meets the SLO, or show no miss."""
        return self.run.judgement.holds


class MixFleet:
    """Pools behind one split, with any counts."""

    def __init__(
        self,
        inputs: PlanInputs,
        kinds: list[Configuration],
        split: Split,
        most_usd_per_h: float,
    ) -> None:
        self._inputs, self.kinds, self.split = inputs, kinds, split
        self._most_usd_per_h = most_usd_per_h
        self._known: dict[tuple[int, ...], MixRun] = {}

    @property
    def simulated(self) -> int:
        """Fleets that were simulated."""
        return len(self._known)

    @property
    def best(self) -> MixRun | None:
        """The cheapest that meets the SLO, of equal ones with the fewest replicas."""
        able = [found for found in self._known.values() if found.meets]
        return min(
            able,
            key=lambda found: (self.usd_per_h(found.counts), sum(found.counts)),
            default=None,
        )

    def deployment(self, counts: tuple[int, ...]) -> Deployment:
        """Return the pools with so many replicas."""
        pools = tuple(
            Pool(kind, count) for kind, count in zip(self.kinds, counts, strict=True)
        )
        first = one_pool(self._inputs.settings, self.kinds[0], 1)
        return replace(first, pools=pools, split=self.split)

    def named(self, counts: tuple[int, ...]) -> str:
        """Return the counts and kinds as text."""
        pairs = zip(counts, self.kinds, strict=True)
        return " and ".join(f"{count:,} {kind}" for count, kind in pairs)

    def usd_per_h(self, counts: tuple[int, ...]) -> float:
        """Return what a fleet costs. [$/h]"""
        usd = usd_per_h(self.deployment(counts).pools)
        assert usd is not None
        return usd

    def refused(self, counts: tuple[int, ...]) -> str | None:
        """Return why a fleet is not worth simulating, or None."""
        quota = self._inputs.settings.max_nodes
        over = over_quota(quota, self.deployment(counts).pools)
        if over is not None:
            return f"a mix of {self.named(counts)} {over}"
        usd = self.usd_per_h(counts)
        if usd > self._most_usd_per_h or max(counts) > MOST_REPLICAS:
            share = self._inputs.settings.mix_gain
            return (
                f"{self.named(counts)} cost {format_usd(usd)}/h, not "
                f"{share:.0%} less than the best single type"
            )
        return None

    def at(self, counts: tuple[int, ...]) -> MixRun:
        """Return a fleet, simulated once."""
        if counts not in self._known:
            run = run_of(self._inputs, self.deployment(counts), metrics=())
            self._known[counts] = MixRun(counts, run)
        return self._known[counts]

    def misses(self, run: Run) -> tuple[np.ndarray, np.ndarray]:
        """Return the requests of each pool that count and miss, in the first sample."""
        times, names = run.simulation.table, run.simulation.class_names
        slo = self._inputs.slo
        met = np.logical_and.reduce(times.met(slo.columns(times.request_class, names)))
        counted = self._inputs.load.counted()
        edges = np.cumsum([pool.replica_count for pool in run.deployment.pools])
        pool_of = np.searchsorted(edges, times.replica, side="right")
        n = len(self.kinds)
        return (
            np.bincount(pool_of[counted], minlength=n),
            np.bincount(pool_of[counted & ~met], minlength=n),
        )

    def with_more(self, found: MixRun) -> tuple[int, ...]:
        """Return the counts with more replicas where most requests miss per $.

        Replicas that fit nodes which are paid already cost nothing.
        """
        _, missed = self.misses(found.run)
        best, most = found.counts, -1.0
        for index, count in enumerate(found.counts):
            added = count + max(1, math.ceil(_ADDED * count))
            counts = (*found.counts[:index], added, *found.counts[index + 1 :])
            usd = max(self.usd_per_h(counts) - self.usd_per_h(found.counts), 1e-6)
            if (1 + float(missed[index])) / usd > most:
                best, most = counts, (1 + float(missed[index])) / usd
        return best

    def dearest_first(self) -> list[int]:
        """Return the pools, those with the dearest replicas first."""
        usd = [usd_per_replica_h(kind) or 0.0 for kind in self.kinds]
        return sorted(range(len(usd)), key=lambda index: -usd[index])

    def fewest(self, counts: tuple[int, ...], index: int) -> tuple[int, ...]:
        """Return the counts with the fewest replicas of one pool that do."""

        def with_count(count: int) -> tuple[int, ...]:
            return (*counts[:index], count, *counts[index + 1 :])

        low, high = min(MIN_REPLICAS, counts[index]) - 1, counts[index]
        step = 1
        while high - low > 1:  # near the count first: most is found by the allocation
            middle = max(high - step, (low + high) // 2)
            if self.at(with_count(middle)).meets:
                high, step = middle, 2 * step
            else:
                low, step = middle, 1 << 30
        return with_count(high)

    def surest(self) -> MixRun | None:
        """Return the best with the samples that decide it; the next where they do not.

        More are taken where more were wanted: others are those that it has.
        """
        while (found := self.best) is not None and found.run.judgement.spent:
            deployment = self.deployment(found.counts)
            run = run_of(self._inputs, deployment, thorough=True, metrics=())
            self._known[found.counts] = found = MixRun(found.counts, run)
            if found.meets:
                break
        return found

    def pools(self, found: MixRun, allocated: tuple[int, ...]) -> tuple[MixPool, ...]:
        """Return what is told of the pools of a fleet."""
        run = found.run
        counted, missed = self.misses(run)
        makespan_s = run.simulation.totals.makespan_s
        return tuple(
            MixPool(
                **vars(Kind.of(pool.configuration)),
                replica_count=pool.replica_count,
                allocated_replica_count=allocated[index],
                gpu_count=pool.gpu_count,
                share_of_requests=float(counted[index] / max(counted.sum(), 1)),
                slo_attainment=float(1 - missed[index] / counted[index])
                if counted[index]
                else math.nan,
                busy_share=run.simulation.pools[index].busy_s
                / (makespan_s * pool.replica_count),
                launch=launch(pool.configuration, self._inputs.settings),
            )
            for index, pool in enumerate(run.deployment.pools)
        )
