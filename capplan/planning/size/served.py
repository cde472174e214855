"""What fleets of a given size serve: rates, users and sessions, and what is missed."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capplan.deployment.pools import Deployment, Pool
from capplan.planning.configure.excluded import Excluded
from capplan.planning.money.cost import Cost, fitting
from capplan.planning.shown import Shown

ANY_RATE = "holds any rate: all requests could arrive at once"


class Missed(NamedTuple):
    """A load that a fleet is decided not to hold."""

    amount: float = np.inf  # a rate [requests/s], or users; infinite: none was
    in_time: float | None = None  # share of its requests; None: none could be counted
    binding: str = ""  # the setting that binds, or the limit that most of them miss


NOT_MISSED = Missed()


@dataclass(frozen=True, eq=False)
class Served:
    """What one fleet serves within one SLO."""

    deployment: Deployment
    slo_text: str
    attainment_text: str
    cost: Cost | None  # None without a price
    max_rate_per_s: float | None = None  # None where no rate is held [requests/s]
    # in the busiest hour, where the trace's own times span two [requests/s]
    busiest_hour_per_s: float | None = None
    # the highest rate decided to be held, and the lowest decided not to be
    max_rate_per_s_interval: tuple[float, float] | None = None
    # no scheduler serves more within the SLO; None without a bound [requests/s]
    upper_bound_rate_per_s: float | None = None
    max_users: int | None = None  # of conversations the most at once
    max_users_interval: tuple[float, float] | None = None
    missed: Missed = NOT_MISSED  # the rate at the high end of its interval
    reason: str = ""  # why it serves none

    @property
    def pool(self) -> Pool:
        """Its replicas."""
        return self.deployment.pool

    @property
    def is_failure(self) -> bool:
        """Whether it serves nothing."""
        none = self.max_rate_per_s is None and self.max_users is None
        return none and self.reason != ANY_RATE

    @property
    def usd_per_month(self) -> float | None:
        """Its bill; None without a price. [$]"""
        return None if self.cost is None else self.cost.usd_per_month

    @property
    def usd_per_request(self) -> float | None:
        """Its bill over all requests that it can serve; None where unknown. [$]"""
        if self.cost is None or self.max_rate_per_s is None:
            return None
        return self.cost.usd_per_h / (3600 * self.max_rate_per_s)

    @property
    def sustained_per_s(self) -> tuple[float, float] | None:
        """Rates that 80 % of such engines sustain; None: unknown. [requests/s]"""
        ratio = self.pool.configuration.capacity_ratio
        if self.max_rate_per_s is None or ratio is None:
            return None
        return ratio[0] * self.max_rate_per_s, ratio[1] * self.max_rate_per_s

    @property
    def filled(self) -> Deployment | None:
        """The fleet with as many replicas as the nodes paid for hold; None: it is."""
        count = 0 if self.cost is None else fitting(self.pool)
        if count <= self.pool.replica_count:
            return None
        return self.deployment.with_replicas(count)


@dataclass(frozen=True, eq=False, repr=False)
class Capacity(Shown):
    """What each fleet serves, by SLO in the order given, the most first."""

    llm: str | None  # None of given iteration times
    rows: tuple[Served, ...]
    excluded: tuple[Excluded, ...]
    think: str  # of users
    trace_source: str
    mean_prompt_tokens: float  # [tokens]
    mean_output_tokens: float  # [tokens]
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> Served:
        """The first fleet."""
        return self.rows[0]
