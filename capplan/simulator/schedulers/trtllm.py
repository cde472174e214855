"""TensorRT-LLM: prompts join the decodes; admission by the answer's limit, or eviction.

As in TensorRT-LLM, cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp and
microBatchScheduler.cpp. The engine's ``max_num_batched_tokens`` is ``max_num_tokens``,
``max_num_seqs`` is ``max_batch_size``, ``block_size`` is ``tokens_per_block``. Requests
stand in order of arrival. Decodes run first; then prompts are admitted in order, and
the first that does not fit ends it. Two policies of capacity:

- ``guaranteed_no_evict``, the default: a request is admitted when the KV has room for
  its prompt and the trace's ``max_new_tokens`` beside those of all that run. Nothing
  is ever evicted.
- ``max_utilization``: when the blocks of its prompt are free. When a decode lacks a
  block, the request started last is paused: it loses its KV and computes all again,
  first in the queue; nobody is admitted in that iteration.

Settings: ``policy``; ``chunked``, 1: a prompt that does not fit the tokens left is cut
to whole blocks (``enable_chunked_prefill``, first come, first served), else it waits.

With the overlap scheduler (``async_scheduling``) the next iteration is put together
while one runs.

Not here: reuse of blocks, equal progress of several prompts. Behind a cut prompt, one
shorter than what rounding left would slip in there; here it waits.
"""

import numpy as np

from capplan.simulator.engine.batch import (
    admit_head_with_room,
    continue_prefill,
    log_decodes,
    same_batch,
    take_decode_blocks,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import ceil_div
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.schedulers.refusals import never_admitted, none
from capplan.simulator.state import NONE, SCHEDULE, Phase, State

POLICIES = ("guaranteed_no_evict", "max_utilization")
RULES = Rules(
    {
        "policy": Knob(0, choices=POLICIES),
        "chunked": Knob(0, 0, 1),
    },
    async_scheduling=True,
    replica_columns=("reserved",),  # no less than the blocks of those that run
    in_order=True,
)
SETTING = indices(RULES.settings)
MEMORY = indices(RULES.replica_columns)


def refused(trace, engine, settings):
    """Return the requests that would never be admitted or be cut, and the reason."""
    budget, unit = engine.max_num_batched_tokens, engine.block_size
    evicts = POLICIES[int(settings["policy"])] == "max_utilization"
    again = trace.output_tokens - 1 if evicts else 0
    beyond = trace.prompt_tokens + again > budget
    beyond = beyond & (settings["chunked"] == 0 or budget < unit)
    if evicts:
        rows, reason = none(trace, engine, settings)
    else:
        rows, reason = never_admitted(trace, engine, 0)
    if np.any(beyond):
        reason = f"its prompts are not cut, and a budget is {budget} tokens"
    return rows | beyond, reason


@inlined()
def _whole_blocks(state: State, slot: int):
    """Return the blocks of a prompt and of the longest answer that it may get."""
    request = state.requests[slot]
    engine = state.engine[0]
    longest = request.prompt_tokens + request.most_output_tokens
    blocks = ceil_div(longest, engine.block_size)
    return min(blocks + request.bounded_blocks, engine.kv_blocks)


@compiled()
def _unreserved_blocks(state: State, r: int):
    """Return the blocks that running requests leave when each ends at its limit."""
    blocks = state.engine[0].kv_blocks
    slot = state.replicas[r].running_head
    while slot != NONE:
        blocks -= _whole_blocks(state, slot)
        slot = state.requests[slot].next
    return blocks


@inlined()
def _chunk(state: State, rest, left):
    """Return how much of a prompt runs with so many tokens left. [tokens]"""
    if rest <= left:
        return rest
    unit = state.engine[0].block_size
    return left // unit * unit if state.settings[SETTING.chunked] != 0 else 0


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Let all decode, continue the unfinished prompt, then admit."""
    replica = state.replicas[r]
    engine = state.engine[0]
    take_decode_blocks(state, r, 0)
    log_decodes(state, r)
    left = engine.max_num_batched_tokens - replica.decode_count
    cut = False
    if replica.prefilling != NONE:
        request = state.requests[replica.prefilling]
        rest = request.known_tokens - request.computed_tokens
        left -= continue_prefill(state, r, _chunk(state, rest, left))
        cut = replica.prefilling != NONE
    reserves = state.settings[SETTING.policy] == 0
    memory = state.replica_memory[r]
    if replica.running_count == 0:
        memory[MEMORY.reserved] = 0
    blocks = engine.kv_blocks - int(memory[MEMORY.reserved])
    summed = False
    while replica.waiting_head != NONE and replica.preempted == 0 and not cut:
        slot = replica.waiting_head
        if state.requests[slot].phase == Phase.PREEMPTED_DRAINING:
            break
        known_tokens = state.requests[slot].known_tokens
        whole_blocks = _whole_blocks(state, slot)
        if reserves and whole_blocks > blocks and not summed:
            blocks = _unreserved_blocks(state, r)
            summed = True
        if reserves and whole_blocks > blocks:
            break
        chunk = _chunk(state, known_tokens, left)
        if admit_head_with_room(state, r, chunk, known_tokens, 0) == 0:
            break
        blocks -= whole_blocks
        left -= chunk
        cut = chunk < known_tokens
    memory[MEMORY.reserved] = engine.kv_blocks - blocks
    changes = replica.preempted > 0 or replica.prefilling != NONE
    changes |= replica.waiting_count > 0 and replica.oldest_finishing != NONE
    return same_batch(state, r, 0, changes)
