"""The ladder: which commitments to buy in which month, as a linear program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capplan.errors import InputError, SolverError
from capplan.planning.money.commitments import Hours, Term
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.spot import most_spot

if TYPE_CHECKING:
    from scipy import sparse

FULL, WITHIN = "full", "horizon"
"""Months of a term that the choice counts: all, or those within the horizon."""
_INFEASIBLE = 2
"""What HiGHS returns where nothing fulfils the rows."""


@dataclass(frozen=True)
class SpotTerms:
    """Spot nodes as the ladder counts them."""

    usd_per_node_h: float  # of a node that is needed, spares for losses included [$/h]
    max_share: float  # of the nodes of an hour


@dataclass(frozen=True)
class Quota:
    """Most nodes at once; None: no limit that is known."""

    committed: int | None = None
    on_demand: int | None = None
    spot: int | None = None

    def refusal(
        self,
        wanted: Sequence[Hours],
        fixed: Sequence[int],
        spot: SpotTerms | None,
        *,
        sells: bool = True,
    ) -> str:
        """Return which month it is too small for, and which of its parts; or nothing.

        Without ``committed`` any number of nodes may be committed, where any are on
        sale.
        """
        committed = self.committed if sells else 0
        if committed is None or self.on_demand is None:
            return ""
        for month, (hours, held) in enumerate(zip(wanted, fixed, strict=True), 1):
            share = 0 if spot is None else most_spot(spot.max_share, hours.most)
            spare = share if self.spot is None else min(share, self.spot)
            most = max(committed, held) + self.on_demand + spare
            if hours.most > most:
                return (
                    f"month {month} needs {hours.most} "
                    f"node{'' if hours.most == 1 else 's'} at its peak, and the "
                    f"quotas allow {most}: {max(committed, held)} committed, "
                    f"{self.on_demand} on demand, {spare} spot"
                )
        return ""


@dataclass(frozen=True, eq=False)
class Ladder:
    """What to buy in each month, at the least cost."""

    bought: np.ndarray  # nodes of each term, shape (terms, months), int64
    objective_usd: float  # of the choice: terms as they are charged, and the rest [$]
    largest_fraction: float  # of a count of nodes: 0 where the optimum is whole


def ladder(
    wanted: Sequence[Hours],
    terms: Sequence[Term],
    on_demand_usd_per_node_h: float,
    *,
    fixed: Sequence[int] = (),
    spot: SpotTerms | None = None,
    quota: Quota | None = None,
    wacc: float = 0.0,
    charge: str = FULL,
) -> Ladder:
    """Return the commitments that serve all months at the least cost.

    A linear program over the nodes x of each term bought in each month, and those on
    demand o and spot s at each level of a month: the x that run, o and s are at least
    the level. Each column is a run of ones down the rows, so that the optimum is whole
    (totally unimodular). Terms are charged to their end, unless ``charge`` counts the
    months within the horizon alone, which leaves the rest owed. Where a term sells no
    fewer than some nodes, the program has whole numbers. ``fixed`` are nodes of each
    month that are committed already, ``wacc`` the yearly cost of capital.
    """
    held = np.zeros(len(wanted), np.int64) if not len(fixed) else np.asarray(fixed)
    quota = quota or Quota()
    program = _Program(wanted, terms, held, spot, quota)
    objective = program.objective(on_demand_usd_per_node_h, wacc, charge)
    values = program.solved(objective)
    bought = values[: program.choices].reshape(len(terms), len(wanted))
    whole = np.rint(values)
    return Ladder(
        np.rint(bought).astype(np.int64),
        float(objective @ values),
        float(np.abs(values - whole).max(initial=0.0)),
    )


class _Program:
    """The linear program: its rows, columns and limits."""

    def __init__(
        self,
        wanted: Sequence[Hours],
        terms: Sequence[Term],
        fixed: np.ndarray,
        spot: SpotTerms | None,
        quota: Quota,
    ) -> None:
        self._terms, self._spot, self._quota, self._fixed = terms, spot, quota, fixed
        self._months = len(wanted)
        self.choices = len(terms) * self._months
        levels = [
            (month, level - fixed[month], hours, level)
            for month, each in enumerate(wanted)
            for level, hours in zip(each.nodes, each.hours, strict=True)
            if level > fixed[month]
        ]
        self._month = np.array([row[0] for row in levels], np.int64)
        self._missing = np.array([row[1] for row in levels], np.float64)
        self._hours = np.array([row[2] for row in levels], np.float64)
        self._level = np.array([row[3] for row in levels], np.int64)

    def objective(self, on_demand: float, wacc: float, charge: str) -> np.ndarray:
        """Return the dollars of each column."""
        costs = []
        for term in self._terms:
            hourly = term.present_usd_per_node_h(wacc)
            for month in range(self._months):
                left = self._months - month
                counted = term.months if charge == FULL else min(term.months, left)
                costs.append(hourly * HOURS_PER_MONTH * counted)
        parts = [np.array(costs), on_demand * self._hours]
        if self._spot is not None:
            parts.append(self._spot.usd_per_node_h * self._hours)
        return np.concatenate(parts)

    def _running(self, months: np.ndarray) -> "sparse.csr_array":
        """Return which purchase runs in which of some months, one row each."""
        from scipy import sparse

        starts = np.arange(self._months)
        columns = [
            (starts <= months[:, None]) & (months[:, None] < starts + term.months)
            for term in self._terms
        ]
        if not columns:
            return sparse.csr_array((len(months), 0))
        return sparse.csr_array(np.hstack(columns).astype(np.float64))

    def _upper(self) -> np.ndarray:
        """Return the most of each column."""
        most = np.full(len(self._level), np.inf)
        if self._quota.on_demand is not None:
            most[:] = self._quota.on_demand
        parts = [np.full(self.choices, np.inf), most]
        if self._spot is not None:
            levels = self._level.tolist()
            share = np.array([most_spot(self._spot.max_share, n) for n in levels])
            if self._quota.spot is not None:
                share = np.minimum(share, self._quota.spot)
            parts.append(share)
        return np.concatenate(parts)

    def solved(self, objective: np.ndarray) -> np.ndarray:
        """Return the values of the columns at the least cost."""
        from scipy.optimize import linprog

        if not len(self._level):
            return np.zeros(len(objective))
        rows, limits = self._rows(len(objective))
        if any(term.min_nodes > 1 for term in self._terms):
            return self._in_lots(objective, rows, limits)
        found = linprog(
            objective,
            A_ub=rows,
            b_ub=limits,
            bounds=np.column_stack([np.zeros(len(objective)), self._upper()]),
            method="highs-ds",
        )
        return self._values(found, len(objective))

    def _rows(self, width: int) -> "tuple[sparse.csr_array, np.ndarray]":
        """Return the rows and what each is at most: needs negated, then quotas."""
        from scipy import sparse

        kinds = 1 if self._spot is None else 2
        needs = [self._running(self._month)] + [
            sparse.eye_array(len(self._level))
        ] * kinds
        rows, limits = -sparse.hstack(needs, format="csr"), -self._missing
        if self._quota.committed is None or not self._terms:
            return rows, limits
        runs = self._running(np.arange(self._months))
        runs.resize((self._months, width))
        room = np.maximum(self._quota.committed - self._fixed, 0)
        return sparse.vstack([rows, runs], format="csr"), np.append(limits, room)

    def _in_lots(
        self, objective: np.ndarray, rows: "sparse.csr_array", limits: np.ndarray
    ) -> np.ndarray:
        """Return the values where a purchase is of no nodes, or of some at least."""
        from scipy import sparse
        from scipy.optimize import Bounds, LinearConstraint, milp

        width, months = len(objective), self._months
        least = np.repeat([float(term.min_nodes) for term in self._terms], months)
        most = np.maximum(least, self._missing.max())
        count = self.choices
        bought = sparse.eye_array(count, width, format="csr")
        rows.resize((rows.shape[0], width + count))
        lots = [
            LinearConstraint(rows, -np.inf, limits),
            LinearConstraint(sparse.hstack([bought, -sparse.diags_array(least)]), 0),
            LinearConstraint(
                sparse.hstack([bought, -sparse.diags_array(most)]), -np.inf, 0
            ),
        ]
        found = milp(
            np.append(objective, np.zeros(count)),
            constraints=lots,
            bounds=Bounds(0, np.append(self._upper(), np.ones(count))),
            integrality=np.r_[np.ones(count), np.zeros(width - count), np.ones(count)],
            options={"mip_rel_gap": 0.0},
        )
        return self._values(found, width)

    def _values(self, found: Any, width: int) -> np.ndarray:
        if found.status == _INFEASIBLE:
            raise InputError(
                "no commitments within the quotas serve all months: "
                f"{self._quota.committed} committed, {self._quota.on_demand} on demand"
            )
        if found.status != 0:
            raise SolverError(f"the ladder was not solved: {found.message}")
        return np.asarray(found.x[:width], np.float64)
