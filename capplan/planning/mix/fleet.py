"""Pools of several kinds behind one split, simulated at any counts."""

import math
from dataclasses import replace

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Counts, Deployment, Pool, with_count
from capplan.deployment.split import Split
from capplan.planning.configure.deployments import one_pool
from capplan.planning.configure.launch import launch
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.evaluate.run import Run, run_of
from capplan.planning.mix.result import Kind, MixPool
from capplan.planning.money.cost import usd_per_h, usd_per_replica_h
from capplan.planning.money.quota import over_quota
from capplan.planning.size.counts import Search
from capplan.planning.size.prospects import MOST_REPLICAS
from capplan.units import format_usd

MIN_REPLICAS = 2
"""Replicas of a kind that is used: one alone is a single point of failure."""
_ADDED = 0.05
"""Share of a pool's replicas that are added at once."""


class MixFleet(Search):
    """Pools behind one split, with any counts."""

    def __init__(
        self,
        inputs: PlanInputs,
        kinds: list[Configuration],
        split: Split,
        most_usd_per_h: float,
    ) -> None:
        super().__init__(self._run_with)
        self._inputs, self.kinds, self.split = inputs, kinds, split
        self._most_usd_per_h = most_usd_per_h

    def _run_with(self, counts: Counts, *, thorough: bool = False) -> Run:
        deployment = self.deployment(counts)
        return run_of(self._inputs, deployment, thorough=thorough, metrics=())

    @property
    def best(self) -> Run | None:
        """The cheapest that meets the SLO, of equal ones with the fewest replicas."""
        return min(
            (run for run in self.runs.values() if run.judgement.holds),
            key=lambda run: (usd_of(run.deployment), run.replica_count),
            default=None,
        )

    def deployment(self, counts: Counts) -> Deployment:
        """Return the pools with so many replicas."""
        pools = tuple(
            Pool(kind, count) for kind, count in zip(self.kinds, counts, strict=True)
        )
        first = one_pool(self._inputs.settings, self.kinds[0], 1)
        return replace(first, pools=pools, split=self.split)

    def named(self, counts: Counts) -> str:
        """Return the counts and kinds as text."""
        pairs = zip(counts, self.kinds, strict=True)
        return " and ".join(f"{count:,} {kind}" for count, kind in pairs)

    def refused(self, counts: Counts) -> str | None:
        """Return why a fleet is not worth simulating, or None."""
        quota = self._inputs.settings.max_nodes
        over = over_quota(quota, self.deployment(counts).pools)
        if over is not None:
            return f"a mix of {self.named(counts)} {over}"
        usd = usd_of(self.deployment(counts))
        if usd > self._most_usd_per_h or max(counts) > MOST_REPLICAS:
            share = self._inputs.settings.mix_gain
            return (
                f"{self.named(counts)} cost {format_usd(usd)}/h, not "
                f"{100 * share:.0f} % less than the best single type"
            )
        return None

    def missed(self, run: Run) -> tuple[np.ndarray, np.ndarray]:
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

    def with_more(self, counts: Counts) -> Counts:
        """Return counts with more replicas where most requests miss per $.

        Replicas that fit nodes which are paid already cost nothing.
        """
        if counts in self.full:
            raise self.full[counts]
        _, missed = self.missed(self.runs[counts])
        usd_per_h = usd_of(self.deployment(counts))
        best, most = counts, -1.0
        for index, count in enumerate(counts):
            more = with_count(counts, index, count + max(1, math.ceil(_ADDED * count)))
            usd = max(usd_of(self.deployment(more)) - usd_per_h, 1e-6)
            if (1 + float(missed[index])) / usd > most:
                best, most = more, (1 + float(missed[index])) / usd
        return best

    def dearest_first(self) -> list[int]:
        """Return the pools, those with the dearest replicas first."""
        usd = [usd_per_replica_h(kind) or 0.0 for kind in self.kinds]
        return sorted(range(len(usd)), key=lambda index: -usd[index])

    def fewest(self, counts: Counts, index: int) -> Counts:
        """Return the counts with the fewest replicas of one pool that do."""
        low, high = min(MIN_REPLICAS, counts[index]) - 1, counts[index]
        step = 1
        while high - low > 1:  # near the count first: most is found by the allocation
            middle = max(high - step, (low + high) // 2)
            if self.meets(with_count(counts, index, middle)):
                high, step = middle, 2 * step
            else:
                low, step = middle, 1 << 30
        return with_count(counts, index, high)

    def surest(self) -> Run | None:
        """Return the best with the samples that decide it; the next where they do not.

        More are taken where more were wanted: others are those that it has.
        """
        while (found := self.best) is not None and found.judgement.spent:
            counts = found.deployment.counts
            self.runs[counts] = found = self._run_with(counts, thorough=True)
            if found.judgement.holds:
                break
        return found

    def pools(self, run: Run, allocated: Counts) -> tuple[MixPool, ...]:
        """Return what is told of the pools of a fleet."""
        counted, missed = self.missed(run)
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


def usd_of(deployment: Deployment) -> float:
    """Return what a deployment costs. [$/h]"""
    usd = usd_per_h(deployment.pools)
    assert usd is not None
    return usd
