"""The integer program of the placement problem, the same for every solver.

Aladdin, section 4.2: a binary x for (request, replica), a binary y for each replica
without ongoing requests; ongoing requests are constants. The right side of (b) depends
on the batch size. Where it is a line, verified for every batch size, it becomes a toll
per request; elsewhere a binary u chooses the batch size of a replica. Both are exact.
Empty replicas are alike: to break the symmetry they are used in order, and the j-th
largest request goes to one of the first j.
"""

from dataclasses import dataclass, field

import numpy as np

from capplan.placement.heuristics.greedy import by_falling_share
from capplan.placement.integer_units import IntegerUnits, integer_units
from capplan.placement.problem import PlacementProblem, kv_tokens, replica_numbers

FAMILIES = {
    "b": "(b) decode SLO",
    "c": "(c) TTFT and (d) time that ongoing requests have saved",
    "e": "(e) KV capacity",
}
"""Constraints that may conflict, by letter."""


@dataclass
class Formulation:
    """Minimize the sum of the ``objective`` variables subject to rows; all binary."""

    problem: PlacementProblem
    units: IntegerUnits
    free: np.ndarray  # requests to place, largest first
    replicas: np.ndarray  # of each bin; the first ``ongoing`` hold ongoing requests
    ongoing: int
    x: np.ndarray  # variable of (row in ``free``, bin); -1 where excluded
    y: np.ndarray  # variable of each bin; -1 for a bin with ongoing requests
    names: list[str] = field(default_factory=list)  # of the variables
    # (variables, coefficients, lowest, highest, name), in integers
    rows: list[tuple[list[int], list[int], int | None, int | None, str]] = field(
        default_factory=list
    )
    objective: list[int] = field(default_factory=list)  # bins that may stay empty
    kv_iterations: set[int] = field(default_factory=set)  # in which (e) is stated

    def variable(self, name: str) -> int:
        """Add a binary variable."""
        self.names.append(name)
        return len(self.names) - 1

    def row(self, terms, low: int | None, high: int | None, name: str) -> None:
        """Add ``low <= sum of coefficient * variable <= high``."""
        kept = [(v, int(c)) for v, c in terms if v >= 0 and c != 0]
        self.rows.append(([v for v, _ in kept], [c for _, c in kept], low, high, name))

    def implies(self, variable: int, other: int, name: str) -> None:
        """Let a variable that is 1 switch another one on; excluded ones do not."""
        if variable >= 0:
            self.row([(int(variable), 1), (int(other), -1)], None, 0, name)

    def on_bin(self, bin_: int, weights: np.ndarray):
        """Return the terms w_j x_ij of a bin; weights by row of ``free``."""
        return list(zip(self.x[:, bin_].tolist(), weights.tolist(), strict=True))

    def assignment(self, values: np.ndarray) -> np.ndarray:
        """Return the replica of each request, from the values of the variables."""
        assignment = self.problem.replica.copy()
        chosen = np.where(self.x >= 0, values[self.x] > 0.5, False)
        assignment[self.free] = self.replicas[chosen.argmax(axis=1)]
        return assignment


def formulate(
    problem: PlacementProblem,
    bins: int,
    *,
    units: IntegerUnits | None = None,
    kv_iterations: np.ndarray | None = None,
    families: str = "bce",
    least_replicas: int = 0,
) -> Formulation:
    """Return the integer program on at most ``bins`` replicas.

    (e) is stated in ``kv_iterations``, by default in all that can bind; ``families``
    are the constraints to state, of ``FAMILIES``; ``least_replicas`` is a known
    lower bound.
    """
    units = integer_units(problem) if units is None else units
    order = by_falling_share(problem)
    free = order[problem.replica[order] < 0]
    ongoing = len(problem.ongoing_replicas)
    bins = max(bins, ongoing, 1)
    replicas = replica_numbers(problem, bins)
    x, y = np.full((len(free), bins), -1), np.full(bins, -1)
    model = Formulation(problem, units, free, replicas, ongoing, x, y)
    _variables(model)
    _place_each_once(model, least_replicas)
    if "b" in families:
        _decode_rows(model)
    if "c" in families:
        _prefill_rows(model)
    if "e" in families:
        if kv_iterations is None:
            kv_iterations = np.unique(problem.remaining_tokens)
        add_kv_rows(model, kv_iterations)
    return model


