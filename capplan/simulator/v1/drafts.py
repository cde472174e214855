"""Drafts to verify, as vLLM V1's scheduler looks at them.

vLLM 0.32, v1/core/sched/scheduler.py, ``Scheduler.schedule``: each decoding request
takes 1 + k tokens of the budget, in order of admission. One for which less is left
verifies that, and those behind it sit the iteration out. The prompt's blocks include
those of the draft's lookahead, and with a draft that has KV the last block found in the
prefix cache is computed again. A last token behind the prefix cache is computed like a
decode, beside drafts that are none: the engine keeps to the shape of its decode graphs.
"""

from capplan.simulator.capable import Capability
from capplan.simulator.engine.batch import iterations_to_completion, start_prefill
from capplan.simulator.engine.log import log_entry, unlog_entry
from capplan.simulator.engine.queues import push_end, remove_end
from capplan.simulator.engine.speculation import (
    PARTS,
    REPLICA,
    REQUEST,
    SETTING,
    SETTINGS,
    add_context,
    blocks_at_most,
    blocks_of_decodes,
    context_parts,
    context_parts_on_line,
    drafts_values,
    draw_iterations,
    has_decoded,
    hold_slots,
    more_blocks,
    settle,
    slot_tokens,
    tokens_before,
    verified_tokens,
)
from capplan.simulator.engine.verifying import is_discarded, sit_out
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import count_hits, is_last_hit_free, take_blocks
from capplan.simulator.state import NONE, Count, Phase, State

CAPABILITY = Capability(
    lambda engine: engine.speculation is not None,
    settings=SETTINGS,
    values=drafts_values,
    in_order=True,
)


@inlined()
def begin_verifying(state: State, r: int):
    """Forget what the iteration before had beside those that decode."""
    memory = state.replica_memory[r]
    memory[REPLICA.padded] = 0.0
    memory[REPLICA.more_count] = 0.0
    memory[REPLICA.more_parts] = 0.0
    memory[REPLICA.spare] = 0.0


@inlined()
def lookahead_tokens(state: State):
    """Return for how many tokens more than it computes a request has slots."""
    return int(state.settings[SETTING.lookahead])


@inlined()
def verify_unseen(state: State, r: int):
    """Let all that decode verify their drafts, where budget and blocks are enough.

    Return whether they are. Blocks are counted only where they may be short.
    """
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    others, parts, blocks = discarded(state, r)
    wanted = (replica.decode_count + others) * verified_tokens(state)
    replica.left_tokens = state.engine[0].max_num_batched_tokens - wanted
    if replica.left_tokens < 0 or state.engine[0].recording != 0:
        return False
    spare = 0
    if state.settings[SETTING.eager] == 0.0:
        spare = blocks_at_most(state, r, _longest(state, r))
        if blocks + spare > replica.free_blocks:
            spare = 0
    if spare == 0 and not take_next_blocks(state, r, blocks):
        return False
    memory[REPLICA.spare] = spare
    if others > 0:
        hold_discarded(state, r, blocks)
        memory[REPLICA.more_count] = others
        memory[REPLICA.more_parts] = parts
    return True


@inlined()
def _longest(state: State, r: int):
    """Return for how many iterations none that decodes has its last token."""
    if state.replicas[r].heap_count == 0:
        return 1
    return iterations_to_completion(state, r)


@inlined()
def count_where_short(state: State, r: int, blocks):
    """Count the blocks of decodes where so many more may not be free beside them."""
    memory = state.replica_memory[r]
    spare = int(memory[REPLICA.spare])
    if spare > 0 and blocks + spare > state.replicas[r].free_blocks:
        take_next_blocks(state, r, 0)
        memory[REPLICA.spare] = 0.0


@inlined()
def look_at_all(state: State, r: int):
    """Count all blocks, since all are looked at; the next batch may be another."""
    settle(state, r)
    state.replica_memory[r, REPLICA.spare] = -1.0


