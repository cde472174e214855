"""Rows of replicas in the arrays of a pool: made new, put in another order, added."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numba import types

from capplan.simulator.fleet.motion import Beat, Motion
from capplan.simulator.jit import compiled
from capplan.simulator.kv.kvcache import fill_free_blocks
from capplan.simulator.memory.memory_rows import with_moved_holders
from capplan.simulator.state import (
    LIMIT_COUNT,
    NONE,
    STATE,
    Phase,
    State,
    grown_records,
    idle_replicas,
    unused_blocks,
)

_BY_ROW = (
    *("replica_memory", "adapters", "encoded", "ends", "residues", "gaps"),
    *("blocks", "spare", "table", "segments", "tips"),
)
"""Arrays of ``State`` with a row for each replica, or for each rank of groups."""


@compiled(types.void(STATE, types.int64))
def _fill(state: Any, row: int) -> None:
    kv_blocks = state.engine[0].kv_blocks
    if state.engine[0].ranks > 0:
        fill_free_blocks(state.by_rank, row, kv_blocks)
    else:
        fill_free_blocks(state, row, kv_blocks)


def rows_of(state: State, replicas: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the rows of replicas, of groups those of their ranks, one behind other."""
    count = max(1, int(state.engine[0].ranks))
    return (np.asarray(replicas)[:, np.newaxis] * count + np.arange(count)).ravel()


def _renewed(records: np.recarray, r: int, now_s: float, kept: Sequence[str]) -> None:
    """Make a record that of an idle replica or rank; it has counted iterations."""
    before = records[r].copy()
    records[r] = idle_replicas(1)[0]
    replica = records[r]
    for name in ("step", "prompt_steps", *kept):
        replica[name] = before[name]
    replica.wave_step = before["step"]
    replica.now_s = replica.gpu_s = replica.decoded_s = now_s


def renew(state: State, r: int, now_s: float) -> None:
    """Make a replica idle and empty, with nothing cached; it has counted iterations."""
    _renewed(state.replicas, r, now_s, ("number", "looks"))
    state.replicas[r].host_free_blocks = state.engine[0].host_blocks
    state.scratch[0, r] = 0.0  # what a router remembers of it
    is_group = state.engine[0].ranks > 0
    for row in rows_of(state, [r]).tolist():
        if is_group:
            _renewed(state.ranks, row, now_s, ())
        for name in ("replica_memory", "adapters", "encoded"):
            getattr(state, name)[row] = 0.0
        state.residues[row] = 0
        unused_blocks(state, row)
        _fill(state, row)
    if is_group:
        state.replicas[r].free_blocks = state.engine[0].kv_blocks


def is_idle(state: State, r: int) -> bool:
    """Return whether no request is on a replica, and none is on its way."""
    replica = state.replicas[r]
    return bool(replica.outstanding == 0 and replica.awaited == 0)


def _places(index: np.ndarray) -> np.ndarray:
    """Return the new place of each row; ``index`` has the old ones in new order."""
    place = np.empty(len(index), np.int64)
    place[index] = np.arange(len(index))
    return place


def _arrays(
    state: State, replicas: np.ndarray, rows: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays that have rows of replicas, with those of these replicas."""
    yield "replicas", replicas
    if state.engine[0].ranks > 0:
        yield "ranks", rows
    for name in _BY_ROW:
        yield name, rows


def with_order(state: State, motion: Motion, order: list[int]) -> State:
    """Return the state with the replicas in another order; ``order`` has old rows."""
    index = np.array(order)
    place = _places(index)
    rows = rows_of(state, index)
    changed: dict[str, Any] = {}
    for name, by in _arrays(state, index, rows):
        changed[name] = getattr(state, name)[by].view(type(getattr(state, name)))
    taken = state.requests["phase"] != Phase.FREE
    state.requests["replica"][taken] = _places(rows)[state.requests["replica"][taken]]
    classes = state.classes.copy()
    classes[:, LIMIT_COUNT:] = classes[:, LIMIT_COUNT:][:, rows]
    state.scratch[0, : len(index)] = state.scratch[0, index]
    motion.moves[:] = motion.moves[index]
    motion.busy[:] = motion.busy[index]
    errors = motion.beats[Beat.TOKENS : Beat.REQUESTS + 1]
    errors[:] = errors[:, index]
    motion.wake_s[: len(index)] = motion.wake_s[: len(index)][index]
    moving = motion.moves["slot"] != NONE
    known = moving & (motion.moves["destination"] != NONE)
    motion.moves["destination"][known] = place[motion.moves["destination"][known]]
    motion.events["source"] = place[motion.events["source"]]
    return with_moved_holders(state._replace(classes=classes, **changed), place)


def with_more_replicas(state: State, count: int) -> State:
    """Return the state with ``count`` further replicas, closed and idle."""
    before = len(state.replicas)
    new = np.arange(before, before + count)
    rows = rows_of(state, new)
    changed: dict[str, Any] = {}
    for name, by in _arrays(state, new, rows):
        array = getattr(state, name)
        more = np.zeros((len(by), *array.shape[1:]), array.dtype)
        changed[name] = np.concatenate([array, more]).view(type(array))
    gaps = np.zeros((len(state.classes), len(rows)))
    scratch = np.zeros(
        (len(state.scratch), max(state.scratch.shape[1], before + count))
    )
    scratch[:, : state.scratch.shape[1]] = state.scratch
    # Each may end one:
    results = grown_records(state.results, len(state.results) + count)
    larger = state._replace(
        classes=np.concatenate([state.classes, gaps], axis=1),
        results=results,
        scratch=scratch,
        **changed,
    )
    larger = with_moved_holders(larger, np.arange(before))
    for r in new.tolist():
        renew(larger, r, 0.0)
    return larger
