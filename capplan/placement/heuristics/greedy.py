"""Place requests one after another on the replica of the highest score."""

from collections.abc import Callable

import numpy as np

from capplan.placement.heuristics.open_replicas import OpenReplicas
from capplan.placement.integer_units import integer_units
from capplan.placement.problem import PlacementProblem

Score = Callable[[OpenReplicas], np.ndarray]
"""Score of every open replica, shape (count,)."""


def place_by_score(
    problem: PlacementProblem, score: Score, order: np.ndarray | None = None
) -> np.ndarray:
    """Return the replica of each request, placed in arrival or the given order.

    It is the one of the highest score that fits; when none fits, one is opened.
    """
    state = OpenReplicas(problem)
    if order is None:
        order = np.arange(len(problem))
    for request in order[state.assignment[order] < 0].tolist():
        state.add(_choose(state, request, score), request)
    return state.assignment


def _choose(state: OpenReplicas, request: int, score: Score) -> int:
    fits = state.may_take(request)
    scores = np.where(fits, score(state), -np.inf)
    if state.count:
        row = int(scores.argmax())
        # The whole of (e) for the best row; for the others only where it fails.
        if scores[row] > -np.inf and not state.holds_kv(row, request):
            scores[~state.hold_kv(fits, request)] = -np.inf
            row = int(scores.argmax())
        if scores[row] > -np.inf:
            return row
    return state.open()


def by_falling_share(problem: PlacementProblem) -> np.ndarray:
    """Return the rows by their largest share of any limit, largest first."""
    units = integer_units(problem)
    limit = np.maximum(units.limit[units.tpot_class, 1], 1)
    ceiling = np.maximum(units.prefill_ceiling, 1)
    kv = problem.prompt_tokens + problem.predicted_output_tokens
    share = np.maximum(units.context / limit, kv / problem.template.kv_capacity_tokens)
    # A request that decodes brings no prefill; its ceiling is what it leaves others.
    share = np.maximum(share, np.where(units.prefill > 0, units.prefill / ceiling, 0))
    return np.argsort(-share, kind="stable")
