"""What an iteration has that verifies drafts, beside those that decode in it.

Requests computed once more and discarded, prompts, and admissions; for the schedulers
that ``run_speculative.py`` runs.
"""

from capplan.simulator.engine.batch import start_prefill
from capplan.simulator.engine.queues import push_end, remove_end
from capplan.simulator.engine.run_speculative import is_discarded
from capplan.simulator.engine.speculation import (
    PARTS,
    REPLICA,
    REQUEST,
    SETTING,
    add_context,
    blocks_at_most,
    blocks_of_decodes,
    context_parts,
    context_parts_on_line,
    draw_iterations,
    has_decoded,
    hold_slots,
    more_blocks,
    settle,
    slot_tokens,
    tokens_before,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import count_hits, take_blocks
from capplan.simulator.state import NONE, Count


@inlined()
def verified_tokens(state):
    """Return the tokens of the budget that a decoding request takes."""
    return 1 + int(state.settings[SETTING.drafts])


@inlined()
def room_of_verified(state, slot, step, flying, tokens):
    """Return for which tokens it has slots if it verifies so many: ``slot_tokens``."""
    room = slot_tokens(state, slot, step, flying) - (verified_tokens(state) - tokens)
    return max(state.requests[slot].room_tokens, room)


@compiled()
def verify_fewer(state, r, slot, tokens):
    """Let a request compute ``tokens`` in the next iteration, fewer than it verifies.

    Its line ends and another begins behind it. Returns what the sum of contexts lacks
    of the iteration. [parts]
    """
    request = state.requests[slot]
    memory = state.request_memory[slot]
    step = state.replicas[r].step + 1
    held = tokens_before(state, slot, step)
    left = request.run_tokens - (held + 1 - request.prompt_tokens)
    shown = context_parts_on_line(state, slot, step)
    growth = memory[REQUEST.growth]
    remove_end(state, r, slot)
    memory[REQUEST.drawn] += step - 1 - memory[REQUEST.began]
    draw_iterations(state, slot, 1)
    memory[REQUEST.drawn] += 1
    gained = min(int(memory[REQUEST.total]), tokens)
    memory[REQUEST.earlier] = memory[REQUEST.before]
    if has_decoded(state, slot, step):
        memory[REQUEST.earlier] = tokens_before(state, slot, step - 1)
    memory[REQUEST.began] = step
    memory[REQUEST.before] = held
    memory[REQUEST.base] = held + gained
    memory[REQUEST.padded] = tokens - gained
    if gained < left:
        draw_iterations(state, slot, left - gained)
    else:
        memory[REQUEST.iterations] = 0.0
        memory[REQUEST.gained] = -gained
        memory[REQUEST.total] = 0.0
        once_more = state.engine[0].depth == 2 and left >= 2
        memory[REQUEST.discarded] = 1.0 if once_more else 0.0
    request.end_step = step + int(memory[REQUEST.iterations])
    push_end(state, r, slot)
    now = context_parts_on_line(state, slot, step)
    add_context(state, r, now - shown, memory[REQUEST.growth] - growth)
    return (held + 1) * PARTS - now


@inlined()
def discarded(state, r):
    """Return how many requests the next iteration discards, and their contexts.

    And the blocks that they take. Their last tokens are in flight.
    """
    replica = state.replicas[r]
    count = 0
    parts = 0.0
    blocks = 0
    if replica.in_flight == 1:
        step = replica.step + 1
        slot = replica.oldest_finishing
        while slot != NONE:
            if is_discarded(state, r, slot):
                count += 1
                parts += context_parts(state, slot, step)
                blocks += more_blocks(state, r, slot, step, True)
            slot = state.requests[slot].next_in_list
    return count, parts, blocks


@compiled()
def hold_discarded(state, r, blocks):
    """Take the blocks of these requests."""
    replica = state.replicas[r]
    step = replica.step + 1
    take_blocks(state, r, blocks)
    slot = replica.oldest_finishing
    while slot != NONE:
        if is_discarded(state, r, slot):
            room = slot_tokens(state, slot, step, True)
            state.requests[slot].room_tokens = room
        slot = state.requests[slot].next_in_list


@inlined()
def found_blocks(state, r, slot):
    """Return which blocks of a request the prefix cache has, and which are free.

    With a draft that has KV the last one is computed again. It may be the last of the
    prompt where layers are of several kinds (``HybridKVCacheCoordinator``).
    """
    drops_block = state.settings[SETTING.drops_block] != 0.0
    left = 0 if drops_block and state.engine[0].state_groups > 0 else 1
    hits, hits_free = count_hits(state, r, slot, left)
    if hits > 0 and drops_block:
        hits -= 1
        label = state.spare[r, state.replicas[r].spare_count + hits]
        hits_free -= int(state.blocks[r, label].references == 0)
    return hits, hits_free


@inlined()
def start_padded(state, r, slot, start, chunk, padding, room):
    """Start a waiting request with a chunk, whose blocks are taken up to ``room``."""
    state.requests[slot].room_tokens = room
    start_prefill(state, r, slot, start, chunk)
    state.request_memory[slot, REQUEST.padded] = 0.0
    if padding > 0:
        _pad(state, r, slot, start, padding)


@inlined()
def note_padding(state, r, slot, padding):
    """Note drafts that are none beside the token of a request that was just logged."""
    state.request_memory[slot, REQUEST.padded] = padding
    state.replica_memory[r, REPLICA.padded] += padding
    if state.engine[0].recording != 0:
        state.entries[state.counts[Count.ENTRIES] - 1].scheduled = 1 + padding


@inlined()
def _pad(state, r, slot, start, padding):
    """Let the one token of a prompt that was just added be computed like a decode."""
    replica = state.replicas[r]
    note_padding(state, r, slot, padding)
    if start < state.requests[slot].prompt_tokens:
        replica.batch_tokens -= 1
        replica.batch_attention -= start + 0.5
        replica.batch_extra_count += 1
        replica.batch_extra_tokens += start + 1


@inlined()
def decodes_that_fit(state, r, most):
    """Return for how many iterations all decode, the next one's blocks being taken."""
    replica = state.replicas[r]
    if blocks_at_most(state, r, most) <= replica.free_blocks:
        return most
    fit = 1
    while fit < most:
        middle = fit + (most - fit + 1) // 2
        if blocks_of_decodes(state, r, middle) <= replica.free_blocks:
            fit = middle
        else:
            most = middle - 1
    return fit


@compiled()
def take_next_blocks(state, r, others):
    """Count all blocks and take those of the next iteration if they are free.

    And ``others``, which are not taken.
    """
    settle(state, r)
    needed = blocks_of_decodes(state, r, 1)
    if needed + others > state.replicas[r].free_blocks:
        return False
    take_blocks(state, r, needed)
    hold_slots(state, r, 1)
    return True
