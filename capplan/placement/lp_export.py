"""Write the placement model as .lp or .mps, through PuLP."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError, SolverError
from capplan.files import new_file
from capplan.placement.formulation import Formulation, formulate
from capplan.placement.heuristics.packing import best_fit
from capplan.placement.problem import PlacementProblem
from capplan.placement.solvers import scaled_rows

_WRITERS = {".lp": "writeLP", ".mps": "writeMPS"}


def whole_model(problem: PlacementProblem) -> Formulation:
    """Return the model with every row, on as many replicas as best fit needs."""
    bins = len(np.unique(best_fit(problem)))
    if problem.max_replicas is not None:
        bins = min(bins, problem.max_replicas)
    return formulate(problem, bins)


def write_model(problem: PlacementProblem, path: Path) -> None:
    """Write the whole model as .lp or .mps, by the suffix of the path."""
    if path.suffix not in _WRITERS:
        raise InputError(f"{path}: suffix is {path.suffix!r}; expected .lp or .mps")
    lp = _pulp_problem(whole_model(problem))
    with tempfile.TemporaryDirectory() as folder, new_file(path) as stream:
        written = Path(folder) / path.name
        getattr(lp, _WRITERS[path.suffix])(str(written))
        stream.write(written.read_text(encoding="utf-8"))


def _pulp_problem(model: Formulation) -> Any:
    try:
        # OR-Tools does not load after highspy, which PuLP imports where it can.
        import ortools.sat.python.cp_model  # noqa: F401
        import pulp
    except ImportError as error:
        raise SolverError(f"PuLP cannot be loaded: {error}") from error
    lp = pulp.LpProblem("placement", pulp.LpMinimize)
    variable = getattr(lp, "add_variable", pulp.LpVariable)  # 3.3 renamed it
    variables = [variable(name, cat=pulp.LpBinary) for name in model.names]
    lp += pulp.lpSum(variables[v] for v in model.objective) + model.ongoing
    for index, factors, low, high, name in scaled_rows(model):
        terms = [(variables[v], c) for v, c in zip(index, factors, strict=True)]
        total = pulp.LpAffineExpression(terms)
        if low is not None and low == high:
            lp += total == low, name
            continue
        if low is not None:
            lp += total >= low, f"{name}_low"
        if high is not None:
            lp += total <= high, name
    return lp
