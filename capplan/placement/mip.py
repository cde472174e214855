"""Solve the placement problem: bounds, heuristics, then a solver for the rest.

A heuristic that meets the lower bound is optimal. Otherwise a solver looks for a
placement with at least one replica fewer than the best one known: it finds one, proves
that there is none, or runs out of time and leaves a gap. KV rows are added when a
solution violates them, so the model stays small; a model with fewer rows that is
infeasible proves as much as the whole one.
"""

import time

import numpy as np

from capplan.errors import InputError, SolverError
from capplan.placement.balance import balance, watched_iterations
from capplan.placement.formulation import (
    FAMILIES,
    Formulation,
    add_kv_rows,
    formulate,
    line_of,
)
from capplan.placement.heuristics import HEURISTICS, heuristic
from capplan.placement.integer_units import IntegerUnits, integer_units
from capplan.placement.pattern_bound import pattern_bound
from capplan.placement.problem import PlacementProblem, kv_over_iterations, violations
from capplan.placement.result import Placement, Status
from capplan.placement.solvers import SOLVERS, Solution, solve_formulation
from capplan.placement.volume_bound import volume_bound

WARM_STARTS = ("best-fit", "best-fit-scaled", "best-fit-decreasing")
"""Heuristics that run before the solver."""

_STEPS_PER_REQUEST = 50
"""Annealing steps for one replica fewer; a second or two for 400 requests."""

_ATTEMPTS = 3
"""Annealing seeds tried for one replica fewer."""

_LARGEST_MODEL = 60_000
"""Variables beyond which building the model would take the whole time limit."""


class _Search:
    """Best placement and bound known so far; mutable, owned by :func:`solve`."""

    def __init__(self, problem: PlacementProblem, units: IntegerUnits):
        self.problem, self.units = problem, units
        self.assignment: np.ndarray | None = None
        self.count: int | None = None
        self.found_by = "none"
        bound = volume_bound(problem, units)
        self.bound, self.bound_source = bound.replicas, f"volume of {bound.resource}"
        self.counts: dict[str, int] = {}

    @property
    def next_count(self) -> int | None:
        """Replicas to try: one fewer than known, or the most allowed; None if any."""
        return self.problem.max_replicas if self.count is None else self.count - 1

    def offer(self, assignment: np.ndarray, name: str) -> None:
        """Keep a placement if it is valid and better."""
        count = len(np.unique(assignment))
        self.counts[name] = min(count, self.counts.get(name, count))
        better = self.count is None or count < self.count
        if better and not violations(self.problem, assignment):
            self.assignment, self.count, self.found_by = assignment, count, name

    def raise_bound(self, bound: float, source: str) -> None:
        """Keep a bound if it is better."""
        if bound < 2**31 and np.ceil(bound - 1e-6) > self.bound:
            self.bound, self.bound_source = int(np.ceil(bound - 1e-6)), source

    def status(self) -> Status:
        """Return what is known of the count, infeasibility aside."""
        if self.count == self.bound:
            return Status.OPTIMAL
        return Status.UNKNOWN if self.count is None else Status.FEASIBLE


def solve(
    problem: PlacementProblem,
    solver: str = "cp-sat",
    time_limit_s: float = 60.0,
    *,
    seed: int = 0,
) -> Placement:
    """Return a placement with the fewest replicas, its lower bound and status.

    After the time limit the best placement known is returned with its gap; of a
    heuristic as the solver, its own placement.
    """
    known = (*SOLVERS, *HEURISTICS)
    if solver not in known:
        raise InputError(f"no solver {solver!r}; expected one of {', '.join(known)}")
    if not time_limit_s > 0:
        raise InputError(f"time limit is {time_limit_s} s; expected more than 0")
    start = time.perf_counter()
    search = _Search(problem, integer_units(problem))
    status, conflict = _run(search, solver, start + time_limit_s, seed)
    return Placement(
        status=status,
        assignment=search.assignment,
        replica_count=search.count,
        lower_bound=search.bound,
        bound_source=search.bound_source,
        found_by=search.found_by,
        solver=solver,
        scale=search.units.scale_text,
        runtime_s=time.perf_counter() - start,
        conflict=conflict,
        heuristic_counts=search.counts,
    )


def _run(
    search: _Search, solver: str, deadline: float, seed: int
) -> tuple[Status, tuple[str, ...]]:
    problem, max_replicas = search.problem, search.problem.max_replicas
    if solver in HEURISTICS:
        search.offer(heuristic(solver)(problem, seed), solver)
        return search.status(), ()
    # Cheap placements first: they bound the model's size, and often meet the bound.
    for name in WARM_STARTS:
        search.offer(heuristic(name)(problem, seed), name)
    if max_replicas is not None and search.bound > max_replicas:
        return Status.INFEASIBLE, _conflict(problem, max_replicas, solver, deadline)
    _squeeze(search, deadline, seed)
    # Column generation costs seconds: only where the volume left a gap.
    if search.count != search.bound:
        _sharpen(search, deadline)
    if search.count == search.bound or _too_large(search):
        return search.status(), ()
    bins = search.next_count
    if bins is None:  # best fit opens what new requests need, so others are at fault
        raise SolverError(f"{problem.source}: the ongoing requests break a constraint")
    # One replica fewer than known is a yes-or-no question, which solvers answer far
    # sooner than they minimise the count.
    solution, assignment = _solve_on(search, bins, solver, deadline, seed)
    if assignment is not None:
        # Solvers work with tolerances: what they return is held to the exact rules.
        broken = violations(problem, assignment)
        if broken:
            raise SolverError(f"{solver} returned a placement that breaks {broken[0]}")
        search.offer(assignment, solver)
    if solution.status == "infeasible":
        if search.count is None:
            return Status.INFEASIBLE, _conflict(problem, bins, solver, deadline)
        search.raise_bound(bins + 1, f"{solver}: no placement on {bins} replicas")
    else:
        search.raise_bound(solution.bound, f"{solver}'s bound")
    return search.status(), ()


