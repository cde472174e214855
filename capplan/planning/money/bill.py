"""The bill of each month: commitments, spot and on demand, and what was unused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from capplan.planning.money.commitments import Contract, Hours, Term
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.spot import most_spot, spot_nodes


@dataclass(frozen=True)
class Held:
    """Nodes committed from the start of a month to the end of another."""

    name: str
    nodes: int
    first_month: int
    last_month: int  # may lie after the horizon
    usd_per_node_h: float  # whether used or not [$/h]
    upfront_share: float = 0.0
    is_assumed: bool = False  # nobody quotes the price
    is_contract: bool = False  # was there before
    firm_month: int | None = None  # until which it is owed; None: its last

    @property
    def usd_per_month(self) -> float:
        """Dollars of a month of its term, what was paid upfront in equal parts. [$]"""
        return self.nodes * self.usd_per_node_h * HOURS_PER_MONTH

    @property
    def months(self) -> int:
        """Months of its term; of a contract those that are left."""
        return self.last_month - self.first_month + 1

    def runs(self, month: int) -> bool:
        """Return whether it is charged in a month."""
        return self.first_month <= month <= self.last_month

    def paid_in(self, month: int) -> float:
        """Return what is paid in a month: upfront, and by the month. [$]"""
        if not self.runs(month):
            return 0.0
        upfront = self.upfront_share * self.usd_per_month * self.months
        monthly = (1 - self.upfront_share) * self.usd_per_month
        return monthly + (upfront if month == self.first_month else 0.0)

    def owed_after(self, month: int) -> float:
        """Return what is still to be paid after a month, if it runs by then. [$]"""
        if month < self.first_month:
            return 0.0
        until = self.last_month if self.firm_month is None else self.firm_month
        left = max(0, until - month)
        return left * (1 - self.upfront_share) * self.usd_per_month


def held_by(
    contracts: Sequence[Contract],
    terms: Sequence[Term],
    bought: np.ndarray,
    rented: Sequence[Held] = (),
) -> list[Held]:
    """Return all commitments in the order they are used: first come, first used.

    Of those that begin together the longest comes first. ``bought`` are nodes of each
    term, shape (terms, months); ``rented`` are held for some months too.
    """
    found = [
        Held(
            f"contract {index}" if len(contracts) > 1 else "contract",
            each.nodes,
            1,
            each.until_month,
            each.usd_per_node_h,
            is_contract=True,
        )
        for index, each in enumerate(contracts, 1)
    ]
    for term, row in zip(terms, bought, strict=True):
        found += [
            Held(
                term.name,
                int(row[start]),
                int(start) + 1,
                int(start) + term.months,
                term.usd_per_node_h,
                term.upfront_share,
                term.is_assumed,
            )
            for start in np.flatnonzero(row)
        ]
    found += rented
    return sorted(found, key=lambda each: (each.first_month, -each.last_month))


@dataclass(frozen=True)
class Rent:
    """What nodes that are not committed cost."""

    on_demand: float  # of a node [$/h]
    spot: float | None = None  # of a node; None: no spot [$/h]
    spot_share: float = 0.0  # most of the nodes of an hour
    spot_there: float = 1.0  # share of the time that a spot node is there
    spot_quota: int | None = None
    on_demand_quota: int | None = None
    least_usd_per_month: float = 0.0  # least bill of a month [$]


@dataclass(frozen=True)
class MonthBill:
    """What one month costs, and what its commitments are used for."""

    month: int
    nodes: int  # at the peak
    node_hours: float  # wanted, with those that start and drain [h]
    committed_nodes: int
    used_node_hours: float  # of the committed [h]
    on_demand_node_hours: float
    spot_node_hours: float  # paid, with those beside the needed
    usd_by_commitment: Mapping[str, float]  # by name of the term [$]
    usd_on_demand: float
    usd_spot: float
    usd_to_minimum: float  # what is missing to the least bill [$]
    usd_unused: float  # of commitments [$]
    usd_paid: float  # with what is paid upfront in this month [$]
    usd_owed: float  # still to be paid of commitments after this month [$]
    usd_beside: float = 0.0  # of nodes of other sizes, on demand [$]
    used_by_commitment: tuple[float, ...] = field(repr=False, default=())

    @property
    def usd_committed(self) -> float:
        """Dollars of all commitments. [$]"""
        return sum(self.usd_by_commitment.values())

    @property
    def usd(self) -> float:
        """Dollars of the month, what was paid upfront in equal parts. [$]"""
        rent = self.usd_on_demand + self.usd_spot + self.usd_to_minimum
        return self.usd_committed + rent + self.usd_beside

    @property
    def utilisation(self) -> float | None:
        """Share of the committed node-hours that is used; None without any."""
        held = self.committed_nodes * HOURS_PER_MONTH
        return self.used_node_hours / held if held else None

    @property
    def coverage(self) -> float | None:
        """Share of the node-hours that commitments serve; None where none is wanted."""
        return self.used_node_hours / self.node_hours if self.node_hours else None


def month_bill(
    month: int, hours: Hours, held: Sequence[Held], rent: Rent, usd_beside: float = 0.0
) -> MonthBill:
    """Return the bill of a month, with what nodes of other sizes cost beside. [$]

    Commitments are used in their order, then spot where it is cheaper, then on demand.
    A commitment is paid for all hours, spot nodes as many as keep the needed there.
    """
    by_name: dict[str, float] = {}
    used, stacked, unused = [], 0, 0.0
    for each in held:
        if not each.runs(month):
            used.append(0.0)
            continue
        before = hours.within(stacked)
        stacked += each.nodes
        used.append(hours.within(stacked) - before)
        idle = each.nodes * HOURS_PER_MONTH - used[-1]
        unused += idle * each.usd_per_node_h
        by_name[each.name] = by_name.get(each.name, 0.0) + each.usd_per_month
    on_demand_h, spot_h = _rented(hours, stacked, rent)
    usd_on_demand = on_demand_h * rent.on_demand
    usd_spot = spot_h * (rent.spot or 0.0)
    paid = sum(each.paid_in(month) for each in held) + usd_on_demand + usd_spot
    paid += usd_beside
    owing = sum(by_name.values()) + usd_on_demand + usd_spot + usd_beside
    missing = max(0.0, rent.least_usd_per_month - owing)
    return MonthBill(
        month=month,
        nodes=hours.most,
        node_hours=hours.node_hours,
        committed_nodes=stacked,
        used_node_hours=sum(used),
        on_demand_node_hours=on_demand_h,
        spot_node_hours=spot_h,
        usd_by_commitment=by_name,
        usd_on_demand=usd_on_demand,
        usd_spot=usd_spot,
        usd_to_minimum=missing,
        usd_unused=unused,
        usd_paid=paid + missing,
        usd_owed=sum(each.owed_after(month) for each in held),
        usd_beside=usd_beside,
        used_by_commitment=tuple(used),
    )


def _rented(hours: Hours, committed: int, rent: Rent) -> tuple[float, float]:
    """Return the node-hours on demand and spot of what is not committed. [h]"""
    on_demand_h = spot_h = 0.0
    for level, lasts_h in zip(hours.nodes.tolist(), hours.hours, strict=True):
        missing = max(0, level - committed)
        on_demand, spot = _cheapest(missing, level, rent)
        on_demand_h += on_demand * lasts_h
        spot_h += spot * lasts_h
    return float(on_demand_h), float(spot_h)


def _cheapest(missing: int, level: int, rent: Rent) -> tuple[int, int]:
    """Return the nodes on demand and the spot nodes paid that cost least."""
    if rent.spot is None or missing == 0:
        return missing, 0
    most = min(most_spot(rent.spot_share, level), missing)
    if rent.spot_quota is not None:
        most = min(most, rent.spot_quota)
    least = 0
    if rent.on_demand_quota is not None:
        least = min(most, max(0, missing - rent.on_demand_quota))
    best = (missing - least, spot_nodes(least, rent.spot_there))
    for needed in range(least + 1, most + 1):
        tried = (missing - needed, spot_nodes(needed, rent.spot_there))
        if _usd(tried, rent) < _usd(best, rent):
            best = tried
    return best


def _usd(nodes: tuple[int, int], rent: Rent) -> float:
    return nodes[0] * rent.on_demand + nodes[1] * (rent.spot or 0.0)


@dataclass(frozen=True)
class CommitmentUse:
    """A commitment, and what it was used for within the horizon."""

    held: Held
    utilisation: float  # share of its node-hours within the horizon that is used
    coverage: float  # share of the node-hours wanted in these months that it serves
    usd: float  # of its whole term [$]
    usd_unused: float  # within the horizon [$]
    usd_owed_after: float  # still to be paid after the horizon [$]
    usd_prepaid_after: float  # paid upfront for months after the horizon [$]
    break_even: float  # utilisation from which on it is cheaper than on demand


def uses(
    held: Sequence[Held], bills: Sequence[MonthBill], on_demand_usd_per_node_h: float
) -> list[CommitmentUse]:
    """Return what each commitment was used for within the months of the bills."""
    found = []
    last = bills[-1].month
    for index, each in enumerate(held):
        months = [bill for bill in bills if each.runs(bill.month)]
        used_h = sum(bill.used_by_commitment[index] for bill in months)
        wanted_h = sum(bill.node_hours for bill in months)
        held_h = each.nodes * HOURS_PER_MONTH * len(months)
        left = max(0, each.last_month - last)
        found.append(
            CommitmentUse(
                each,
                used_h / held_h if held_h else 0.0,
                used_h / wanted_h if wanted_h else 0.0,
                each.usd_per_month * each.months,
                (held_h - used_h) * each.usd_per_node_h,
                each.owed_after(last),
                left * each.upfront_share * each.usd_per_month,
                each.usd_per_node_h / on_demand_usd_per_node_h,
            )
        )
    return found
