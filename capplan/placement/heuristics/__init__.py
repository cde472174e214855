"""Placement heuristics by name, all with the same signature."""

from collections.abc import Callable

import numpy as np

from capplan.errors import InputError
from capplan.placement.heuristics import blind, packing
from capplan.placement.problem import PlacementProblem

Heuristic = Callable[[PlacementProblem, int], np.ndarray]
"""``place(problem, seed) -> replica of each request``, shape (n,), int64."""

HEURISTICS: dict[str, Heuristic] = {
    "best-fit": packing.best_fit,
    "best-fit-scaled": packing.best_fit_scaled,
    "first-fit-decreasing": packing.first_fit_decreasing,
    "best-fit-decreasing": packing.best_fit_decreasing,
    "worst-fit-decreasing": packing.worst_fit_decreasing,
    "jsq": blind.jsq,
    "power-of-two": blind.power_of_two,
    "round-robin": blind.round_robin,
}


def heuristic(name: str) -> Heuristic:
    """Return the named heuristic."""
    if name not in HEURISTICS:
        known = ", ".join(HEURISTICS)
        raise InputError(f"no placement heuristic {name!r}; expected one of {known}")
    return HEURISTICS[name]