def _variables(model: Formulation) -> None:
    for i in range(model.ongoing, len(model.replicas)):
        model.y[i] = model.variable(f"y_{i}")
    model.objective = model.y[model.ongoing :].tolist()
    for j in range(len(model.free)):
        # At most j requests come before it: one of the first j + 1 fresh ones is empty.
        for i in range(min(len(model.replicas), model.ongoing + j + 1)):
            model.x[j, i] = model.variable(f"x_{i}_{model.free[j]}")


def _place_each_once(model: Formulation, least_replicas: int) -> None:
    for j, request in enumerate(model.free):
        terms = [(v, 1) for v in model.x[j].tolist()]
        model.row(terms, 1, 1, f"a_{request}")
    for i in range(model.ongoing, len(model.replicas)):
        # One row a request, not one for all: the linear relaxation is tighter.
        for j, request in enumerate(model.free):
            model.implies(model.x[j, i], model.y[i], f"f_{i}_{request}")
        # (f) from the other side: a replica is used only with a request on it.
        terms = [(v, -1) for v in model.x[:, i].tolist()]
        model.row([(int(model.y[i]), 1), *terms], None, 0, f"used_{i}")
        # Empty replicas are alike: used in order, no placement counts twice.
        if i > model.ongoing:
            model.implies(model.y[i], model.y[i - 1], f"order_{i}")
    if least_replicas > model.ongoing:
        terms = [(v, 1) for v in model.objective]
        model.row(terms, least_replicas - model.ongoing, None, "least")


def _ongoing_rows(model: Formulation, bin_: int) -> np.ndarray:
    if bin_ >= model.ongoing:
        return np.empty(0, np.int64)
    return np.flatnonzero(model.problem.replica == model.replicas[bin_])


def _classes_on(model: Formulation, bin_: int, value: np.ndarray, letter: str):
    """Yield each limit of a bin with the variable that switches it on, or -1.

    ``value`` orders the limits of the requests by tightness; the loosest always holds.
    """
    levels = np.unique(value[model.free])
    ongoing = _ongoing_rows(model, bin_)
    if len(ongoing):
        # Limits above that of an ongoing request never bind.
        held = value[ongoing].min()
        levels = np.union1d(levels[levels < held], [held])
    for level in levels[::-1].tolist():
        switch = -1
        if level != levels[-1]:
            switch = model.variable(f"{letter}_{bin_}_{level}")
            for j in np.flatnonzero(value[model.free] <= level).tolist():
                name = f"{letter}on_{bin_}_{level}_{j}"
                model.implies(model.x[j, bin_], switch, name)
        yield level, switch


def _decode_rows(model: Formulation) -> None:
    units, free = model.units, model.free
    context = units.context[free]
    lines = [line_of(limit) for limit in units.limit]
    for i in range(len(model.replicas)):
        ongoing = _ongoing_rows(model, i)
        held, batch = int(units.context[ongoing].sum()), len(ongoing)
        choice = None
        for level, switch in list(_classes_on(model, i, units.tpot_class, "z")):
            line = lines[level]
            name = f"b_{i}_{level}"
            if line is not None:
                scale, toll, top, max_batch = line
                weights = scale * context + toll
                room = top - scale * held - toll * batch
                _switched_row(model, i, weights, room, switch, name)
                # Beyond the largest batch the line goes on, where the limit is -1.
                each = np.ones(len(free), np.int64)
                left = max_batch - batch
                _switched_row(model, i, each, left, switch, name + "_batch")
                continue
            if choice is None:
                max_batch = min(units.limit.shape[1] - 1, batch + len(free))
                choice = _choose_batch(model, i, batch, max_batch)
            limit = np.maximum(units.limit[level], -1)
            terms = model.on_bin(i, context)
            terms += [(u, -int(limit[b])) for b, u in choice]
            # Big M: unswitched, all requests at a limit of -1 satisfy the row.
            slack = int(context.sum()) + held + 1 if switch >= 0 else 0
            model.row([*terms, (switch, slack)], None, slack - held, name)