@inlined()
def slots_verified(state: State, r: int, slot: int, tokens):
    """Return for how many tokens it has slots if it verifies so many; no lookahead."""
    replica = state.replicas[r]
    flying = replica.in_flight > 0
    room = room_of_verified(state, slot, replica.step + 1, flying, tokens)
    return room - lookahead_tokens(state)


@inlined()
def verify(state: State, r: int, slot: int, tokens):
    """Add a request that computes ``tokens`` to the iteration; its slots are taken."""
    memory = state.replica_memory[r]
    request = state.requests[slot]
    step = state.replicas[r].step + 1
    log_entry(state, request.row, tokens_before(state, slot, step), tokens)
    fewer = verified_tokens(state) - tokens
    memory[REPLICA.padded] -= fewer
    if request.phase != Phase.DECODING:
        memory[REPLICA.more_count] += 1.0
        memory[REPLICA.more_parts] += context_parts(state, slot, step)
    elif fewer > 0:
        memory[REPLICA.more_parts] += verify_fewer(state, r, slot, tokens)


@inlined()
def miss_discarded(state: State, slot: int):
    """Let a request that has all its tokens be computed no more."""
    state.request_memory[slot, REQUEST.discarded] = 0.0


@inlined()
def wait_verifying(state: State, r: int, slot: int):
    """Let a running request sit the next iteration out, if it had a part in it."""
    memory = state.replica_memory[r]
    if is_discarded(state, r, slot):
        miss_discarded(state, slot)
    elif state.requests[slot].phase == Phase.DECODING:
        sit_out(state, r, slot)
        state.replicas[r].sitting += 1
        memory[REPLICA.more_count] -= 1.0
        step = state.replicas[r].step + 1
        memory[REPLICA.more_parts] -= context_parts_on_line(state, slot, step)


@inlined()
def verifies(state: State, r: int, slot: int):
    """Return whether a running request has drafts in the next iteration."""
    if state.requests[slot].phase != Phase.DECODING:
        return is_discarded(state, r, slot)
    sat_out = int(state.request_memory[slot, REQUEST.sat_out])
    return sat_out != state.replicas[r].step + 1


@inlined()
def verifying_count(state: State, r: int):
    """Return how many requests the next iteration has beside prompts."""
    more = int(state.replica_memory[r, REPLICA.more_count])
    return state.replicas[r].decode_count + more


@inlined()
def note_padding_rule(state: State, r: int):
    """Note beside which last tokens of prompts drafts that are none are computed.

    0: none, beside a prompt that goes on; 1: all; 2: those behind tokens found in the
    prefix cache, where nothing decodes.
    """
    replica = state.replicas[r]
    budget = state.engine[0].max_num_batched_tokens
    pads = 1.0 if replica.left_tokens < budget else 2.0
    if replica.batch_tokens + replica.batch_extra_count > 0:
        pads = 0.0
    state.replica_memory[r, REPLICA.pads] = pads


@inlined()
def padding(state: State, r: int, slot: int, start):
    """Return the drafts that are none beside a prompt's last token, after ``start``."""
    pads = state.replica_memory[r, REPLICA.pads]
    is_last = state.requests[slot].known_tokens - start == 1
    if is_last and (pads == 1.0 or (pads == 2.0 and start > 0)):
        return int(state.settings[SETTING.drafts])
    return 0


@inlined()
def iterations_verified(state: State, r: int, changes):
    """Return for how many iterations the batch runs if nothing arrives.

    Until a request has its last token, unless ``changes`` says that it is another.
    """
    replica = state.replicas[r]
    if replica.batch_tokens + replica.batch_extra_count > 0:
        return 1
    if verifying_count(state, r) == 0:
        return 0
    if changes or state.replica_memory[r, REPLICA.more_count] != 0.0:
        return 1
    return _longest(state, r)


