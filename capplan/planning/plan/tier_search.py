"""How large a tier pays: what plans take with parts of the free host memory."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.size.prospects import CENTS
from capplan.units import format_usd

if TYPE_CHECKING:
    from capplan.planning.plan.result import Plan

SIZES = ("0", "100%", "50%", "25%", "12.5%")
"""Of the free host memory, in the order they are tried: none, all, then halves."""


@dataclass(frozen=True)
class TierTried:
    """A size of the tier that a plan tried."""

    size: str  # as of kv_offloading_size
    gib: float  # of each replica of the best; 0: no tier, or none is feasible [GiB]
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
        if self.gpu_count is None:
            of = f"with {self.size} of what is free"
            return f"{'without' if self.size == SIZES[0] else of} none that costs less"
        size = f"{self.gib:,.0f} GiB" if self.gib else "no tier"
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
