"""LoRA adapters of a replica: which are in its slots and in host memory.

vLLM 0.32, ``lora/worker_manager.py`` and ``lora/model_manager.py``: both caches drop
what was used least recently, and the adapters of each iteration are used by it. Within
an iteration vLLM's order is that of a set; here it is that of admission, and of those
that one iteration used the first row goes. ``replica_memory`` has, after ``FIELDS``,
three columns for each adapter in host memory: its number and 1, the iteration that last
used it, and 1 where it has a slot.
"""

import numpy as np

from capplan.deployment.adapters import Adapters
from capplan.deployment.policy import Knob, Policy, Rules, indices
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase
from capplan.workload.trace import MOST_ADAPTERS

FIELDS = (
    "used",  # schedulings so far
    "distinct",  # adapters of the next iteration
    "load_s",  # for which it waits [s]
    "slots_used",
)
_WIDTH = 3  # columns of an adapter in host memory: these
_NUMBER, _USED, _IN_SLOT = 0, 1, 2
RULES = Rules(
    settings={
        "max_loras": Knob(1),
        "max_cpu_loras": Knob(1),
        "slowdown": Knob(0.0, least=0.0),
        "read_s": Knob(0.0, least=0.0),
        "load_s": Knob(0.0, least=0.0),
        "fetch_s": Knob(0.0, least=0.0),
    },
    async_scheduling=True,
    prefix_caching=True,
    request_columns=("entry",),  # row of its adapter, while it runs
    replica_columns=FIELDS,
    keeps_batch=True,  # iterations are no shorter than without adapters
)
SETTING = indices(RULES.settings)
MEMORY = indices(FIELDS)
_FIRST = len(FIELDS)


def adapters_policy(adapters: Adapters) -> Policy:
    """Return vLLM V1's scheduler as it schedules adapters, which no user names."""
    values = tuple(float(getattr(adapters, name)) for name in RULES.settings)
    rows = tuple(f"row_{k}" for k in range(_WIDTH * adapters.max_cpu_loras))
    rules = RULES._replace(replica_columns=(*FIELDS, *rows))
    return Policy("vllm-v1-lora", rules, values)


def groups_by_adapter(groups: np.ndarray, adapter: np.ndarray) -> np.ndarray:
    """Return prefix groups that requests of different adapters do not share.

    The KV of a prefix depends on the adapter, which vLLM hashes with it.
    """
    return np.where(groups < 0, groups, groups * (MOST_ADAPTERS + 1) + adapter + 1)


@compiled()
def _find(state, r, adapter):
    """Return the row of an adapter in host memory, or NONE."""
    memory = state.replica_memory[r]
    for entry in range(int(state.settings[SETTING.max_cpu_loras])):
        if memory[_FIRST + _WIDTH * entry + _NUMBER] == adapter + 1:
            return entry
    return NONE


@inlined()
def _use(state, r, entry):
    """Count an adapter among those of the next iteration."""
    memory = state.replica_memory[r]
    at = _FIRST + _WIDTH * entry + _USED
    if memory[at] != memory[MEMORY.used]:
        memory[at] = memory[MEMORY.used]
        memory[MEMORY.distinct] += 1.0


@compiled()
def use_running(state, r):
    """Begin an iteration with the adapters of the running requests that are in it."""
    memory = state.replica_memory[r]
    memory[MEMORY.used] += 1.0
    memory[MEMORY.distinct] = 0.0
    memory[MEMORY.load_s] = 0.0
    replica = state.replicas[r]
    has_chunk = replica.batch_tokens + replica.batch_extra_count > 0
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        runs = request.phase == Phase.DECODING
        runs = runs or (request.phase == Phase.PREFILLING and has_chunk)
        if runs and request.adapter != NONE:
            _use(state, r, int(state.request_memory[slot, 0]))
        slot = request.next


@compiled()
def may_join(state, r, slot):
    """Return whether the next iteration may have the adapter of a request too."""
    adapter = state.requests[slot].adapter
    memory = state.replica_memory[r]
    if adapter == NONE or memory[MEMORY.distinct] < state.settings[SETTING.max_loras]:
        return True
    entry = _find(state, r, adapter)
    if entry == NONE:
        return False
    return memory[_FIRST + _WIDTH * entry + _USED] == memory[MEMORY.used]


@compiled()
def _least_recent(state, r, in_slot):
    """Return the row that was used least recently, of all or of those ``in_slot``."""
    memory = state.replica_memory[r]
    best = NONE
    for entry in range(int(state.settings[SETTING.max_cpu_loras])):
        at = _FIRST + _WIDTH * entry
        if in_slot and memory[at + _IN_SLOT] == 0.0:
            continue
        if best == NONE or memory[at + _USED] < memory[_FIRST + _WIDTH * best + _USED]:
            best = entry
    return best


@compiled()
def join_adapter(state, r, slot):
    """Let an admitted request use its adapter; it is loaded where it has no slot."""
    adapter = state.requests[slot].adapter
    if adapter == NONE:
        return
    memory = state.replica_memory[r]
    entry = _find(state, r, adapter)
    if entry == NONE:
        entry = _least_recent(state, r, False)
        at = _FIRST + _WIDTH * entry
        memory[MEMORY.slots_used] -= memory[at + _IN_SLOT]
        memory[at + _NUMBER] = adapter + 1
        memory[at + _USED] = 0.0
        memory[at + _IN_SLOT] = 0.0
        memory[MEMORY.load_s] += state.settings[SETTING.fetch_s]
    at = _FIRST + _WIDTH * entry
    if memory[at + _IN_SLOT] == 0.0:
        if memory[MEMORY.slots_used] == state.settings[SETTING.max_loras]:
            other = _least_recent(state, r, True)
            memory[_FIRST + _WIDTH * other + _IN_SLOT] = 0.0
            memory[MEMORY.slots_used] -= 1.0
        memory[at + _IN_SLOT] = 1.0
        memory[MEMORY.slots_used] += 1.0
        memory[MEMORY.load_s] += state.settings[SETTING.load_s]
    _use(state, r, entry)
    state.request_memory[slot, 0] = entry