@inlined()
def iterations_with_room(state: State, r: int, most):
    """Return for how many of ``most`` iterations there are blocks."""
    spare = state.replica_memory[r, REPLICA.spare]
    if most < 2 or spare > 0.0:
        return most
    return 1 if spare < 0.0 else decodes_that_fit(state, r, most)


@inlined()
def leave_verifying(state: State, r: int, slot: int, tokens):
    """Return the tokens of one that leaves the iteration; ``tokens`` are a prompt's."""
    memory = state.replica_memory[r]
    if state.requests[slot].phase == Phase.DECODING:
        return verified_tokens(state)
    if not is_discarded(state, r, slot):
        return tokens
    step = state.replicas[r].step + 1
    memory[REPLICA.more_count] -= 1.0
    memory[REPLICA.more_parts] -= context_parts(state, slot, step)
    unlog_entry(state, state.requests[slot].row)
    return verified_tokens(state)


@inlined()
def room_of_verified(state: State, slot: int, step, flying, tokens):
    """Return for which tokens it has slots if it verifies so many: ``slot_tokens``."""
    room = slot_tokens(state, slot, step, flying) - (verified_tokens(state) - tokens)
    return max(state.requests[slot].room_tokens, room)


@compiled()
def verify_fewer(state: State, r: int, slot: int, tokens):
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
        once_more = state.engine[0].depth > 1 and left >= 2
        memory[REQUEST.discarded] = 1.0 if once_more else 0.0
    request.end_step = step + int(memory[REQUEST.iterations])
    push_end(state, r, slot)
    now = context_parts_on_line(state, slot, step)
    add_context(state, r, now - shown, memory[REQUEST.growth] - growth)
    return (held + 1) * PARTS - now


@inlined()
def discarded(state: State, r: int):
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
def hold_discarded(state: State, r: int, blocks):
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
def found_blocks(state: State, r: int, slot: int):
    """Return which blocks of a request the prefix cache has, and which are free.

    With a draft that has KV the last one is computed again. It may be the last of the
    prompt where layers are of several kinds (``HybridKVCacheCoordinator``).
    """
    drops_block = state.settings[SETTING.drops_block] != 0.0
    left = 0 if drops_block and state.engine[0].state_groups > 0 else 1
    hits, hits_free = count_hits(state, r, slot, left)
    if hits > 0 and drops_block:
        hits_free -= int(is_last_hit_free(state, r, slot, hits))
        hits -= 1
    return hits, hits_free


@inlined()
def start_padded(state: State, r: int, m: int, slot: int, start, chunk, padding, room):
    """Start a waiting request with a chunk, whose blocks are taken up to ``room``.

    ``m`` is whose row has what decodes beside it: its replica's, or a micro-batch's.
    """
    state.requests[slot].room_tokens = room
    start_prefill(state, r, slot, start, chunk)
    state.request_memory[slot, REQUEST.padded] = 0.0
    if padding > 0:
        _pad(state, r, m, slot, start, padding)


@inlined()
def note_padding(state: State, r: int, slot: int, padding):
    """Note drafts that are none beside the token of a request that was just logged."""
    state.request_memory[slot, REQUEST.padded] = padding
    state.replica_memory[r, REPLICA.padded] += padding
    if state.engine[0].recording != 0:
        state.entries[state.counts[Count.ENTRIES] - 1].scheduled = 1 + padding


@inlined()
def _pad(state: State, r: int, m: int, slot: int, start, padding):
    """Let the one token of a prompt that was just added be computed like a decode."""
    replica = state.replicas[r]
    note_padding(state, m, slot, padding)
    if start < state.requests[slot].prompt_tokens:
        replica.batch_tokens -= 1
        replica.batch_attention -= start + 0.5
        replica.batch_extra_count += 1
        replica.batch_extra_tokens += start + 1


@inlined()
def decodes_that_fit(state: State, r: int, most):
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
def take_next_blocks(state: State, r: int, others):
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
