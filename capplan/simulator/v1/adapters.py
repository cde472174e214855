"""LoRA adapters of a replica: which are in its slots and in host memory.

vLLM 0.32, v1/core/sched/scheduler.py: an iteration has at most ``max_loras`` adapters;
a waiting request with another is skipped, and later ones may pass it. Adapters without
a slot are loaded before the iteration starts. As in ``lora/worker_manager.py`` and
``lora/model_manager.py`` both caches drop what was used least recently, and the
adapters of each iteration are used by it. Within an iteration vLLM's order is that of a
set; here it is that of admission, and of those that one iteration used the first row
goes. ``State.adapters`` has three columns for each adapter in host memory: its number
and 1, the iteration that last used it, and 1 where it has a slot.
"""

import numpy as np

from capplan.deployment.adapters import Adapters
from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import Knob, indices
from capplan.simulator.capable import Capability
from capplan.simulator.columns import REPLICA_COLUMNS, places
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Count, State
from capplan.simulator.v1 import encoder_cache
from capplan.workload.trace import MOST_ADAPTERS

SETTINGS = {
    **encoder_cache.SETTINGS,
    "max_loras": Knob(1),
    "max_cpu_loras": Knob(1),
    "slowdown": Knob(0.0, least=0.0),
    "read_s": Knob(0.0, least=0.0),
    "load_s": Knob(0.0, least=0.0),
    "fetch_s": Knob(0.0, least=0.0),
}
SETTING = indices(SETTINGS)
MEMORY = places(REPLICA_COLUMNS, "adapters")
MORE_ADAPTERS = 2
"""``Count.STUCK`` where vLLM stops with an assertion, which can happen on stages."""
WIDTH = 3
"""Columns of an adapter in host memory: these."""
_NUMBER, _USED, _IN_SLOT = range(WIDTH)


def _values(engine: EngineSettings) -> dict[str, float]:
    names = list(SETTINGS)[len(encoder_cache.SETTINGS) :]
    values = {name: float(getattr(engine.adapters, name)) for name in names}
    if engine.pipeline is not None:
        values["read_s"] *= engine.pipeline.share
    return values


CAPABILITY = Capability(
    lambda engine: engine.adapters is not None,
    settings=SETTINGS,
    values=_values,
    keeps_batch=True,  # iterations are no shorter than without adapters
)


def columns_of(adapters: Adapters) -> int:
    """Return the columns of ``State.adapters``."""
    return WIDTH * adapters.max_cpu_loras


def groups_by_adapter(groups: np.ndarray, adapter: np.ndarray) -> np.ndarray:
    """Return prefix groups that requests of different adapters do not share.

    The KV of a prefix depends on the adapter, which vLLM hashes with it.
    """
    return np.where(groups < 0, groups, groups * (MOST_ADAPTERS + 1) + adapter + 1)


@compiled()
def _find(state: State, r: int, adapter):
    """Return the row of an adapter in host memory, or NONE."""
    rows = state.adapters[r]
    for entry in range(int(state.settings[SETTING.max_cpu_loras])):
        if rows[WIDTH * entry + _NUMBER] == adapter + 1:
            return entry
    return NONE


@inlined()
def _use(state: State, r: int, entry):
    """Count an adapter among those of the next iteration."""
    memory = state.replica_memory[r]
    rows = state.adapters[r]
    at = WIDTH * entry + _USED
    if rows[at] != memory[MEMORY.used]:
        rows[at] = memory[MEMORY.used]
        memory[MEMORY.distinct] += 1.0


@inlined()
def stop_with_more(state: State, r: int):
    """Stop where running requests of a step have more adapters than there are slots."""
    distinct = state.replica_memory[r, MEMORY.distinct]
    if distinct > state.settings[SETTING.max_loras]:
        state.counts[Count.STUCK] = MORE_ADAPTERS


@compiled()
def may_join(state: State, r: int, slot: int):
    """Return whether the next iteration may have the adapter of a request too."""
    adapter = state.requests[slot].adapter
    memory = state.replica_memory[r]
    if adapter == NONE or memory[MEMORY.distinct] < state.settings[SETTING.max_loras]:
        return True
    entry = _find(state, r, adapter)
    if entry == NONE:
        return False
    return state.adapters[r, WIDTH * entry + _USED] == memory[MEMORY.used]


@compiled()
def _least_recent(state: State, r: int, in_slot):
    """Return the row that was used least recently, of all or of those ``in_slot``."""
    rows = state.adapters[r]
    best = NONE
    for entry in range(int(state.settings[SETTING.max_cpu_loras])):
        at = WIDTH * entry
        if in_slot and rows[at + _IN_SLOT] == 0.0:
            continue
        if best == NONE or rows[at + _USED] < rows[WIDTH * best + _USED]:
            best = entry
    return best


@compiled()
def join_adapter(state: State, r: int, slot: int):
    """Let a request use its adapter; it is loaded where it has no slot."""
    adapter = state.requests[slot].adapter
    if adapter == NONE:
        return
    memory = state.replica_memory[r]
    rows = state.adapters[r]
    entry = state.requests[slot].adapter_entry
    if rows[WIDTH * entry + _NUMBER] != adapter + 1:
        entry = _find(state, r, adapter)
    if entry == NONE:
        entry = _least_recent(state, r, False)
        at = WIDTH * entry
        memory[MEMORY.slots_used] -= rows[at + _IN_SLOT]
        rows[at + _NUMBER] = adapter + 1
        rows[at + _USED] = 0.0
        rows[at + _IN_SLOT] = 0.0
        state.replicas[r].wait_s += state.settings[SETTING.fetch_s]
    at = WIDTH * entry
    if rows[at + _IN_SLOT] == 0.0:
        if memory[MEMORY.slots_used] == state.settings[SETTING.max_loras]:
            other = _least_recent(state, r, True)
            rows[WIDTH * other + _IN_SLOT] = 0.0
            memory[MEMORY.slots_used] -= 1.0
        rows[at + _IN_SLOT] = 1.0
        memory[MEMORY.slots_used] += 1.0
        state.replicas[r].wait_s += state.settings[SETTING.load_s]
    _use(state, r, entry)
    state.requests[slot].adapter_entry = entry


@inlined()
def begin_adapters(state: State, r: int):
    """Begin an iteration that has no adapters yet."""
    memory = state.replica_memory[r]
    memory[MEMORY.used] += 1.0
    memory[MEMORY.distinct] = 0.0


@inlined()
def note_adapters(state: State, r: int):
    """Note how much longer the next iteration takes with its adapters."""
    distinct = state.replica_memory[r, MEMORY.distinct]
    if distinct > 0:
        state.replicas[r].stretch += state.settings[SETTING.slowdown]
        state.replicas[r].more_s += distinct * state.settings[SETTING.read_s]
