"""Copies of KV to and from the host: a link each way, beside the iterations.

The copies of a link follow each other. Blocks that are copied out are free at once;
an iteration or a copy that takes some of them waits until all copies out are done,
as in FastServe's block_manager.py. An iteration also waits for the KV of its requests
(``wait_for_kv``). The blocks of the host are free at once.

In the waiting list of a replica those with KV on the GPU stand first.
"""

from capplan.simulator.engine.batch import log_decodes, next_block
from capplan.simulator.engine.decoding import computed_tokens
from capplan.simulator.engine.ordered import precedes
from capplan.simulator.engine.pausing import (
    decodes_next,
    first_arrival,
    held_blocks,
    left_tokens,
    missing_blocks,
    resume,
    run_chunk,
    swap_in,
    swap_out,
)
from capplan.simulator.engine.queues import (
    push_waiting_back,
    push_waiting_front,
    remove_waiting,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import blocks_in_iteration, ceil_div, take_blocks
from capplan.simulator.state import NONE, Count, Phase, State


@inlined()
def next_arrival(state: State, r: int):
    """Let the oldest arrival be PAUSED where it stands; return it, or NONE."""
    slot = first_arrival(state, r)
    if slot != NONE:
        state.requests[slot].phase = Phase.PAUSED
        state.swaps[slot].ready_s = 0.0
    return slot


@compiled()
def last_with_kv(state: State, r: int, key):
    """Return the last in order of those that wait with KV on the GPU, or NONE.

    Only of those whose key is at least ``key``.
    """
    last = NONE
    slot = state.replicas[r].waiting_head
    while slot != NONE and held_blocks(state, slot) > 0:
        later = last == NONE or precedes(state, last, slot)
        if later and state.orders[slot].key >= key:
            last = slot
        slot = state.requests[slot].next
    return last


@inlined()
def wait_for_kv(state: State, r: int, ready_s):
    """Let the next iteration of a replica start when KV has been copied."""
    replica = state.replicas[r]
    replica.gpu_s = max(replica.gpu_s, ready_s)


@inlined()
def wait_for_blocks(state: State, r: int):
    """Wait for the copies out where blocks were taken that they may not have left."""
    replica = state.replicas[r]
    if replica.free_blocks < replica.leaving_blocks:
        wait_for_kv(state, r, replica.out_link_s)
        replica.leaving_blocks = 0


@inlined()
def _link_s(state: State, r: int, slot: int, link_s):
    """Return when a copy on a link that is busy until ``link_s`` can start."""
    replica = state.replicas[r]
    ready_s = state.swaps[slot].ready_s
    return max(max(link_s, ready_s), max(replica.now_s, replica.gpu_s))


@compiled()
def copy_out(state: State, r: int, slot: int):
    """Copy the KV of a PAUSED request to the host, unless that is full."""
    replica = state.replicas[r]
    swap = state.swaps[slot]
    if held_blocks(state, slot) > replica.host_free_blocks:
        state.counts[Count.HOST_FULL] = 1
        return
    blocks = swap_out(state, r, slot)
    remove_waiting(state, r, slot)
    push_waiting_back(state, r, slot)
    replica.leaving_blocks += blocks
    start_s = _link_s(state, r, slot, replica.out_link_s)
    replica.out_link_s = start_s + blocks * state.engine[0].block_link_s
    swap.ready_s = replica.out_link_s


@compiled()
def copy_in(state: State, r: int, slot: int):
    """Copy the KV of a PAUSED request back from the host."""
    replica = state.replicas[r]
    blocks = swap_in(state, r, slot)
    remove_waiting(state, r, slot)
    push_waiting_front(state, r, slot)
    wait_for_blocks(state, r)
    start_s = _link_s(state, r, slot, replica.in_link_s)
    replica.in_link_s = start_s + blocks * state.engine[0].block_link_s
    state.swaps[slot].ready_s = replica.in_link_s


@inlined()
def next_blocks(state: State, slot: int):
    """Return the blocks of a request with its next token."""
    request = state.requests[slot]
    tokens = request.known_tokens
    if request.phase != Phase.PAUSED:
        step = state.replicas[request.replica].step + 1
        tokens = computed_tokens(state, slot, step) + 1
    return ceil_div(tokens, state.engine[0].block_size) + request.bounded_blocks


@inlined()
def next_missing_blocks(state: State, slot: int):
    """Return those of them that it does not hold on the GPU."""
    request = state.requests[slot]
    if request.phase == Phase.PAUSED:
        return missing_blocks(state, slot, request.known_tokens)
    return next_block(state, slot)


@inlined()
def prompt_left(state: State, slot: int):
    """Return the tokens that a request computes at once; 0 where it decodes."""
    if state.requests[slot].phase != Phase.PAUSED or decodes_next(state, slot):
        return 0
    return left_tokens(state, slot)


@compiled()
def all_fit(state: State, r: int, spare_blocks, budget_tokens):
    """Return whether all requests fit the next iteration, none with KV on the host.

    Beside ``spare_blocks``, with prompts of ``budget_tokens`` at most.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    if replica.running_count + replica.waiting_count > engine.max_num_seqs:
        return False
    if replica.host_free_blocks < engine.host_blocks:
        return False
    tokens = 0
    blocks = spare_blocks + blocks_in_iteration(state, r, replica.step + 1)
    slot = replica.waiting_head
    while slot != NONE:
        blocks += next_missing_blocks(state, slot)
        tokens += prompt_left(state, slot)
        slot = state.requests[slot].next
    return tokens <= budget_tokens and blocks <= replica.free_blocks


@inlined()
def run_whole(state: State, r: int, slot: int):
    """Let a PAUSED request decode, or compute its prompt whole, once its KV is here."""
    wait_for_kv(state, r, state.swaps[slot].ready_s)
    if decodes_next(state, slot):
        resume(state, r, slot)
    else:
        known = state.requests[slot].known_tokens
        run_chunk(state, r, slot, left_tokens(state, slot), known)


@inlined()
def start_batch(state: State, r: int):
    """Take the blocks of the decodes; wait where any taken are still copied."""
    replica = state.replicas[r]
    if replica.prompts_only == 0:
        take_blocks(state, r, blocks_in_iteration(state, r, replica.step + 1))
        log_decodes(state, r)
    wait_for_blocks(state, r)
    tokens = replica.batch_tokens + replica.decode_count
    state.counts[Count.MOST_TOKENS] = max(state.counts[Count.MOST_TOKENS], tokens)
