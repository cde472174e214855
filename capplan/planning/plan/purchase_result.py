"""Other ways to pay for the nodes of a plan, and what other counts cost."""

from dataclasses import dataclass

from capplan.planning.evaluate.probe import Probe


@dataclass(frozen=True)
class Way:
    """A way to pay for the nodes of a plan, at all hours."""

    name: str
    usd_per_node_h: float  # of a node, in the mean where two kinds are mixed [$/h]
    usd_per_month: float  # 730 h [$]
    usd_per_year: float  # 8,760 h [$]
    usd_saved_per_month: float | None  # against on demand; negative: dearer [$]
    # share of the hours from which on it is cheaper than on demand; None of neither
    break_even: float | None
    is_assumed: bool  # nobody quotes the price; starred
    source: str


@dataclass(frozen=True)
class ProviderBill:
    """The cheapest nodes of a provider that hold the replicas of a plan."""

    gpu: str
    provider: str
    nodes: str  # "1 × gpu_8x_h100_sxm5 + 1 × gpu_1x_h100_sxm5"
    gpus_paid: int
    stranded_gpus: int  # paid, and in no replica
    usd_per_month: float  # 730 h [$]
    is_planned: bool  # at the lower quartile: what the plan costs
    is_doubtful: bool  # a price is a guess, old or undated
    source: str


@dataclass(frozen=True)
class CountCost:
    """What a number of replicas costs, and what it attains."""

    name: str  # "planned", "N+1: one more replica" or empty
    replica_count: int
    gpu_count: int
    node_count: float | None  # None where GPUs are priced alone or have no price
    usd_per_month: float | None  # None without a price [$]
    usd_against_planned: float | None  # a month; negative: less [$]
    slo_attainment: float | None  # None where it was not simulated
    meets: bool | None  # None where not simulated, or too close to call
    attainment_with_one_lost: float | None  # of one replica fewer


@dataclass(frozen=True)
class Purchase:
    """What the nodes of the best candidate cost, and what else could be paid."""

    bills: tuple[ProviderBill, ...] = ()  # of each GPU type the cheapest first
    left_out: tuple[str, ...] = ()  # providers that have no such nodes, and why
    turned: tuple[str, ...] = ()  # other candidates that bill less at one provider
    ways: tuple[Way, ...] = ()
    no_ways: str = ""  # why there is none
    count_costs: tuple[CountCost, ...] = ()
    # what all replicas attain that fit the nodes paid for; None where no more do
    paid_anyway: Probe | None = None
