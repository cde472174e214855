"""Lower bound by column generation, for decode limits not linear in the batch size.

Near the fixed iteration time the limit of (b) falls in steps, and it matters which
requests share a replica, which the volume bound ignores. A pattern is a set of requests
that one replica may hold. The bound is the smallest fractional number of patterns that
covers all requests (Gilmore and Gomory, "A linear programming approach to the
cutting-stock problem", Oper. Res. 9 (1961)). Contexts are grouped and rounded down, KV
and prefill ignored: both only admit more patterns, so the bound stays valid.
"""

import time
from datetime import timedelta

import numpy as np

from capplan.placement.integer_units import IntegerUnits
from capplan.placement.problem import PlacementProblem

_GRID = 800
"""Steps of context up to the largest limit."""

_CLASSES = 100


def pattern_bound(
    problem: PlacementProblem,
    units: IntegerUnits,
    deadline: float,
    enough: int | None = None,
) -> int:
    """Return a lower bound on the replicas; 0 with ongoing requests.

    Give every request a price >= 0 and let v be the highest sum of prices of requests
    that satisfy (b) on one replica. Then N is at least the sum of all prices over v
    (Farley, "A note on bounding a class of linear programming problems", Oper. Res. 38
    (1990)). Prices are the duals of the covering problem over the patterns so far. The
    best bound so far is returned at ``deadline`` on ``time.perf_counter`` [s], or when
    it is ``enough``.
    """
    # Replicas with ongoing requests have less room each: no pattern is common to all.
    if (problem.replica >= 0).any():
        return 0
    # With the loosest TPOT for all, and a limit that never rises again as the batch
    # grows: a larger pattern may then always be one of fewer requests and more room.
    limit = np.maximum.accumulate(units.limit[-1][::-1])[::-1]
    batches = np.flatnonzero(limit[1:] >= 0) + 1
    if len(batches) == 0:
        return 0
    pricing = _Pricing(units.context, limit[: batches[-1] + 1])
    columns = pricing.start()
    best = 0
    smooth = np.zeros(0)
    while time.perf_counter() < deadline:
        price = _duals(columns, pricing.count)
        if price is None:
            break
        # Duals of a few patterns jump from one corner to another; their running mean
        # gives good bounds many rounds earlier (any prices give a valid one).
        smooth = price if len(smooth) == 0 else 0.7 * smooth + 0.3 * price
        improved = False
        for trial in (smooth, price):
            value, column = pricing.best(trial)
            if value <= 0:
                break
            bound = float(trial @ pricing.count) / value
            best = max(best, int(np.ceil(bound - 1e-6)))
            # Smooth prices may name a pattern that the duals do not want: then the
            # duals themselves are asked, else no new pattern is left to find.
            if float(price @ column) > 1 + 1e-7:
                columns.append(column)
                improved = True
                break
        if not improved or (enough is not None and best >= enough):
            break
    return best


class _Pricing:
    """Finds the pattern of highest price: a knapsack in (batch, context)."""

    def __init__(self, context: np.ndarray, limit: np.ndarray):
        # Coarser steps round contexts down, which only admits more patterns.
        self.step = max(int(limit[1:].max()) // _GRID, 1)
        self.limit = limit // self.step
        self.size, self.count = _classes(context, self.step)
        batch = np.arange(len(limit))
        # The largest batch of requests all of one class that satisfies (b).
        fits = [np.flatnonzero(size * batch <= self.limit)[-1] for size in self.size]
        self.fits = np.minimum(self.count, fits)  # most of a class in a pattern
        # Packs of 1, 2, 4, … requests: any number that fits is a sum of packs.
        packs = []
        for row, left in enumerate(self.fits.tolist()):
            many = 1
            while left > 0:
                packs.append((row, min(many, left)))
                left -= many
                many *= 2
        self.packs = packs

    def start(self) -> list[np.ndarray]:
        """Return one pattern for every class, with as many of its requests as fit."""
        return list(np.diag(np.maximum(self.fits, 1)))

    def best(self, price: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the highest price of a pattern, and the pattern."""
        top = int(self.limit[1:].max())
        value = np.full((len(self.limit), top + 1), -np.inf)
        value[0] = 0.0
        taken: list[np.ndarray | None] = []
        for row, many in self.packs:
            size = int(self.size[row]) * many
            if price[row] <= 0 or size > top or many >= len(value):
                taken.append(None)
                continue
            # value[b, c] without the pack, against b - many and c - size with it.
            with_it = value[:-many, : top + 1 - size] + price[row] * many
            better = with_it > value[many:, size:]
            np.copyto(value[many:, size:], with_it, where=better)
            taken.append(better)
        batch = np.arange(len(self.limit))
        allowed = np.where(self.limit >= 0, value[batch, self.limit], -np.inf)
        b = int(allowed.argmax())
        c = int(self.limit[b])
        # Walk back through the decisions of each pack to the pattern itself.
        column = np.zeros(len(self.size), np.int64)
        worth = float(allowed[b])
        for (row, many), better in zip(
            reversed(self.packs), reversed(taken), strict=True
        ):
            size = int(self.size[row]) * many
            if better is None or b < many or c < size:
                continue
            if better[b - many, c - size]:
                column[row] += many
                b, c = b - many, c - size
        return worth, column


def _classes(context: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return size and count of groups of contexts, rounded down to steps."""
    sizes, counts = np.unique(context // step, return_counts=True)
    if len(sizes) > _CLASSES:
        # Groups of about equal total context, so that each loses about as much.
        share = np.cumsum(sizes * counts) / max((sizes * counts).sum(), 1)
        group = np.minimum((share * _CLASSES).astype(int), _CLASSES - 1)
        starts = np.unique(group, return_index=True)[1]
        counts = np.add.reduceat(counts, starts)
        sizes = sizes[starts]
    return sizes, counts


def _duals(columns: list[np.ndarray], count: np.ndarray) -> np.ndarray | None:
    """Return the duals: prices under which no pattern so far exceeds 1."""
    from ortools.math_opt.python import mathopt

    model = mathopt.Model(name="prices")
    price = [model.add_variable(lb=0.0) for _ in count]
    for column in columns:
        rows = np.flatnonzero(column).tolist()
        terms = [float(column[row]) * price[row] for row in rows]
        model.add_linear_constraint(mathopt.fast_sum(terms) <= 1)
    model.maximize(
        mathopt.fast_sum(float(n) * p for n, p in zip(count, price, strict=True))
    )
    parameters = mathopt.SolveParameters(time_limit=timedelta(seconds=20))
    result = mathopt.solve(model, mathopt.SolverType.GLOP, params=parameters)
    if not result.has_primal_feasible_solution():
        return None
    return np.maximum(np.array(result.variable_values(price)), 0.0)
