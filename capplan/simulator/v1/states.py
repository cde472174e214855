"""Recurrent states that prefix caching keeps, as vLLM V1's scheduler looks at them.

vLLM 0.32, v1/core/sched/scheduler.py, ``_mamba_block_aligned_split``: chunks of prompts
end with a block of KV. So several prompts may be unfinished at once, and what runs is
taken in order of admission: a decode behind a prompt that takes the rest of the budget
sits the iteration out. A request takes a block for each group of states beside each of
its KV that it enters, and frees the state before once a token behind it is collected.
"""

from capplan.simulator.capable import Capability
from capplan.simulator.engine.batch import iterations_to_completion
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import blocks_in_iteration, ceil_div
from capplan.simulator.kv.states import (
    CHUNK,
    SHARED,
    START,
    STEP,
    chunk_to_boundary,
    collected_tokens,
    count_state_hits,
    free_old_states,
    held_columns,
    share_state,
)
from capplan.simulator.kv.worklist import (
    enter_with,
    first_entering,
    first_listed,
    list_columns,
    list_one_longer,
    list_until,
    next_entering,
    next_listed,
)
from capplan.simulator.state import NONE, Phase

CAPABILITY = Capability(
    lambda engine: engine.keeps_states,
    request_columns=held_columns,
    replica_columns=list_columns,
    in_order=True,
)


@inlined()
def free_states_behind(state, r, slot, computed):
    """Free the states that a request no longer needs; it has ``computed`` tokens."""
    collected = collected_tokens(state, r, slot, computed)
    free_old_states(state, r, slot, collected, computed)


@inlined()
def keep_listed(state, r, slot):
    """Look at a request as long as a state of the next iteration is in flight."""
    until = state.replicas[r].step + 1 + state.engine[0].depth
    list_until(state, r, slot, until)


@inlined()
def note_chunk(state, r, slot, start, chunk):
    """Note a chunk of a prompt, whose blocks are taken, and its state."""
    memory = state.request_memory[slot]
    step = state.replicas[r].step + 1
    memory[STEP] = step
    memory[START] = start
    after = start + chunk
    share_state(state, r, slot, after)
    keep_listed(state, r, slot)
    if after == state.requests[slot].known_tokens:
        enter_with(state, r, slot, after, step + 1)


@inlined()
def wait_with_states(state, r, slot, held):
    """Note that a decode sits the next iteration out; it holds so many tokens."""
    step = state.replicas[r].step + 1
    state.request_memory[slot, START] = held
    state.request_memory[slot, STEP] = step
    list_one_longer(state, slot)
    enter_with(state, r, slot, held, step + 1)


@compiled()
def plan_prompts(state, r):
    """Plan the chunks of unfinished prompts; return their tokens and all new blocks.

    As long as nobody has to sit out or to be preempted.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    entering = blocks_in_iteration(state, r, replica.step + 1)
    all_blocks = entering * (1 + engine.state_groups)
    spent = 0
    slot = first_listed(state, r)
    while slot != NONE:
        request = state.requests[slot]
        if request.phase == Phase.PREFILLING:
            behind = 0
            other = replica.running_tail
            while other != slot:
                behind += int(state.requests[other].phase == Phase.DECODING)
                other = state.requests[other].previous
            start = request.computed_tokens
            left = engine.max_num_batched_tokens - spent
            left -= replica.decode_count - behind
            chunk = min(request.known_tokens - start, left)
            chunk = max(chunk_to_boundary(state, slot, start, chunk), 0)
            state.request_memory[slot, CHUNK] = chunk
            size = engine.block_size
            blocks = ceil_div(start + chunk, size) - ceil_div(start, size)
            spent += chunk
            all_blocks += blocks + int(blocks > 0) * engine.state_groups
        slot = next_listed(state, slot)
    return spent, all_blocks


@compiled()
def list_entering(state, r):
    """List the decodes that enter a block in the next iteration."""
    slot = first_entering(state, r, state.replicas[r].step + 1)
    while slot != NONE:
        if state.requests[slot].phase == Phase.DECODING:
            keep_listed(state, r, slot)
        slot = next_entering(state, slot)


@inlined()
def find_states(state, r, slot, cached):
    """Return how many of ``cached`` blocks need not be computed, and free states."""
    hits, free = count_state_hits(state, r, slot, cached)
    size = state.engine[0].block_size
    state.request_memory[slot, SHARED] = cached * size if cached > hits else 0
    return hits, free


@inlined()
def count_free(state, r, hits):
    """Return how many of the blocks that ``count_hits`` has found nobody holds."""
    free = 0
    for index in range(hits):
        label = state.spare[r, state.replicas[r].spare_count + index]
        free += int(state.blocks[r, label].references == 0)
    return free


@inlined()
def newest_unfinished(state, r):
    """Return the newest prompt that is not done, or NONE."""
    slot = state.replicas[r].running_tail
    while slot != NONE:
        request = state.requests[slot]
        unfinished = request.computed_tokens < request.known_tokens
        if request.phase == Phase.PREFILLING and unfinished:
            break
        slot = request.previous
    return slot


@inlined()
def horizon_with_states(state, r):
    """Return for how many iterations all only decode, none in a block that is new."""
    if first_listed(state, r) != NONE:
        return 1
    step = state.replicas[r].step + 1
    most = iterations_to_completion(state, r)
    n = 1
    while n < most and blocks_in_iteration(state, r, step + n) == 0:
        n += 1
    return n
