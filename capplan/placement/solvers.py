"""Solve a formulation with CP-SAT, SCIP or HiGHS."""

from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from capplan.errors import SolverError
from capplan.placement.formulation import Formulation

MATH_OPT = {"scip": "GSCIP", "highs": "HIGHS"}
"""Solvers of OR-Tools' MathOpt, by our names."""
SOLVERS = ("cp-sat", *MATH_OPT)

_WORKERS = 2
"""Threads of CP-SAT."""


class Solution(NamedTuple):
    """Result of a solver.

    ``status`` is "optimal", "feasible", "infeasible" or "unknown"; ``bound`` is a lower
    bound on the replicas used, those of ongoing requests included.
    """

    status: str
    values: np.ndarray | None
    bound: float


def solve_formulation(
    model: Formulation,
    solver: str,
    time_limit_s: float,
    *,
    hint: np.ndarray | None = None,
    seed: int = 0,
) -> Solution:
    """Return the solution of the named solver; only CP-SAT takes a hint."""
    if solver == "cp-sat":
        return _cp_sat(model, time_limit_s, hint, seed)
    return _math_opt(model, solver, time_limit_s, seed)


def _cp_sat(
    model: Formulation, time_limit_s: float, hint: np.ndarray | None, seed: int
) -> Solution:
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        raise SolverError(f"CP-SAT cannot be loaded: {error}") from error
    cp = cp_model.CpModel()
    variables = [cp.new_bool_var(name) for name in model.names]
    for index, factors, low, high, _ in model.rows:
        total = cp_model.LinearExpr.weighted_sum([variables[v] for v in index], factors)
        lowest = cp_model.INT_MIN if low is None else low
        highest = cp_model.INT_MAX if high is None else high
        cp.add_linear_constraint(total, lowest, highest)
    used = cp_model.LinearExpr.sum([variables[v] for v in model.objective])
    cp.minimize(used + model.ongoing)
    if hint is not None:
        for variable, value in zip(variables, hint.tolist(), strict=True):
            if value >= 0:
                cp.add_hint(variable, int(value))
    engine = cp_model.CpSolver()
    engine.parameters.max_time_in_seconds = max(time_limit_s, 0.01)
    engine.parameters.num_workers = _WORKERS
    engine.parameters.random_seed = seed
    status = engine.solve(cp)
    if status == cp_model.MODEL_INVALID:
        raise SolverError(f"CP-SAT refuses the model: {cp.validate()}")
    if status == cp_model.INFEASIBLE:
        return Solution("infeasible", None, float("inf"))
    if status == cp_model.UNKNOWN:
        return Solution("unknown", None, engine.best_objective_bound)
    values = np.array([engine.value(variable) for variable in variables])
    name = "optimal" if status == cp_model.OPTIMAL else "feasible"
    return Solution(name, values, engine.best_objective_bound)


def scaled_rows(model: Formulation):
    """Yield the rows scaled to small coefficients, for solvers in doubles."""
    for index, factors, low, high, name in model.rows:
        size = max((abs(c) for c in factors), default=1) or 1
        # By a power of two, which changes no digit of a double.
        size = 1 if size == 1 else 2 ** max(size.bit_length() - 10, 0)
        yield (
            index,
            [c / size for c in factors],
            None if low is None else low / size,
            None if high is None else high / size,
            name,
        )


def math_opt(solver: str) -> Any:
    """Return OR-Tools' interface to SCIP and HiGHS.

    The package highspy is not used: it and OR-Tools' HiGHS cannot share a process.
    """
    try:
        from ortools.math_opt.python import mathopt
    except ImportError as error:
        raise SolverError(f"{solver} cannot be loaded: {error}") from error
    return mathopt


def math_opt_result(
    model: Any, solver: str, time_limit_s: float, seed: int | None = None
) -> Any:
    """Return what SCIP or HiGHS finds of a model."""
    mathopt = math_opt(solver)
    parameters = mathopt.SolveParameters(
        time_limit=timedelta(seconds=time_limit_s),
        relative_gap_tolerance=0.0,
        random_seed=seed,
    )
    kind = getattr(mathopt.SolverType, MATH_OPT[solver])
    try:
        return mathopt.solve(model, kind, params=parameters)
    except (RuntimeError, ValueError) as error:
        raise SolverError(f"{solver} failed: {error}") from error


def _math_opt(
    model: Formulation, solver: str, time_limit_s: float, seed: int
) -> Solution:
    mathopt = math_opt(solver)
    engine = mathopt.Model(name="placement")
    variables = [engine.add_binary_variable(name=name) for name in model.names]
    for index, factors, low, high, name in scaled_rows(model):
        row = engine.add_linear_constraint(
            lb=-np.inf if low is None else low,
            ub=np.inf if high is None else high,
            name=name,
        )
        for v, c in zip(index, factors, strict=True):
            row.set_coefficient(variables[v], c)
    engine.minimize(sum(variables[v] for v in model.objective) + model.ongoing)
    result = math_opt_result(engine, solver, max(time_limit_s, 0.01), seed)
    reason = mathopt.TerminationReason
    # No sum of binaries is unbounded.
    infeasible = (reason.INFEASIBLE, reason.INFEASIBLE_OR_UNBOUNDED)
    if result.termination.reason in infeasible:
        return Solution("infeasible", None, float("inf"))
    bound = result.termination.objective_bounds.dual_bound
    if not result.has_primal_feasible_solution():
        return Solution("unknown", None, bound)
    # Within the tolerance of a solver in doubles, a binary may be 0.9999999.
    values = np.round(np.array(result.variable_values(variables)))
    optimal = result.termination.reason == reason.OPTIMAL
    return Solution("optimal" if optimal else "feasible", values, bound)
