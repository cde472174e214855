"""Place a heartbeat on a given number of replicas by balancing their loads.

If every one of N replicas carries 1/N of every resource, N are enough whenever the
volume bound is at most N. Requests are placed largest first, each where the highest
share of any resource stays lowest (greedy vector scheduling). Then simulated annealing
on the sum of overloads moves and swaps requests between an overloaded replica and
another until none is overloaded.
"""

import time

import numpy as np

from capplan.placement.heuristics.greedy import by_falling_share
from capplan.placement.integer_units import IntegerUnits
from capplan.placement.kv_profile import kv_at
from capplan.placement.problem import PlacementProblem, replica_numbers, violations

_MAX_COLUMNS = 768
_CELLS = 60_000
"""Watched KV iterations times replicas."""

_CANDIDATES = 32
"""Swaps compared in one step."""

_TOLERANCE = 1e-9

_HEAT = 0.003
"""Mean overload accepted by a step at the start. [replicas]"""


class Loads:
    """Loads of the replicas, in columns; mutable, owned by one search.

    Context and batch size come first, since their share of the limit of (b) is not
    additive; then the shares of prefill and of KV in each watched iteration.
    """

    def __init__(self, problem: PlacementProblem, units: IntegerUnits, count: int):
        self.problem, self.units = problem, units
        remaining = problem.remaining_tokens
        max_columns = min(max(_CELLS // count, 24), _MAX_COLUMNS)
        self.iterations = watched_iterations(remaining, max_columns)
        self.replicas = replica_numbers(problem, count)
        self.weights = self._weights(remaining)
        self.load = np.zeros((count, self.weights.shape[1]))
        # The tightest TPOT for all requests.
        limit = units.limit[0].astype(float)
        # None below a hundredth of the largest, so that shares stay finite.
        self.limit = np.maximum(limit, 0.01 * max(float(limit.max()), 1.0))
        self.limit[0] = np.inf
        self.row = np.full(len(problem), -1)
        for row, replica in enumerate(problem.ongoing_replicas):
            here = problem.replica == replica
            self.row[here] = row
            self.load[row] = self.weights[here].sum(axis=0)
            # (d) leaves this replica less: the difference counts as prefill on it.
            ceiling = max(int(units.prefill_ceiling[here].min()), 1)
            self.load[row, 2] = max(0.0, 1 - ceiling / self.prefill_room)

    def _weights(self, remaining: np.ndarray) -> np.ndarray:
        problem, units = self.problem, self.units
        new = units.prefill > 0
        ceilings = units.prefill_ceiling[new]
        self.prefill_room = max(int(ceilings.min()), 1) if new.any() else 1
        now = problem.held_tokens
        block = problem.template.block_tokens
        # Counting a request until the next watched iteration never understates KV.
        lasting = self.iterations[np.searchsorted(self.iterations, remaining)]
        kv = kv_at(now, lasting, self.iterations, block)
        return np.column_stack(
            [
                units.context,
                np.ones(len(problem)),
                units.prefill / self.prefill_room,
                kv / problem.template.kv_capacity_tokens,
            ]
        )

    def fullest(self, load: np.ndarray) -> np.ndarray:
        """Return the highest share of any limit, over the last axis of the loads."""
        batch = np.minimum(load[..., 1].astype(np.int64), len(self.limit) - 1)
        decode = load[..., 0] / self.limit[batch]
        return np.maximum(decode, load[..., 2:].max(axis=-1))

    def follow(self, assignment: np.ndarray) -> None:
        """Place free requests as assigned, except on the smallest replicas too many."""
        ongoing = len(self.problem.ongoing_replicas)
        others, size = np.unique(assignment, return_counts=True)
        fresh = ~np.isin(others, self.replicas[:ongoing])
        kept = others[fresh][np.argsort(-size[fresh])][: len(self.load) - ongoing]
        row_of = {int(self.replicas[row]): row for row in range(ongoing)}
        row_of |= {int(replica): ongoing + i for i, replica in enumerate(kept)}
        for request in np.flatnonzero(self.row < 0).tolist():
            row = row_of.get(int(assignment[request]), -1)
            self.row[request] = row
            if row >= 0:
                self.load[row] += self.weights[request]

    def spread(self) -> None:
        """Place the other requests, largest first, where the load stays lowest."""
        order = by_falling_share(self.problem)
        for request in order[self.row[order] < 0].tolist():
            after = self.load + self.weights[request]
            row = int(self.fullest(after).argmin())
            self.load[row] = after[row]
            self.row[request] = row


def watched_iterations(remaining: np.ndarray, max_columns: int = 96) -> np.ndarray:
    """Return iterations spread evenly over the completions, shape (k,)."""
    ends = np.unique(remaining)
    if len(ends) <= max_columns:
        return ends
    # By rank: where most requests end, KV changes most.
    ranks = np.linspace(0, 1, max_columns)
    return np.union1d(np.quantile(remaining, ranks, method="nearest"), ends[-1:])


def balance(
    problem: PlacementProblem,
    units: IntegerUnits,
    count: int,
    *,
    start: np.ndarray | None = None,
    steps: int = 0,
    seed: int = 0,
    deadline: float = float("inf"),
) -> np.ndarray | None:
    """Return a valid assignment on ``count`` replicas, or None if none is found.

    ``count`` includes replicas with ongoing requests. The start is greedy or an
    assignment to more replicas, of which those with fewest requests are emptied;
    ``steps`` of annealing follow, until ``deadline`` on ``time.perf_counter``. [s]
    """
    loads = Loads(problem, units, count)
    if start is not None:
        loads.follow(start)
    loads.spread()
    overloaded = loads.fullest(loads.load).max() > 1 + _TOLERANCE
    if overloaded and (steps == 0 or not _anneal(loads, steps, seed, deadline)):
        return None
    assignment = loads.replicas[loads.row]
    # Shares have a tolerance, and small limits were raised: the exact rules decide.
    return None if violations(problem, assignment) else assignment


def _anneal(loads: Loads, steps: int, seed: int, deadline: float) -> bool:
    """Move and swap requests; return whether no replica is overloaded any more."""
    rng = np.random.default_rng(seed)
    load, nobody = loads.load, len(loads.weights)
    # ``nobody`` is a request of no weight: a swap with it is a move.
    weights = np.vstack([loads.weights, np.zeros(load.shape[1])])
    free = loads.problem.replica < 0
    members = [
        [*np.flatnonzero((loads.row == row) & free).tolist(), nobody]
        for row in range(len(load))
    ]
    over = np.maximum(loads.fullest(load) - 1, 0)
    for step in range(steps):
        overloaded = np.flatnonzero(over > _TOLERANCE)
        if len(overloaded) == 0:
            return True
        if step % 256 == 0 and time.perf_counter() > deadline:
            return False
        a = int(overloaded[rng.integers(len(overloaded))])
        b = int(rng.integers(len(load)))
        if a == b:
            continue
        out = np.array(members[a])[rng.integers(len(members[a]), size=_CANDIDATES)]
        back = np.array(members[b])[rng.integers(len(members[b]), size=_CANDIDATES)]
        change = weights[back] - weights[out]
        after_a, after_b = load[a] + change, load[b] - change
        total = np.maximum(loads.fullest(after_a) - 1, 0)
        total += np.maximum(loads.fullest(after_b) - 1, 0)
        best = int(total.argmin())
        # Metropolis: worse by h with probability exp(-h / T), T falling to 0.
        heat = _HEAT * (1 - step / steps) * rng.exponential()
        if total[best] > over[a] + over[b] + heat:
            continue
        load[a], load[b] = after_a[best], after_b[best]
        over[[a, b]] = np.maximum(loads.fullest(load[[a, b]]) - 1, 0)
        for request, source, target in ((out[best], a, b), (back[best], b, a)):
            if request != nobody:
                members[source].remove(request)
                members[target].append(int(request))
                loads.row[request] = target
    return False
