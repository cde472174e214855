"""How large a tier pays: what plans take with parts of the free host memory."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capplan.deployment.configuration import Configuration
from capplan.planning.configure.configuration import with_budget
from capplan.planning.configure.excluded import Excluded
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.size.candidates import described
from capplan.planning.size.counts import Fewest
from capplan.planning.size.prospects import CENTS, Prospect, price_of
from capplan.planning.size.shape import Shape
from capplan.units import format_usd

if TYPE_CHECKING:
    from capplan.planning.plan.result import Plan

SIZES = ("0", "100%", "50%", "25%", "12.5%")
"""Of the free host memory, in the order they are tried: none, all, then halves."""


@dataclass(frozen=True)
class TierTried:
    """A size of the tier that a plan tried."""

    size: str  # as of kv_offloading_size
    gib: float  # of each replica; 0: no tier, or none is feasible [GiB]
    gpu_count: int | None  # of the best with it; None where none is feasible
    usd_per_month: float | None  # None without a price too [$]

    @property
    def price(self) -> tuple[float, float]:
        """What sizes are compared by: $/h, infinite where unknown, and GPUs."""
        usd = math.inf if self.usd_per_month is None else self.usd_per_month
        count = math.inf if self.gpu_count is None else self.gpu_count
        return round(usd / HOURS_PER_MONTH, CENTS), count

    def __str__(self) -> str:
        """Return ``1,344 GiB: 24 GPUs, $117,209 a month``."""
        size = f"{self.gib:,.0f} GiB" if self.gib else "no tier"
        if self.gpu_count is None and self.gib:
            return f"{size}: more GPUs"
        if self.gpu_count is None:
            of = f"with {self.size} of what is free"
            return f"{'without' if self.size == SIZES[0] else of} none that costs less"
        usd = self.usd_per_month
        cost = "" if usd is None else f", {format_usd(usd)} a month"
        return f"{size}: {self.gpu_count:,} GPUs{cost}"


@dataclass(frozen=True)
class TiersTried:
    """The sizes that a plan tried, in order; the chosen one is the best's."""

    rows: tuple[TierTried, ...]
    chosen_gib: float  # of each replica; 0: none pays [GiB]

    def __str__(self) -> str:
        """Return what each took, and whether one pays."""
        told = "; ".join(map(str, self.rows))
        return told if self.chosen_gib else f"none pays: {told}"


def gib_of(plan: "Plan") -> float:
    """Return the tier of each replica of the best; 0 without one. [GiB]"""
    if plan.best is None or plan.best.run is None:
        return 0.0
    return plan.best.run.configuration.engine.tier_gib


def tried_size(size: str, plan: "Plan") -> TierTried:
    """Return what a plan takes with a size."""
    best = plan.best
    usd = None if best is None or best.cost is None else best.cost.usd_per_month
    count = None if best is None else best.gpu_count
    return TierTried(size, gib_of(plan), count, usd)


def with_less(
    size: str,
    best: Candidate,
    inputs: PlanInputs,
    tried: Iterable[Configuration | Excluded],
) -> TierTried:
    """Return what the best takes with less memory: its replicas, if they hold."""
    assert best.run is not None
    assert best.bound is not None
    of, counts = best.run.deployment, best.run.deployment.counts
    engine = best.run.configuration.engine
    (less,) = (row for row in tried if isinstance(row, Configuration))
    less = with_budget(less, engine.max_num_batched_tokens)
    shape = Shape((Prospect(less, best.bound),), inputs.settings, of.router)
    run = shape.run(inputs, counts, thorough=True)
    gib = less.engine.tier_gib
    if run.judgement.meets is not True:
        return TierTried(size, gib, None, None)
    found, _ = described(inputs, shape, Fewest(run, (run,), decided=True))
    usd = None if found.cost is None else found.cost.usd_per_month
    if price_of(found) > price_of(best):
        return TierTried(size, gib, None, None)
    return TierTried(size, gib, found.gpu_count, usd)
