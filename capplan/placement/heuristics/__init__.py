"""Placement heuristics: one file each, all with the same signature."""

from collections.abc import Callable
from importlib import import_module

import numpy as np

from capplan.errors import InputError
from capplan.placement.problem import PlacementProblem

Heuristic = Callable[[PlacementProblem, int], np.ndarray]
"""``place(problem, seed) -> replica of each request``, shape (n,), int64."""

HEURISTICS = {
    "best-fit": "best_fit",
    "best-fit-scaled": "best_fit_scaled",
    "first-fit-decreasing": "first_fit_decreasing",
    "best-fit-decreasing": "best_fit_decreasing",
    "worst-fit-decreasing": "worst_fit_decreasing",
    "jsq": "jsq",
    "power-of-two": "power_of_two",
    "round-robin": "round_robin",
}


def heuristic(name: str) -> Heuristic:
    """Return the ``place`` function of the named heuristic."""
    if name not in HEURISTICS:
        known = ", ".join(HEURISTICS)
        raise InputError(f"no placement heuristic {name!r}; expected one of {known}")
    return import_module(f"{__name__}.{HEURISTICS[name]}").place
