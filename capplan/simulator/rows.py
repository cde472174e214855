"""Rows of replicas in the arrays of a pool: made new, put in another order, added."""

from typing import Any

import numpy as np
from numba import types

from capplan.simulator.jit import compiled
from capplan.simulator.kvcache import fill_free_blocks
from capplan.simulator.memory_rows import with_moved_holders
from capplan.simulator.motion import Beat, Motion
from capplan.simulator.state import (
    LIMIT_COUNT,
    NONE,
    STATE,
    Phase,
    State,
    grown,
    idle_replicas,
    unused_blocks,
)

_BY_REPLICA = (
    "replicas",
    "replica_memory",
    "ends",
    "residues",
    "gaps",
    "blocks",
    "spare",
    "table",
)
"""Arrays of ``State`` with a row for each replica."""


@compiled(types.void(STATE, types.int64))
def _fill(state: Any, r: int) -> None:
    fill_free_blocks(state, r, state.engine[0].kv_blocks)


def renew(state: State, r: int, now_s: float) -> None:
    """Make a replica idle and empty, with nothing cached; it has counted iterations."""
    before = state.replicas[r].copy()
    state.replicas[r] = idle_replicas(1)[0]
    replica = state.replicas[r]
    for name in ("step", "prompt_steps", "seen_waiting", "seen_kv_use", "number"):
        replica[name] = before[name]
    replica.now_s = replica.gpu_s = replica.decoded_s = now_s
    replica.host_free_blocks = state.engine[0].host_blocks
    for name in ("replica_memory", "residues"):
        getattr(state, name)[r] = 0
    state.scratch[0, r] = 0.0  # what a router remembers of it
    unused_blocks(state, r)
    _fill(state, r)


def is_idle(state: State, r: int) -> bool:
    """Return whether no request is on a replica, and none is on its way."""
    replica = state.replicas[r]
    return bool(replica.outstanding == 0 and replica.awaited == 0)


def with_order(state: State, motion: Motion, order: list[int]) -> State:
    """Return the state with the replicas in another order; ``order`` has old rows."""
    index = np.array(order)
    place = np.empty(len(index), np.int64)
    place[index] = np.arange(len(index))
    changed: dict[str, Any] = {
        name: getattr(state, name)[index].view(type(getattr(state, name)))
        for name in _BY_REPLICA
    }
    taken = state.requests["phase"] != Phase.FREE
    state.requests["replica"][taken] = place[state.requests["replica"][taken]]
    classes = state.classes.copy()
    classes[:, LIMIT_COUNT:] = classes[:, LIMIT_COUNT:][:, index]
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
    changed: dict[str, Any] = {}
    for name in _BY_REPLICA:
        array = getattr(state, name)
        more = np.zeros((count, *array.shape[1:]), array.dtype)
        changed[name] = np.concatenate([array, more]).view(type(array))
    gaps = np.zeros((len(state.classes), count))
    scratch = np.zeros(
        (len(state.scratch), max(state.scratch.shape[1], before + count))
    )
    scratch[:, : state.scratch.shape[1]] = state.scratch
    results = grown(state.results, len(state.results) + count)  # each may end one
    larger = state._replace(
        classes=np.concatenate([state.classes, gaps], axis=1),
        results=results.view(np.recarray),
        scratch=scratch,
        **changed,
    )
    larger = with_moved_holders(larger, np.arange(before))
    for r in range(before, before + count):
        renew(larger, r, 0.0)
    return larger