def _switched_row(
    model: Formulation,
    bin_: int,
    weights: np.ndarray,
    room: int,
    switch: int,
    name: str,
) -> None:
    """Add ``weights on the bin <= room``; where there is a switch, only if it is 1."""
    # Big M, no larger than needed: it weakens the linear relaxation.
    slack = max(int(weights.sum()) - room, 0) if switch >= 0 else 0
    terms = [*model.on_bin(bin_, weights), (switch, slack)]
    model.row(terms, None, room + slack, name)


def _choose_batch(model: Formulation, bin_: int, batch: int, max_batch: int):
    """Add one variable for each batch size of a bin, of which one is chosen."""
    sizes = range(batch, max_batch + 1)
    choice = [(b, model.variable(f"u_{bin_}_{b}")) for b in sizes]
    model.row([(u, 1) for _, u in choice], 1, 1, f"size_{bin_}")
    ones = np.ones(len(model.free), np.int64)
    terms = [*model.on_bin(bin_, ones), *((u, -b) for b, u in choice)]
    model.row(terms, -batch, -batch, f"batch_{bin_}")
    return choice


def line_of(limit: np.ndarray) -> tuple[int, int, int, int] | None:
    """Return (scale, toll, top, largest batch) of a line equal to the limit, or None.

    For every integer context >= 0 and batch b up to the largest, ``context <=
    limit[b]`` is equivalent to ``scale * context + toll * b <= top``. The limit is a
    line rounded down, so finer units are tried until it rounds to the same numbers.
    """
    usable = np.flatnonzero(limit[1:] >= 0) + 1
    if len(usable) == 0 or usable[-1] != len(usable):
        return None
    max_batch = int(usable[-1])
    batch = np.arange(1, max_batch + 1)
    values = limit[1 : max_batch + 1]
    slope = -float(np.polyfit(batch, values, 1)[0]) if max_batch > 1 else 0.0
    for scale in (1, 2**8, 2**16, 2**20, 2**24):
        toll = max(round(scale * slope), 0)
        # Each batch must allow its limit, and must not allow one more.
        lowest = int((scale * values + toll * batch).max())
        highest = int((scale * (values + 1) + toll * batch).min()) - 1
        if lowest <= highest:
            return scale, toll, lowest, max_batch
    return None


def _prefill_rows(model: Formulation) -> None:
    weights = model.units.prefill[model.free]
    for i in range(len(model.replicas)):
        ceilings = _classes_on(model, i, model.units.prefill_ceiling, "v")
        for level, switch in list(ceilings):
            # The loosest limit is left out where all prefills together are below it.
            if switch >= 0 or int(weights.sum()) > level:
                _switched_row(model, i, weights, level, switch, f"c_{i}_{level}")


def add_kv_rows(model: Formulation, iterations: np.ndarray) -> None:
    """State (e) in more iterations."""
    problem = model.problem
    fresh = sorted(set(np.asarray(iterations).tolist()) - model.kv_iterations)
    model.kv_iterations.update(fresh)
    weights = kv_tokens(problem, model.free, np.array(fresh))
    for i in range(len(model.replicas)):
        held = kv_tokens(problem, _ongoing_rows(model, i), np.array(fresh)).sum(axis=0)
        reachable = model.x[:, i] >= 0
        for k, iteration in enumerate(fresh):
            room = problem.template.kv_capacity_tokens - int(held[k])
            # No row where all requests that may come here fit at once.
            if int(weights[reachable, k].sum()) > room:
                name = f"e_{i}_{iteration}"
                model.row(model.on_bin(i, weights[:, k]), None, room, name)
