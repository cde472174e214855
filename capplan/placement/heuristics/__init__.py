"""Placement heuristics by name, all with the same signature."""

from collections.abc import Callable

import numpy as np

from capplan.errors import InputError
from capplan.placement.heuristics.blind import BLIND, fewest_that_keep_all
from capplan.placement.heuristics.packing import PACKING
from capplan.placement.problem import PlacementProblem

HEURISTICS = (*PACKING, *BLIND)


def heuristic(name: str) -> Callable[[PlacementProblem, int], np.ndarray]:
    """Return ``place(problem, seed) -> replica of each request``, shape (n,), int64."""
    if name in PACKING:
        return lambda problem, seed: PACKING[name](problem)
    if name in BLIND:
        return lambda problem, seed: fewest_that_keep_all(problem, BLIND[name](seed))
    known = ", ".join(HEURISTICS)
    raise InputError(f"no placement heuristic {name!r}; expected one of {known}")
