"""Copies of prompts' KV from prefill replicas to decode replicas.

A request that wants a copy waits its turn in the queue. When its prompt fits the free
blocks it takes blocks and its copy begins; it takes no seat and no token of the budget.
Blocks that the prefix cache has here are not copied. Once the scheduler knows of the
copy the request goes before all that wait.

The workers look for copies when they start an iteration, and tell with its result
(``launches=1``): a copy that came during iteration k is found in k + 1. An idle replica
knows at once, and with ``launches=0`` every replica at its next scheduling.

A prefill replica sends one copy at a time, and a decode replica receives one.
"""

from capplan.deployment.policy import Knob, indices
from capplan.simulator.columns import REPLICA_COLUMNS, REQUEST_COLUMNS, places
from capplan.simulator.engine.queues import join_running, remove_waiting, tell
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import (
    adopt_hits,
    ceil_div,
    share_full_blocks,
    take_blocks,
)
from capplan.simulator.state import State

SETTINGS = {
    "block_s": Knob(1e-3, 0, 1e6),  # to copy a block
    "handshake_s": Knob(0.0, 0, 1e6),  # of each copy
    "recomputes": Knob(1, 0, 1),
    "launches": Knob(1, 0, 1),
}
SETTING = indices(SETTINGS)
REQUEST = places(REQUEST_COLUMNS, "copies")
REPLICA = places(REPLICA_COLUMNS, "copies")
SENDING = 5
"""Row of ``State.scratch``: until when each prefill engine sends. [s]"""


@compiled()
def begin_copy(state: State, r: int, slot: int, hits, hits_free, reserved_blocks):
    """Take the blocks of a prompt and begin its copy; return whether they fit.

    ``hits`` of them are found here. So many ``reserved_blocks`` stay free.
    """
    replica = state.replicas[r]
    request = state.requests[slot]
    memory = state.request_memory[slot]
    blocks = ceil_div(request.prompt_tokens, state.engine[0].block_size) - hits
    needed = blocks + hits_free + request.bounded_blocks
    if needed + reserved_blocks > replica.free_blocks:
        return False
    if state.engine[0].prefix_caching != 0:
        adopt_hits(state, r, slot, hits)
    take_blocks(state, r, blocks + request.bounded_blocks)
    sending = state.scratch[SENDING]
    source = int(memory[REQUEST.source]) - 1
    link_s = max(state.replica_memory[r, REPLICA.link_s], sending[source])
    begin_s = max(replica.now_s, link_s)
    ready_s = begin_s + state.settings[SETTING.handshake_s]
    ready_s += blocks * state.settings[SETTING.block_s]
    memory[REQUEST.ready_s] = ready_s
    memory[REQUEST.known] = 0.0
    state.replica_memory[r, REPLICA.link_s] = ready_s
    sending[source] = ready_s
    state.replica_memory[r, REPLICA.wanting] -= 1.0
    tell(state, slot)
    return True


@inlined()
def join_copied(state: State, r: int, slot: int, unfinished):
    """Let a request run whose KV is here, in front of an unfinished prompt."""
    request = state.requests[slot]
    remove_waiting(state, r, slot)
    join_running(state, r, slot, unfinished)
    state.replicas[r].prefill_tokens -= 1
    request.computed_tokens = request.prompt_tokens
    state.request_memory[slot, REQUEST.source] = 0.0
    state.request_memory[slot, REQUEST.ready_s] = 0.0
    if state.engine[0].prefix_caching != 0:
        share_full_blocks(state, r, slot, request.prompt_tokens)


@inlined()
def is_known(state: State, r: int, slot: int, idle):
    """Return whether the scheduler knows of a copy that is here.

    ``idle``: nothing else can run, so that copies are known at once.
    """
    calls = state.replica_memory[r, REPLICA.calls]
    memory = state.request_memory[slot]
    if memory[REQUEST.known] == 0.0:
        later = state.settings[SETTING.launches] * state.engine[0].depth
        memory[REQUEST.known] = calls + later
    return idle or memory[REQUEST.known] <= calls
