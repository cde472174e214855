"""vLLM V1's scheduler with drafts to verify, which no user names.

vLLM 0.32, v1/core/sched/scheduler.py, ``Scheduler.schedule``: each decoding request
takes 1 + k tokens of the budget, in order of admission. One for which less is left
verifies that, and those behind it sit the iteration out. The prompt's blocks include
those of the draft's lookahead, and with a draft that has KV the last block found in the
prefix cache is computed again.

It runs its iterations itself and returns -1, since what they do to contexts and blocks
differs: ``run_speculative.py``. Those of ranks are run by their group.
"""

from capplan.simulator.engine.batch import iterations_to_completion
from capplan.simulator.engine.run_speculative import (
    is_discarded,
    preempt_speculating,
    run_speculative,
    sit_out,
)
from capplan.simulator.engine.speculation import (
    REPLICA,
    REQUEST,
    SETTING,
    blocks_at_most,
    settle,
)
from capplan.simulator.engine.speculation import RULES as RULES
from capplan.simulator.engine.verifying import (
    admit,
    continue_prompt,
    decodes_that_fit,
    discarded,
    hold_discarded,
    others_in_batch,
    room_of_verified,
    take_next_blocks,
    verified_tokens,
)
from capplan.simulator.jit import compiled
from capplan.simulator.kv.kvcache import ceil_div, take_blocks
from capplan.simulator.state import NONE, SCHEDULE, Phase


@compiled()
def _one_by_one(state, r):
    """Let running requests go on in order, while budget is left.

    Returns the budget that is left, who is cut to what was left of it, or NONE, and to
    how many tokens; nothing that it preempted: ``replica.preempted`` has that. Where
    blocks are short the newest goes; who preempts itself was the last.
    """
    replica = state.replicas[r]
    budget = state.engine[0].max_num_batched_tokens
    size = state.engine[0].block_size
    cut = NONE
    tokens = 0
    step = replica.step + 1
    flying = replica.in_flight > 0
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        decodes = request.phase == Phase.DECODING
        if decodes or is_discarded(state, r, slot):
            if budget > 0:
                tokens = min(verified_tokens(state), budget)
                room = room_of_verified(state, slot, step, flying, tokens)
                needed = ceil_div(room, size) - ceil_div(request.room_tokens, size)
                while replica.free_blocks < needed:
                    victim = replica.running_tail
                    preempt_speculating(state, r, victim)
                    if victim == slot:
                        return budget, NONE, 0
                take_blocks(state, r, needed)
                request.room_tokens = room
                budget -= tokens
                if tokens < verified_tokens(state):
                    cut = slot
            elif decodes:
                sit_out(state, r, slot)
            else:
                state.request_memory[slot, REQUEST.discarded] = 0.0
        slot = request.next
    return budget, cut, tokens


@compiled(SCHEDULE)
def schedule(state, r):
    """Give each running request its tokens, admit while budget is left, and run."""
    replica = state.replicas[r]
    budget = state.engine[0].max_num_batched_tokens
    others, parts, blocks = discarded(state, r)
    changes = others > 0
    wanted = (replica.decode_count + others) * verified_tokens(state)
    most = 1
    if replica.heap_count > 0:
        most = iterations_to_completion(state, r)
    spare = blocks_at_most(state, r, most)
    eager = state.settings[SETTING.eager] != 0.0
    eager = eager or blocks + spare > replica.free_blocks
    slow = wanted > budget
    if slow:
        settle(state, r)
        eager = True
    elif eager:
        slow = not take_next_blocks(state, r, blocks)
    if not slow and others > 0:
        hold_discarded(state, r, blocks)
    state.replica_memory[r, REPLICA.padded] = 0.0
    sitting = 0
    budget -= wanted
    cut = NONE
    tokens = 0
    if slow:
        budget, cut, tokens = _one_by_one(state, r)
    if slow or state.engine[0].recording != 0:
        others, parts, sitting = others_in_batch(state, r, cut, tokens)
    running = replica.decode_count + others
    # 2: only behind tokens found in the cache; 0: not beside a prompt that goes on.
    pads = 1 if running > 0 else 2
    if replica.prefilling != NONE:
        pads = 0
        chunk = continue_prompt(state, r, budget, 0 if eager else spare)
        if chunk < 0:
            eager = take_next_blocks(state, r, 0)
            chunk = continue_prompt(state, r, budget, 0)
        budget -= chunk
    if replica.preempted == 0:
        while budget > 0:
            slot = replica.waiting_head
            chunk = admit(state, r, slot, budget, 0 if eager else spare, pads)
            if chunk < 0:
                eager = take_next_blocks(state, r, 0)
                chunk = admit(state, r, slot, budget, 0, pads)
            if chunk == 0:
                break
            budget -= chunk

    horizon = 1
    if replica.batch_tokens + replica.batch_extra_count == 0:
        if running == 0:
            return 0
        ends = replica.waiting_count > 0 and replica.oldest_finishing != NONE
        if not (slow or changes or ends or replica.preempted > 0):
            horizon = decodes_that_fit(state, r, most) if eager else most
    return run_speculative(state, r, horizon, others, parts, sitting, eager)
