"""What a router remembers of replicas that come, leave or change their rows.

The heads of the holders' lists are the first runs, so these move where there are more
replicas; see prefix_memory.py.
"""

from typing import Any

import numpy as np
from numba import types

from capplan.simulator.jit import compiled
from capplan.simulator.memory.hash_ring import POINTS, place_points
from capplan.simulator.memory.prefix_memory import forget, link_unused, room_for_runs
from capplan.simulator.memory.run_table import fill_table
from capplan.simulator.state import NONE, STATE, Count, State, records

_LINKS = ("holder", "next", "previous", "above", "below")
"""Columns of RUN that say which other run."""
_ROWS = ("entry", "point")
"""Columns that are not of the run in their row."""


@compiled(types.void(STATE, types.int64))
def forget_replica(state: Any, r: int) -> None:
    """Forget what a replica was sent; what it has not finished is still charged."""
    replicas = state.replicas.shape[0]
    for holder in range(r, state.counts[Count.HOLDERS], replicas):
        forget(state, holder)
        state.runs[holder].count = 0


def with_moved_holders(state: State, place: np.ndarray) -> State:
    """Return the state with what is remembered of the replicas in their new rows.

    The replicas are in their new order, further ones behind; ``place`` is the new row
    of each old one, shape (old replicas,).
    """
    if len(state.runs) == 0:
        return state
    before, after = len(place), len(state.replicas)
    holders = int(state.counts[Count.HOLDERS])
    lists = holders // before
    shift = lists * (after - before)
    end = len(state.runs) // 2  # of the runs in use, and of those that may be
    points = POINTS * after if state.counts[Count.POINTS] else 0
    length = room_for_runs(end + shift, points)
    to = np.arange(end) + shift
    rows = np.arange(lists)[:, np.newaxis] * after + place
    to[:holders] = rows.ravel()
    runs = records(length, state.runs.dtype)
    for name in set(state.runs.dtype.names or ()) - set(_ROWS):
        column = state.runs[name][:end]
        if name in _LINKS:
            column = _moved(column, to)
        runs[name][to] = column
    runs["holder"][end + shift :] = NONE
    runs["entry"] = NONE
    state = state._replace(runs=runs)
    _add_heads(state, rows)
    state.requests["charged_holder"] = _moved(state.requests["charged_holder"], to)
    unused = state.counts[Count.UNUSED_RUN]
    if unused != NONE:
        state.counts[Count.UNUSED_RUN] = to[unused]
    state.counts[Count.HOLDERS] = lists * after
    if length // 2 > end + shift:
        link_unused(state, end + shift)
    fill_table(state)
    if state.counts[Count.POINTS]:
        place_points(state)
    return state


def _moved(indices: np.ndarray, to: np.ndarray) -> np.ndarray:
    """Return where the runs are now; NONE stays."""
    return np.where(indices == NONE, NONE, to[np.maximum(indices, 0)])


def _add_heads(state: State, rows: np.ndarray) -> None:
    """Let the holders of new replicas have empty lists; ``rows`` are the others."""
    heads = np.setdiff1d(np.arange(len(rows) * len(state.replicas)), rows)
    state.runs["holder"][heads] = NONE
    state.runs["next"][heads] = state.runs["previous"][heads] = heads
