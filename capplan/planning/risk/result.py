"""The result of the draws around a plan, frozen."""

from dataclasses import dataclass, field

from capplan.planning.risk.draws import Draw, DrawnInput


@dataclass(frozen=True)
class DrawnPlan:
    """What one draw needs."""

    draw: Draw
    replica_count: int | None  # None where none of those looked at meets the SLO
    planned_attainment: float  # of the planned fleet
    planned_meets: bool  # whether it meets the SLO
    usd_per_month: float | None  # of the nodes of this count; None without a price
    busiest_per_s: (
        float  # of its busiest hour, before growth; 0 where no times are drawn
    )
    mean_tokens: float  # of prompt and answer, of a request [tokens]


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
class Swing:
    """What one input alone does, at its low and high end in 80 % of the draws."""

    name: str
    ends: tuple[float, float]  # of the input
    replica_counts: tuple[int | None, int | None]  # None where none meets the SLO
    node_counts: tuple[float | None, float | None]  # None where nodes are not known
    usd_per_month: tuple[float | None, float | None]  # None without a price [$]


@dataclass(frozen=True)
class Worth:
    """What it is worth at most to know one input before choosing."""

    name: str  # of the input, or "all"
    usd_per_month: float  # expected value of perfect information [$]


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
    swings: tuple[Swing, ...] = ()  # the widest first
    worth: tuple[Worth, ...] = ()  # the most first, then "all"; empty of few draws
    # of a node, or of a GPU that is priced alone, that is not needed, and that is
    # missing; None where nothing is told of the worth [$]
    unused_usd_per_month: float | None = None
    missing_usd_per_month: float | None = None
    unknown_worth: str = ""  # why nothing is told of it
    caution: str = ""  # what the length of the trace does to it; first of all warnings
    rows: tuple[DrawnPlan, ...] = field(default=(), repr=False)
