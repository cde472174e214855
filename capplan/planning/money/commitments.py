"""Commitments: terms on sale, contracts that run, and the base worth committing."""

from dataclasses import dataclass

import numpy as np

from capplan.errors import InputError
from capplan.planning.money.cost import HOURS_PER_MONTH


@dataclass(frozen=True)
class Term:
    """A commitment that may be bought: nodes for some months."""

    name: str  # "reserved, 12 months"
    months: int
    usd_per_node_h: float  # over the term, whether used or not [$/h]
    upfront_share: float = 0.0  # of the whole that is paid at its start
    min_nodes: int = 0
    is_assumed: bool = False  # nobody quotes this price
    source: str = ""

    def present_usd_per_node_h(self, wacc: float) -> float:
        """Return the price as if all of it were paid month by month. [$/h]

        With what is paid upfront worth more by the cost of capital, a yearly rate.
        """
        factor = present_factor(self.months, self.upfront_share, wacc)
        return self.usd_per_node_h * factor


def present_factor(months: int, upfront_share: float, wacc: float) -> float:
    """Return a term's price as level months, over its nominal price.

    (f T + (1 - f) A) / A with A the present value of 1 a month over T months, at a
    twelfth of the yearly ``wacc``.

    Examples
    --------
    >>> round(0.64 * present_factor(12, 1.0, 0.08), 3)
    0.668
    """
    monthly = wacc / 12
    level = sum((1 + monthly) ** -month for month in range(1, months + 1))
    return (upfront_share * months + (1 - upfront_share) * level) / level


@dataclass(frozen=True, eq=False)
class Hours:
    """Nodes that are wanted, and for how long a month, in ascending order of nodes."""

    nodes: np.ndarray  # whole, shape (levels,), int64
    hours: np.ndarray  # of a month of 730 h, shape (levels,) [h]

    @classmethod
    def of(cls, nodes: np.ndarray, weight: np.ndarray | None = None) -> "Hours":
        """Return the hours of each count among those of a time, by their weights."""
        counts = np.asarray(nodes, np.int64)
        weight = np.ones(len(counts)) if weight is None else np.asarray(weight)
        levels, where = np.unique(counts, return_inverse=True)
        hours = np.bincount(where.ravel(), weight) * (HOURS_PER_MONTH / weight.sum())
        return cls(levels, hours)

    @property
    def most(self) -> int:
        """Nodes at the peak."""
        return int(self.nodes[-1])

    @property
    def node_hours(self) -> float:
        """Nodes times hours of a month. [h]"""
        return float(self.nodes @ self.hours)

    def within(self, nodes: int) -> float:
        """Return the node-hours that a number of nodes serve. [h]"""
        return float(np.minimum(self.nodes, nodes) @ self.hours)


def base_quantile(committed_usd: float, on_demand_usd: float) -> float:
    """Return the quantile of the hours that is worth committing: 1 - p_c / p_od."""
    return max(0.0, 1.0 - committed_usd / on_demand_usd)


def committed_base(hours: Hours, committed_usd: float, on_demand_usd: float) -> int:
    """Return the nodes that cost least when committed, by the quantile they are.

    The fewest C with P(nodes <= C) >= 1 - p_c / p_od: the next node would be used in
    too small a share of the hours. The newsvendor's quantile (Arrow, Harris and
    Marschak, 1951).

    Examples
    --------
    >>> committed_base(Hours.of(np.array([2, 3, 5, 9])), 0.6, 1.0)
    3
    """
    quantile = base_quantile(committed_usd, on_demand_usd)
    if quantile <= 0:
        return 0
    share = np.cumsum(hours.hours) / hours.hours.sum()
    return int(hours.nodes[np.searchsorted(share, quantile - 1e-12)])


@dataclass(frozen=True)
class Contract:
    """Nodes committed already: from month 1 until the end of a month."""

    nodes: int
    usd_per_node_h: float  # [$/h]
    until_month: int


def parse_contract(text: str) -> Contract:
    """Return the contract of ``NODES@USD:MONTH``, dollars by the hour and node.

    Examples
    --------
    >>> parse_contract("6@24.60:18")
    Contract(nodes=6, usd_per_node_h=24.6, until_month=18)
    """
    nodes, at, rest = text.partition("@")
    usd, colon, month = rest.partition(":")
    try:
        found = Contract(int(nodes), float(usd.lstrip("$ ")), int(month))
    except ValueError:
        at = ""
    if not (at and colon and found.nodes > 0 and found.until_month > 0):
        raise InputError(
            f"contract {text!r}; expected NODES@USD_PER_NODE_HOUR:LAST_MONTH, as in "
            "6@24.60:18"
        )
    if not 0 <= found.usd_per_node_h < np.inf:
        raise InputError(f"contract {text!r}: a price of {usd}; expected 0 or more")
    return found
