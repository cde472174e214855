"""The result of the draws around a plan, frozen."""

from dataclasses import dataclass, field

from capplan.planning.draws import Draw, DrawnInput


@dataclass(frozen=True)
class DrawnPlan:
    """What one draw needs."""

    draw: Draw
    replica_count: int | None  # None where none of those looked at meets the SLO
    planned_attainment: float  # of the planned fleet
    planned_meets: bool  # whether it meets the SLO
    usd_per_month: float | None  # of the nodes of this count; None without a price


@dataclass(frozen=True)
class RiskLevel:
    """What a share of the draws is served with."""

    quantile: float
    replica_count: int | None  # None where that many draws found no count
    gpu_count: int | None
    node_count: float | None  # None where nodes are not known
    usd_per_month: float | None  # None without a price, or a count


@dataclass(frozen=True)
class CountShare:
    """Draws that need as many replicas."""

    replica_count: int
    draw_count: int
    share_at_most: float  # of all draws that need as many or fewer


@dataclass(frozen=True)
class Risk:
    """The distribution of a plan over draws of what it rests on."""

    draw_count: int
    quantile: float  # asked for
    at_quantile: RiskLevel
    levels: tuple[RiskLevel, ...]  # of LEVELS
    counts: tuple[CountShare, ...]  # ascending
    unserved_draw_count: int  # that no count looked at serves
    planned_replica_count: int
    planned_share: float  # of the draws in which the planned fleet meets the SLO
    planned_attainment: float  # that the planned fleet reaches in a share ``quantile``
    inputs: tuple[DrawnInput, ...]  # what was drawn
    trace_days: float | None  # None where arrivals are drawn, at one rate
    run_count: int  # fleets simulated and judged
    caution: str = ""  # what the length of the trace does to it; first of all warnings
    rows: tuple[DrawnPlan, ...] = field(default=(), repr=False)