def _squeeze(search: _Search, deadline: float, seed: int) -> None:
    """Balance the requests on fewer and fewer replicas, down to the bound."""
    problem, units = search.problem, search.units
    low, next_count = search.bound, search.next_count
    high = (low if next_count is None else next_count) + 1
    while low < high and time.perf_counter() < deadline:
        middle = (low + high) // 2  # a greedy start costs little: halve
        assignment = balance(problem, units, middle)
        if assignment is None:
            low = middle + 1
        else:
            search.offer(assignment, "balance")
            high = middle
    # Then one fewer at a time, by moves that a greedy start does not find. A part of
    # the time is kept for the solver, unless its model could not be built anyway.
    free = int((problem.replica < 0).sum())
    left_s = deadline - time.perf_counter()
    stop = time.perf_counter() + left_s * (0.7 if _too_large(search) else 0.5)
    for attempt in range(_ATTEMPTS):
        while time.perf_counter() < stop:
            target = search.next_count
            if target is None or target < search.bound:
                return
            assignment = balance(
                problem,
                units,
                target,
                start=search.assignment,
                steps=_STEPS_PER_REQUEST * free,
                seed=seed + attempt,
                deadline=stop,
            )
            if assignment is None:
                break  # the next seed
            search.offer(assignment, "balance")


def _too_large(search: _Search) -> bool:
    """Return whether the model has too many variables to be built."""
    bins = search.count if search.count is not None else search.bound
    return bins * int((search.problem.replica < 0).sum()) > _LARGEST_MODEL


def _sharpen(search: _Search, deadline: float) -> None:
    """Raise the bound by patterns where the decode limit is not linear in the batch."""
    units = search.units
    if all(line_of(limit) is not None for limit in units.limit):
        return
    left_s = deadline - time.perf_counter()
    until = deadline if _too_large(search) else time.perf_counter() + left_s / 3
    bound = pattern_bound(search.problem, units, until, search.count)
    search.raise_bound(bound, "patterns of decode SLO (b)")


def _solve_on(
    search: _Search, bins: int, solver: str, deadline: float, seed: int
) -> tuple[Solution, np.ndarray | None]:
    """Solve on at most ``bins`` replicas, adding KV rows until none is violated."""
    problem = search.problem
    watched = watched_iterations(problem.remaining_tokens)
    model = formulate(
        problem,
        bins,
        units=search.units,
        # A few rows of (e) to begin with; those that a solution breaks are added.
        kv_iterations=watched[:: max(len(watched) // 24, 1)],
        least_replicas=search.bound,
    )
    hint = None if search.assignment is None else _hint(model, search.assignment)
    bound = float(search.bound)
    while True:
        left_s = deadline - time.perf_counter()
        if left_s <= 0:
            return Solution("unknown", None, bound), None
        solution = solve_formulation(model, solver, left_s, hint=hint, seed=seed)
        if np.isfinite(solution.bound):
            bound = max(bound, solution.bound)
        if solution.values is None:
            return solution, None
        assignment = model.assignment(solution.values)
        broken = _broken_iterations(model, assignment)
        if len(broken) == 0:
            return solution, assignment
        hint = solution.values.astype(np.int64)
        add_kv_rows(model, broken)


def _broken_iterations(model: Formulation, assignment: np.ndarray) -> np.ndarray:
    """Return the iterations in which a replica of the assignment overflows most."""
    problem = model.problem
    worst = []
    for replica in np.unique(assignment):
        rows = np.flatnonzero(assignment == replica)
        iterations, total = kv_over_iterations(problem, rows)
        if total.max() > problem.template.kv_capacity_tokens:
            worst.append(int(iterations[total.argmax()]))
    return np.setdiff1d(np.array(worst, np.int64), list(model.kv_iterations))


def _hint(model: Formulation, assignment: np.ndarray) -> np.ndarray:
    """Return the variables' values in a placement, -1 where it leaves them open."""
    values = np.full(len(model.names), -1)
    # Replicas in the order in which the largest requests open them: then the
    # formulation's breaking of the symmetry admits the placement.
    row_of = {int(model.replicas[row]): row for row in range(model.ongoing)}
    taken = model.ongoing
    for j, request in enumerate(model.free.tolist()):
        replica = int(assignment[request])
        if replica not in row_of and taken < len(model.replicas):
            row_of[replica] = taken
            taken += 1
        if replica in row_of:
            here = model.x[j] >= 0
            values[model.x[j][here]] = 0
            if model.x[j, row_of[replica]] >= 0:
                values[model.x[j, row_of[replica]]] = 1
    return values


def _conflict(
    problem: PlacementProblem, bins: int, solver: str, deadline: float
) -> tuple[str, ...]:
    """Return a minimal set of constraints that is infeasible on the bins."""
    kept = list(FAMILIES)
    # A deletion filter: leave out one family after another while the rest conflicts.
    for letter in FAMILIES:
        fewer = [other for other in kept if other != letter]
        model = formulate(problem, bins, families="".join(fewer))
        left_s = max(deadline - time.perf_counter(), 1.0)
        if solve_formulation(model, solver, left_s).status == "infeasible":
            kept = fewer
    return (f"at most {bins} replicas", *(FAMILIES[letter] for letter in kept))
