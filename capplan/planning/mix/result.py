"""A mix of replicas of several kinds, frozen."""

from dataclasses import dataclass

from capplan.bounds.cost_bound import CostBound
from capplan.deployment.configuration import Configuration
from capplan.llm.layout import parse_layout
from capplan.planning.configure.launch import Launch
from capplan.planning.money.cost import Cost


@dataclass(frozen=True)
class Kind:
    """What replicas are told apart by: their GPU type and layout."""

    gpu: str
    tp: int  # of a rank or stage
    layout: str  # as profiles are named by
    gpus_per_replica: int

    @classmethod
    def of(cls, configuration: Configuration) -> "Kind":
        """Return the kind of a configuration."""
        gpu, layout = configuration.key
        return cls(gpu, configuration.tp, layout, configuration.gpus)

    @property
    def name(self) -> str:
        """GPU type and degrees, as people read them."""
        return f"{self.gpu} × {self.layout_text}"

    @property
    def layout_text(self) -> str:
        """How ranks, stages and experts share the GPUs of a replica."""
        return parse_layout(self.layout).text

    @property
    def degrees(self) -> str:
        """Its degrees in short, the TP degree first."""
        return parse_layout(self.layout).degrees


@dataclass(frozen=True)
class MixPool(Kind):
    """Equal replicas that serve their part of the requests."""

    replica_count: int
    allocated_replica_count: int  # by the allocation alone, before any was simulated
    gpu_count: int
    share_of_requests: float
    slo_attainment: float  # of its requests; NaN where none counts
    busy_share: float  # of its replicas' time
    launch: Launch | None  # how to start a replica; None where no LLM is named


@dataclass(frozen=True)
class MixBand:
    """Requests of a class and a range of lengths, and where they go."""

    class_name: str  # empty where there is one class
    prompt_tokens: tuple[int, int]  # fewest and most [tokens]
    # predicted, fewest and most; None without a predictor [tokens]
    output_tokens: tuple[int, int] | None
    share_of_requests: float
    shares: tuple[float, ...]  # of its requests on each pool


@dataclass(frozen=True)
class KindCapacity(Kind):
    """What a replica of a kind sustains of each band alone, within the SLO."""

    usd_per_h: float  # of a replica, its share of full nodes [$/h]
    requests_per_s: tuple[float, ...]  # of each band; 0: none [requests/s]


@dataclass(frozen=True)
class Mix:
    """The cheapest mix that was found, and whether it is worth having."""

    offered: bool  # it costs so much less than the best single type
    reason: str  # why not; empty where it is offered
    gain_asked: float  # share by which it must be cheaper
    pools: tuple[MixPool, ...] = ()
    bands: tuple[MixBand, ...] = ()
    capacities: tuple[KindCapacity, ...] = ()
    cost: Cost | None = None
    slo_attainment: float | None = None
    slo_attainment_interval: tuple[float, float] | None = None  # 95 % (low, high)
    decided: bool = False  # whether the samples show that it meets the SLO
    # why the count or cost of a pool may be far off; empty where no kind is in doubt
    doubts: tuple[str, ...] = ()
    # by which it costs less than the best single type; None where there is none
    saved_share: float | None = None
    # of the allocation: its status, cost, and the least of any for the same capacities
    allocation_status: str = ""
    allocation_usd_per_h: float | None = None  # [$/h]
    allocation_lower_bound_usd_per_h: float | None = None  # [$/h]
    # factor on the rates that makes the capacities say what the best single type needs
    load_factor: float = 1.0
    bound: CostBound | None = None  # no mix of these kinds costs less
    simulated_count: int = 0  # fleets that were simulated
