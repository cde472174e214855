"""The result of a budget: months, commitments, and other ways to pay beside."""

from dataclasses import dataclass

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.planning.autoscale.settings import PERFECT
from capplan.planning.budget.replicas_by_rate import EXTRAPOLATED, ReplicasByRate
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.configure.launch import Launch
from capplan.planning.load.demand_curve import DemandCurve
from capplan.planning.money.bill import CommitmentUse, MonthBill, Rent
from capplan.planning.money.commitments import Hours
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.node_prices import NodePrices
from capplan.planning.money.owned import Owned
from capplan.planning.plan.result import Assumption
from capplan.planning.shown import Shown
from capplan.workload.slo import Slo


@dataclass(frozen=True)
class Power:
    """The power of a node, and what its electricity emits."""

    kw: float  # at most [kW]
    draw: float  # share of it
    pue: float  # of the site over its machines
    g_co2e_per_kwh: float
    grid_source: str


@dataclass(frozen=True, eq=False)
class Month:
    """One month of a budget: its traffic, what that needs, and the bill."""

    work_factor: float  # traffic over that of month 1, tokens too
    busiest_per_s: float  # of the busiest window [requests/s]
    mean_per_s: float  # [requests/s]
    replicas: int  # at the peak
    known_by: str  # how that count is known, see ReplicasByRate.known_by
    nodes: np.ndarray  # of each hour, with spares, shape (hours,), int64
    hours: Hours  # paid
    bill: MonthBill
    kwh: float | None  # None where the power of a node is not known
    t_co2e: float | None
    prompt_tokens: float  # of the month
    output_tokens: float  # of the month
    is_doubtful: bool = False  # a price of it is assumed, or the one on demand old

    @property
    def month(self) -> int:
        """Its number, from 1."""
        return self.bill.month

    @property
    def is_estimated(self) -> bool:
        """Whether its replicas are extrapolated from those simulated."""
        return self.known_by == EXTRAPOLATED

    @property
    def is_uncertain(self) -> bool:
        """Whether its dollars rest on an assumed or old price, or on such replicas."""
        return self.is_doubtful or self.is_estimated

    @property
    def usd_per_million_total_tokens(self) -> float | None:
        """Dollars of the month over all its tokens; None without any. [$]"""
        tokens = self.prompt_tokens + self.output_tokens
        return self.bill.usd / tokens * 1e6 if tokens else None

    @property
    def wh_per_thousand_output_tokens(self) -> float | None:
        """Energy over the tokens; None where not known. [Wh]"""
        if self.kwh is None or not self.output_tokens:
            return None
        return self.kwh / self.output_tokens * 1e6


@dataclass(frozen=True)
class Alternative:
    """Another way to pay for the same months."""

    name: str
    usd: float  # within the horizon [$]
    usd_first_month: float
    usd_last_month: float
    usd_owed_after: float = 0.0  # still to be paid after the horizon [$]
    note: str = ""
    is_estimated: bool = False  # from others, or by a price that is assumed or old


@dataclass(frozen=True)
class FleetRow:
    """A fleet simulated on the trace, beside the fixed one that attains as much."""

    name: str
    policy: str  # with its settings; empty for the fixed fleet
    slo_attainment: float
    worst_hour_attainment: float | None
    meets: bool
    peak_nodes: int
    mean_nodes: float  # paid
    usd_per_month: float  # on demand [$]
    static_nodes: int | None  # of the smallest fixed fleet that attains as much
    static_usd_per_month: float | None  # [$]

    @property
    def is_autoscaled(self) -> bool:
        """Whether a policy decides that knows nothing of what is to come."""
        return bool(self.policy) and not self.policy.startswith(("schedule", PERFECT))

    @property
    def of_static(self) -> float | None:
        """What it costs over that fixed fleet; None where none attains as much."""
        fixed = self.static_usd_per_month
        return None if not fixed else self.usd_per_month / fixed


@dataclass(frozen=True)
class ScenarioRow:
    """A budget under other growth, traffic, answers or prices."""

    name: str
    changes: str  # for people
    replicas: int | None = None  # at the peak of month 1; None where infeasible
    replicas_last_month: int | None = None
    nodes: int | None = None  # at the peak of month 1, with spares
    nodes_last_month: int | None = None
    usd_first_month: float | None = None  # [$]
    usd_last_month: float | None = None  # [$]
    usd_first_year: float | None = None  # None of fewer months [$]
    usd: float | None = None  # within the horizon [$]
    usd_owed_after: float | None = None  # still to be paid after the horizon [$]
    is_estimated: bool = False  # replicas or a price of it are
    configuration: Configuration | None = None  # that it chose; None where infeasible
    infeasible_reason: str = ""
    usd_by_month: tuple[float, ...] = ()  # none where infeasible [$]


@dataclass(frozen=True)
class PriceRow:
    """A way to have a GPU: its price, and when owning one is cheaper."""

    name: str
    usd_per_gpu_h: float  # whether used or not, but on demand [$]
    is_assumed: bool
    # of the hours in which a GPU is used: from which on it is cheaper than on demand
    break_even: float | None = None
    owned_break_even: float | None = None  # from which on owning is cheaper than it
    upfront_usd_per_gpu_h: float | None = None  # in present value, where upfront [$]
    base_nodes: int | None = None  # worth committing in month 1, by itself
    base_nodes_last: int | None = None  # and in the last month
    base_quantile: float | None = None  # of the hours, that they are


@dataclass(frozen=True, eq=False, repr=False)
class Budget(Shown):
    """Nodes by hour and month, what to commit, and what it all costs."""

    settings: BudgetSettings
    configuration: Configuration
    slo: Slo
    class_names: tuple[str, ...]
    trace_source: str
    curve: DemandCurve
    by_rate: ReplicasByRate
    prices: NodePrices
    rent: Rent
    power: Power | None  # None where not known
    cold_start_s: float
    months: tuple[Month, ...] = ()
    commitments: tuple[CommitmentUse, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    fleets: tuple[FleetRow, ...] = ()
    ways: tuple[PriceRow, ...] = ()
    scenarios: tuple[ScenarioRow, ...] = ()
    owned: Owned | None = None
    launch: Launch | None = None  # of a replica, as planned at the highest peak
    infeasible_reason: str = ""
    largest_fraction: float = 0.0  # of a node in the ladder's optimum
    assumptions: tuple[Assumption, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def usd(self) -> float:
        """Dollars of all months. [$]"""
        return sum(month.bill.usd for month in self.months)

    @property
    def usd_owed_after(self) -> float:
        """Still to be paid of commitments after the last month. [$]"""
        return sum(use.usd_owed_after for use in self.commitments)

    @property
    def usd_prepaid_after(self) -> float:
        """Paid within the horizon for months after it. [$]"""
        return sum(use.usd_prepaid_after for use in self.commitments)

    @property
    def utilisation(self) -> float | None:
        """Share of all committed node-hours that is used; None without any."""
        held = sum(month.bill.committed_nodes for month in self.months)
        used = sum(month.bill.used_node_hours for month in self.months)
        return used / (held * HOURS_PER_MONTH) if held else None

    @property
    def coverage(self) -> float | None:
        """Share of all node-hours wanted that commitments serve."""
        wanted = sum(month.bill.node_hours for month in self.months)
        used = sum(month.bill.used_node_hours for month in self.months)
        return used / wanted if wanted else None
