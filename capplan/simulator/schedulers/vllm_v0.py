"""vLLM V0: prompts first, in iterations of their own; then all decode.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention", SOSP 2023; as in vLLM 0.4, core/scheduler.py. Prompts are not cut;
while some run, decoding requests wait. Every running request wants a free block at
its turn even if it needs none (block_manager_v1.py, ``can_append_slots``), else the
latest arrival is preempted; it may be back in the next iteration.

Settings, each 0 or 1:

- ``swap``: preempted requests keep their KV on the host (``--preemption-mode swap``).
  The copy is made before the iteration, which waits for it. While some are there, no
  prompt is admitted, unless prompts are cut;
- ``chunked``: decodes first, prompts cut to what is left of the budget
  (``_schedule_chunked_prefill``);
- ``padded_budget``: prompts of an iteration count as the longest of them (0.3 and
  before).

A request that the token budget could not hold when computed again would be
dropped there; here it is refused before the simulation.
"""

import numpy as np

from capplan.simulator.engine.batch import (
    admit_with_room,
    continue_prefill,
    log_decodes,
    next_block,
    preempt,
    same_batch,
    take_free_decode_blocks,
    watermark_blocks,
)
from capplan.simulator.engine.ordered import first_ordered, place, remove_ordered
from capplan.simulator.engine.pausing import (
    decodes_next,
    held_blocks,
    left_tokens,
    pause,
    resume,
    run_chunk,
    swap_in,
    swap_out,
)
from capplan.simulator.engine.queues import move_by_arrival
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import take_blocks
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.schedulers.refusals import above_watermark
from capplan.simulator.state import NONE, SCHEDULE, Count, Phase, State

RULES = Rules(
    {"swap": Knob(0, 0, 1), "chunked": Knob(0, 0, 1), "padded_budget": Knob(0, 0, 1)},
    orders="swap",
    pauses="swap",
    swaps="swap",
    in_order=True,
)

SETTING = indices(RULES.settings)


def refused(trace, engine, settings):
    """Return the requests beyond budget or watermark, shape (n,), and the reason."""
    above, reason = above_watermark(trace, engine, more=int(settings["swap"]))
    budget = engine.max_num_batched_tokens
    beyond = trace.prompt_tokens + trace.output_tokens - 1 > budget
    if np.any(beyond) and not settings["chunked"]:
        reason = f"its prompts are not cut, and a budget is {budget} tokens"
        return beyond, reason
    if settings["chunked"]:  # after its first chunk it would preempt itself, for ever
        last, why = above_watermark(trace, engine, more=1)
        if np.any(last & beyond):
            above, reason = above | (last & beyond), why
    return above, reason


@inlined()
def _first_waiting(state: State, r: int):
    """Return the first that is not on the host: those stand before it."""
    slot = state.replicas[r].waiting_head
    while slot != NONE and state.requests[slot].phase == Phase.PAUSED:
        slot = state.requests[slot].next
    return slot


@inlined()
def _admit_whole(state: State, r: int):
    """Admit whole prompts while the budget and the KV last."""
    budget = state.engine[0].max_num_batched_tokens
    count = 0
    tokens = 0
    longest = 0
    while True:
        slot = state.replicas[r].waiting_head
        if slot == NONE:
            break
        known_tokens = state.requests[slot].known_tokens
        longest = max(longest, known_tokens)
        count += 1
        tokens += known_tokens
        if state.settings[SETTING.padded_budget] != 0:
            tokens = count * longest
        if tokens > budget:
            break
        spare_blocks = watermark_blocks(state)
        if (
            admit_with_room(state, r, slot, known_tokens, known_tokens, spare_blocks)
            == 0
        ):
            break


@compiled()
def _make_room(state: State, r: int):
    """Take blocks one by one, in order of arrival, preempting the latest."""
    replica = state.replicas[r]
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        while replica.free_blocks == 0:
            victim = replica.running_tail
            if state.settings[SETTING.swap] == 0:
                preempt(state, r, victim)
            elif not _swap_out(state, r, victim):
                return
            if victim == slot:
                return
        if request.phase == Phase.DECODING:
            take_blocks(state, r, next_block(state, slot))
        slot = request.next


@compiled()
def _swap_out(state: State, r: int, slot: int):
    """Swap a running request out; return whether the host had room."""
    pause(state, r, slot)
    if held_blocks(state, slot) > state.replicas[r].host_free_blocks:
        state.counts[Count.HOST_FULL] = 1
        return False
    _wait_for(state, r, swap_out(state, r, slot))
    place(state, r, slot, 0.0, state.requests[slot].row)
    return True


@compiled()
def _swap_in(state: State, r: int, budget_tokens):
    """Swap requests in, in order of arrival, while they fit; return their tokens."""
    replica = state.replicas[r]
    engine = state.engine[0]
    used = 0
    while True:
        slot = first_ordered(state, r)
        if (
            slot == NONE
            or used >= budget_tokens
            or replica.running_count >= engine.max_num_seqs
        ):
            return used
        after = replica.free_blocks - (state.swaps[slot].host_blocks + 1)
        if after < watermark_blocks(state):
            return used
        remove_ordered(state, r, slot)
        _wait_for(state, r, swap_in(state, r, slot))
        request = state.requests[slot]
        if decodes_next(state, slot):
            take_blocks(state, r, next_block(state, slot))
            resume(state, r, slot)
            used += 1
        else:
            chunk = min(left_tokens(state, slot), budget_tokens - used)
            run_chunk(state, r, slot, chunk, request.known_tokens)
            used += chunk
        move_by_arrival(state, r, slot)


@inlined()
def _wait_for(state: State, r: int, blocks):
    """Let the next iteration begin once so many blocks are copied."""
    replica = state.replicas[r]
    copy_s = blocks * state.engine[0].block_link_s
    replica.gpu_s = max(replica.gpu_s, replica.now_s) + copy_s


@compiled()
def _schedule_chunks(state: State, r: int):
    """Let all decode and fill what is left of the budget with prompts."""
    replica = state.replicas[r]
    if not take_free_decode_blocks(state, r, 1):
        _make_room(state, r)
    budget = state.engine[0].max_num_batched_tokens - replica.decode_count
    if replica.prefilling != NONE:
        budget -= continue_prefill(state, r, budget)
    moved = replica.preempted
    if moved == 0:
        moved = _swap_in(state, r, budget)
        budget -= moved
    log_decodes(state, r)
    while budget > 0:
        slot = _first_waiting(state, r)
        if slot == NONE:
            break
        room_tokens = state.requests[slot].known_tokens
        chunk = admit_with_room(
            state, r, slot, budget, room_tokens, watermark_blocks(state)
        )
        if chunk == 0:
            break
        budget -= chunk
    return same_batch(state, r, 1, moved > 0)


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Run the prompts that fit alone; where none does, let all decode."""
    replica = state.replicas[r]
    if state.counts[Count.HOST_FULL] != 0:
        return 0
    if state.settings[SETTING.chunked] != 0:
        return _schedule_chunks(state, r)
    if state.replicas[r].root == NONE:
        _admit_whole(state, r)
    if replica.batch_tokens > 0:
        replica.prompts_only = 1
        return 1
    if not take_free_decode_blocks(state, r, 1):
        _make_room(state, r)
    moved = replica.preempted
    if moved == 0:
        moved = _swap_in(state, r, state.engine[0].max_num_batched_tokens)
    log_decodes(state, r)
    return same_batch(state, r, 1, moved > 0)
