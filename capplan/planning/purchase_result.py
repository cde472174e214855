"""Other ways to pay for the nodes of a plan, scenarios of its bill, and counts."""

from dataclasses import dataclass


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
class Scenario:
    """What a plan costs if a price or the engines are otherwise."""

    name: str
    replica_count: int
    node_count: float | None  # None where GPUs are priced alone
    gpus_paid: float
    usd_per_month: float  # [$]
    usd_per_year: float  # [$]


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

    ways: tuple[Way, ...] = ()
    no_ways: str = ""  # why there is none
    scenarios: tuple[Scenario, ...] = ()
    count_costs: tuple[CountCost, ...] = ()
