"""The cheapest mix of replicas of several kinds, each request sent by its size.

An allocation (:mod:`capplan.placement.mix`) of what each kind sustains of each size is
where the search begins. It is made from bands measured alone, and batches of several
bands sustain more or less than their sum: so its pools are simulated together, and
replicas are added and taken away until the SLO is met by no more than it takes.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Counts
from capplan.deployment.split import Split, bands_of
from capplan.errors import warn
from capplan.placement.mix import allocate_mix
from capplan.planning.configure.excluded import Excluded
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.inputs import PlanInputs, Progress
from capplan.planning.evaluate.known_runs import KnownRuns
from capplan.planning.evaluate.run import Run
from capplan.planning.mix.allocation import (
    SLICES,
    problem_of,
    proposal_of,
    unusable,
    with_allocation,
)
from capplan.planning.mix.capacity import capacities, served
from capplan.planning.mix.fleet import MIN_REPLICAS, MixFleet, usd_of
from capplan.planning.mix.pairs import (
    Division,
    Proposal,
    Serve,
    Served,
    promising_pairs,
    shifted,
)
from capplan.planning.mix.result import Kind, KindCapacity, Mix, MixBand
from capplan.planning.money.cost import usd_per_replica_h
from capplan.planning.prove.mix_bound import bound_of_mix
from capplan.planning.size.prospects import MOST_REPLICAS, price_of
from capplan.workload.slo import base_classes

BANDS = ((6, 4), (6, 2), (4, 2), (3, 1), (1, 1))
"""Bands of a class by the prompt, and each of these by the predicted answer: the first
of which there are not too many."""
MOST_BANDS = 48
LEAST_REQUESTS = 200
"""Requests of the trace in a band, at least."""
_SOLVER_S = 10.0
_STRETCHES = (1.0, 0.9, 0.8, 0.7, 1.06, 1.12, 1.2, 1.3)
"""Factors on the rates that are allocated: less first, more until a mix is found."""
_FLEET = (4, 32)
"""Replicas on which a size is measured, those of the best single type: within these."""
_DIVISIONS = 16
"""Ways to divide the sizes between two kinds that are simulated, the cheapest."""
_CENT = 0.01
_HOPELESS = 4
"""Times the allocated replicas that are tried, at most."""
_KEPT_BYTES = 2**28
"""Memory of simulations of pools that are kept, at most. [bytes]"""


def mix_of(
    inputs: PlanInputs,
    tried: list[Configuration | Excluded],
    candidates: Sequence[Candidate],
    bests: tuple[Candidate | None, Candidate | None],
    progress: Progress,
) -> Mix:
    """Return the cheapest mix that was found, and whether it is offered.

    ``bests`` are the best candidate without doubts and the best of those in doubt.

    Kinds in doubt, whose latency or price may be far off, are looked at where those
    without doubts have none to offer; then it says so.
    """
    gain = inputs.settings.mix_gain
    kinds = _kinds(tried, candidates)
    sure = [kind for kind in kinds if not kind.is_estimated]
    if len(kinds) < 2:
        return Mix(
            False, "fewer than two kinds of replicas have a price to compare", gain
        )
    inputs = replace(inputs, simulate_with=KnownRuns(_KEPT_BYTES))
    found: Mix | None = None
    try:
        if len(sure) > 1:
            found = _Search(inputs, sure, bests[0], candidates, progress).mix()
        if (found is None or not found.offered) and len(sure) < len(kinds):
            single = min((row for row in bests if row), key=price_of, default=None)
            among = _Search(inputs, kinds, single, candidates, progress).mix()
            found = among if found is None or among.offered else found
    except Interrupted:
        return found or Mix(False, "interrupted before a mix was found", gain)
    assert found is not None
    return found


def _kinds(
    tried: list[Configuration | Excluded], candidates: Sequence[Candidate]
) -> list[Configuration]:
    """Return what a mix may have replicas of: as tuned by the plan, where they were."""
    by_name = {str(row): row.configuration for row in candidates}
    return [
        by_name.get(str(row)) or row
        for row in tried
        if isinstance(row, Configuration) and row.price is not None
    ]


class _Search:
    """Allocates, simulates and repairs."""

    def __init__(
        self,
        inputs: PlanInputs,
        kinds: list[Configuration],
        best: Candidate | None,
        candidates: Sequence[Candidate],
        progress: Progress,
    ) -> None:
        self._inputs, self._kinds, self._progress = inputs, kinds, progress
        self._candidates = candidates
        self._best = best  # of single types
        self._base = inputs.load.base
        classes = len(base_classes(self._base.class_names)[0])
        prompts, outputs = next(
            (row for row in BANDS if classes * math.prod(row) <= MOST_BANDS), BANDS[-1]
        )
        self._bands = bands_of(self._base, prompts, outputs, LEAST_REQUESTS)
        self._shares = np.array([band.holds(self._base).mean() for band in self._bands])
        self._tried: set[Proposal] = set()
        self._simulated = 0  # fleets
        self._reason = ""  # why there is no mix, as the first that was tried says
        self._found: tuple[MixFleet, Run, Proposal] | None = None

    def mix(self) -> Mix:
        """Return the cheapest mix found."""
        gain = self._inputs.settings.mix_gain
        best = self._best
        count = 1 if best is None or best.replica_count is None else best.replica_count
        fleet = min(max(count, _FLEET[0]), _FLEET[1])
        sustained = capacities(
            self._inputs, self._bands, self._kinds, fleet, self._progress
        )
        known = Mix(False, "", gain, capacities=self._told(sustained))
        unserved = np.flatnonzero(~(sustained > 0).any(axis=1))
        if len(unserved):
            band = self._bands[unserved[0]]
            return replace(known, reason=f"no kind serves {band} within the SLO")
        known = replace(known, load_factor=self._load_factor(sustained))
        try:
            known = self._allocated(known)
            self._divide(sustained)
            self._refine(sustained)
        except Interrupted:
            if self._found is None:
                raise
            text = "interrupted: a mix that was not tried may cost less"
            warn(text)
        known = replace(known, simulated_count=self._simulated)
        if self._found is None:
            return replace(known, reason=self._reason)
        return self._described(known, *self._found)

    def _allocated(self, known: Mix) -> Mix:
        """Try what the allocation proposes, at several loads; return what it says."""
        sustained = np.array([kind.requests_per_s for kind in known.capacities]).T
        max_nodes = self._inputs.settings.max_nodes
        for stretch in _STRETCHES:
            if self._found is not None and stretch > 1:
                break  # a mix that does with less was found
            self._progress("allocating the requests to kinds of replicas")
            rates = stretch * known.load_factor * self._rates()
            problem = problem_of(self._kinds, rates, sustained, max_nodes)
            allocation = allocate_mix(problem, time_limit_s=_SOLVER_S)
            if stretch == _STRETCHES[0]:
                known = with_allocation(known, allocation)
            reason = unusable(allocation, self._kinds, max_nodes)
            if reason is None:
                self._try(proposal_of(allocation))
            self._reason = self._reason or reason or ""
        return known

    def _divide(self, sustained: np.ndarray) -> None:
        """Try the cheapest ways to divide the sizes between two kinds."""
        usd = np.array([usd_per_replica_h(kind) or 0.0 for kind in self._kinds])
        serve = self._serve(usd)
        groups = self._inputs.slo.groups(self._base.class_names)
        may_miss = tuple(1 - group.target for group in groups)
        found: list[tuple[float, Proposal]] = []
        for pair in promising_pairs(self._rates(), sustained, usd):
            first, second = (self._kinds[kind] for kind in pair)
            self._progress(f"dividing the sizes between {first} and {second}")
            division = Division(
                pair,
                sustained[:, pair],
                (usd[pair[0]], usd[pair[1]]),
                serve,
                may_miss,
                SLICES,
                MIN_REPLICAS,
            )
            found += division.proposals()
        found.sort(key=lambda row: row[0])
        for _, proposal in found[:_DIVISIONS]:
            self._try(proposal)

    def _serve(self, usd_per_h: np.ndarray) -> Serve:
        """Return what simulates a kind with slices of bands, each set once."""
        dearest = self._most_usd_per_h()

        @cache
        def serve(kind: int, slices: tuple[int, ...]) -> list[Served]:
            parts = tuple((part, SLICES - part) for part in slices)
            rows = Split(self._bands, parts).pools_of(self._base) == 0
            most = min(MOST_REPLICAS, dearest / usd_per_h[kind])
            if most < 1 or not rows.any():
                return []
            return served(self._inputs, self._kinds[kind], rows, int(most))

        return serve

    def _refine(self, sustained: np.ndarray) -> None:
        """Move slices between two kinds while that saves a replica."""
        improved = True
        while improved and self._found is not None:
            before = self._found
            at = replace(before[2], counts=before[1].deployment.counts)
            if len(at.kinds) != 2:
                return
            for proposal in shifted(at, sustained[:, at.kinds], SLICES):
                if min(proposal.counts) >= MIN_REPLICAS:
                    self._try(proposal)
            improved = self._found is not before

    def _try(self, proposal: Proposal) -> None:
        """Simulate and repair a proposal that costs less than the mix that is known."""
        if proposal in self._tried:
            return
        self._tried.add(proposal)
        kinds = [self._kinds[index] for index in proposal.kinds]
        split = Split(self._bands, proposal.parts)
        most = self._most_usd_per_h()
        if self._found is not None:
            most = min(most, usd_of(self._found[1].deployment) - _CENT)
        fleet = MixFleet(self._inputs, kinds, split, most)
        reason = self._repair(fleet, proposal.counts)
        surest = fleet.surest()
        self._simulated += len(fleet.runs)
        if surest is not None:
            self._found = fleet, surest, proposal
        elif reason is None:
            reason = "more samples do not show that the mix holds the SLO"
        self._reason = self._reason or reason or ""

    def _told(self, sustained: np.ndarray) -> tuple[KindCapacity, ...]:
        return tuple(
            KindCapacity(
                **vars(Kind.of(kind)),
                usd_per_h=usd_per_replica_h(kind) or 0.0,
                requests_per_s=tuple(column),
            )
            for kind, column in zip(self._kinds, sustained.T.tolist(), strict=True)
        )

    def _load_factor(self, sustained: np.ndarray) -> float:
        """Return the factor on rates at which the capacities ask for the best's count.

        The best single type was simulated with all requests together, at their own
        arrivals. What its bands sustain alone, at one rate, adds up to another count.
        """
        best = self._best
        if best is None or best.replica_count is None:
            return 1.0
        names = [str(kind) for kind in self._kinds]
        column = sustained[:, names.index(str(best))] if str(best) in names else None
        if column is None or not (column > 0).all():
            return 1.0
        alone = float((self._rates() / column).sum())
        # The count is rounded up: on average by a half.
        return max(best.replica_count - 0.5, 0.5) / alone

    def _rates(self) -> np.ndarray:
        """Return the mean rate of each band. [requests/s]"""
        return self._shares * self._inputs.trace.rate_per_s

    def _most_usd_per_h(self) -> float:
        """Return the most that a mix may cost to be offered. [$/h]"""
        if self._best is None or self._best.cost is None:
            return math.inf
        gain = self._inputs.settings.mix_gain
        return (1 - gain) * self._best.cost.usd_per_h

    def _repair(self, fleet: MixFleet, allocated: Counts) -> str | None:
        """Add replicas until the SLO is met, then take away; say why there is none."""
        counts = allocated
        while True:
            self._progress(f"simulating the mix of {fleet.named(counts)}")
            reason = fleet.refused(counts)
            if reason is not None:
                return reason
            if sum(counts) > _HOPELESS * sum(allocated):
                return f"{fleet.named(counts)} do not hold the SLO"
            if fleet.meets(counts):
                break
            counts = fleet.with_more(counts)
        for index in fleet.dearest_first():
            counts = fleet.fewest(counts, index)
        return None

    def _described(
        self, known: Mix, fleet: MixFleet, run: Run, proposal: Proposal
    ) -> Mix:
        """Return a fleet as the mix that was found."""
        best, judged = self._best, run.judgement
        single = None if best is None or best.cost is None else best.cost.usd_per_h
        assert run.cost is not None
        assert judged.attainment is not None
        self._progress("bounding what any mix costs")
        bound = bound_of_mix(self._inputs, self._kinds, self._candidates)
        rows = zip(self._bands, self._shares, fleet.split.parts, strict=True)
        return replace(
            known,
            offered=True,
            reason="",
            pools=fleet.pools(run, proposal.counts),
            bands=tuple(
                MixBand(
                    band.class_name,
                    band.prompt_tokens,
                    band.output_tokens,
                    float(share),
                    tuple(part / sum(row) for part in row),
                )
                for band, share, row in rows
            ),
            cost=run.cost,
            slo_attainment=judged.attainment.share,
            slo_attainment_interval=judged.attainment.interval,
            decided=judged.meets is True,
            doubts=tuple(
                f"{pool.configuration}: {doubt}"
                for pool in run.deployment.pools
                for doubt in pool.configuration.doubts
            ),
            saved_share=None if single is None else 1 - run.cost.usd_per_h / single,
            bound=bound,
        )
