"""SGLang: prompts in iterations of their own, admitted by what answers may still take.

Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs",
NeurIPS 2024; as in SGLang 0.5.23, srt/managers/schedule_policy.py (PrefillAdder),
scheduler.py and schedule_batch.py. The engine's ``max_num_batched_tokens`` is
``--chunked-prefill-size``, ``max_num_seqs`` is ``--max-running-requests``, a KV block
is a page. The queue is first come, first served; while prompts run, decodes wait.

A prompt is admitted when its tokens, the trace's ``max_new_tokens`` and a page are
fewer than the free KV less ``ratio`` times what the running requests may still
generate. One that is not closes admission until a request leaves the batch. The ratio
falls with each decode iteration, and starts anew when the engine was idle. When decodes
lack KV, those with the fewest answer tokens, of equals the longest prompts, are
retracted: they compute all again, from the end of the queue, and the ratio is set to
what those that stay have used of theirs.

Settings: ``max_prefill_tokens``. ``mixed``, 1: decodes run beside prompts
(``--enable-mixed-chunk``). ``ignore_eos``, 1: the ratio of running requests is 1.
``init_ratio``, 0.7 times ``--schedule-conservativeness``; ``min_factor``, the least
ratio over it; ``decay_steps`` from one to the other; ``retract_steps``; ``clip``.

Prefix cache: what a prompt shares with its group is found by the iteration after the
one that computed it, and held once; KV that nobody uses counts as free, the least
recently used is taken first. A retracted request may find its prompt again.

With the overlap schedule (``async_scheduling``) the next iteration is put together
while one runs: arrivals wait for the one after it, and ends are seen one later.

Not here: the orders of the queue by prefix (lpm, dfs-weight); the token that the
overlap discards of a request that has ended; what a retraction evicts of the cache
beyond its need. Where SGLang would fail in mixed iterations, for want of KV for
the next chunk, the chunk is cut to what is free, and the unfinished prompt is retracted
when the last decode has no room beside it; without one, decodes wait for the next
result. Of requests that end together the oldest gives its KV back first.
"""

from capplan.simulator.engine.batch import (
    admit,
    continue_prefill,
    log_decodes,
    preempt,
    same_batch,
    take_free_decode_blocks,
)
from capplan.simulator.engine.decoding import computed_tokens
from capplan.simulator.engine.queues import push_waiting_back, remove_waiting
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import ceil_div, count_hits, merge_full_blocks
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.schedulers.refusals import never_admitted
from capplan.simulator.state import NONE, SCHEDULE, Phase, State

RULES = Rules(
    {
        "max_prefill_tokens": Knob(16384),
        "mixed": Knob(0, 0, 1),
        "ignore_eos": Knob(0, 0, 1),
        "init_ratio": Knob(0.7, 0.0, 1.0),
        "min_factor": Knob(0.14, 0.0, 1.0),
        "decay_steps": Knob(600),
        "retract_steps": Knob(20, 0),
        "clip": Knob(4096),
    },
    # Ratio after the last retraction (0: none since it was idle) and the decode
    # iteration from which it falls; whether admission is closed; requests that ran; no
    # less than the answer tokens that they may generate yet, each at most ``clip``.
    replica_columns=("ratio", "since_step", "closed", "running", "most_left"),
    async_scheduling=True,
    prefix_caching=True,
    caches_late=True,
    in_order=True,
)
SETTING = indices(RULES.settings)
MEMORY = indices(RULES.replica_columns)
_SPARE_TOKENS = 2
"""A request is one token shorter than the KV, and its answer one less: tp_worker.py."""


def refused(trace, engine, settings):
    """Return the requests that would never be admitted or be cut, and the reason."""
    page, chunk = engine.block_size, engine.max_num_batched_tokens
    if chunk < page:
        return trace.prompt_tokens > 0, f"a chunk of {chunk} is less than a page"
    clip = int(settings["clip"])
    return never_admitted(trace, engine, _SPARE_TOKENS, more=page, clip=clip)


@inlined()
def _answer_limit(state: State, slot: int):
    """Return the most tokens that a request may generate."""
    request = state.requests[slot]
    engine = state.engine[0]
    held = engine.kv_blocks * engine.block_size - _SPARE_TOKENS
    held -= request.bounded_blocks * engine.block_size
    return min(request.most_output_tokens, held - request.prompt_tokens)


@inlined()
def _answer_tokens(state: State, r: int, slot: int):
    """Return how many tokens a decoding request has generated."""
    step = state.replicas[r].step + 1
    return computed_tokens(state, slot, step) + 1 - state.requests[slot].prompt_tokens


@inlined()
def _ratio(state: State, r: int):
    """Return the share of its limit that a running request is reckoned to generate."""
    if state.settings[SETTING.ignore_eos] != 0:
        return 1.0
    memory = state.replica_memory[r]
    first = state.settings[SETTING.init_ratio]
    least = first * state.settings[SETTING.min_factor]
    fall = (first - least) / state.settings[SETTING.decay_steps]
    ratio = memory[MEMORY.ratio]
    if ratio == 0.0:
        ratio = first
    steps = state.replicas[r].step - memory[MEMORY.since_step]
    # A ratio below the least one, after a retraction, rises to it in one step.
    return max(ratio - fall * steps, least) if steps > 0 else ratio


@compiled()
def _reserved_tokens(state: State, r: int):
    """Return the tokens that decoding requests are reckoned to generate yet."""
    clip = int(state.settings[SETTING.clip])
    total = 0
    slot = state.replicas[r].running_head
    while slot != NONE:
        if state.requests[slot].phase == Phase.DECODING:
            left = _answer_limit(state, slot) - _answer_tokens(state, r, slot)
            total += min(left, clip)
        slot = state.requests[slot].next
    return total


@inlined()
def _next_chunk(state: State, r: int, most, room):
    """Return how much of the unfinished prompt runs next. [tokens]"""
    request = state.requests[state.replicas[r].prefilling]
    page = state.engine[0].block_size
    if int(room) > 0:
        most = min(most, int(room))
    held = ceil_div(request.computed_tokens, page)
    fits = (held + state.replicas[r].free_blocks) * page - request.computed_tokens
    return min(most, fits, request.known_tokens - request.computed_tokens)


@compiled()
def _add_prompts(state: State, r: int):
    """Continue the unfinished prompt and admit others; return if admission closes.

    What running requests may generate yet is summed only where a number that it never
    exceeds, kept from call to call, leaves too little room.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    memory = state.replica_memory[r]
    page = engine.block_size
    clip = int(state.settings[SETTING.clip])
    ratio = _ratio(state, r)
    beside = replica.decode_count if state.settings[SETTING.mixed] != 0 else 0
    chunk_left = engine.max_num_batched_tokens - beside
    input_left = int(state.settings[SETTING.max_prefill_tokens]) - beside
    free = replica.free_blocks * page - beside
    most = memory[MEMORY.most_left] if replica.decode_count > 0 else 0.0
    summed = replica.decode_count == 0
    added = 0
    spent = 0
    closed = False
    slot = replica.prefilling
    if slot != NONE:
        answer = min(_answer_limit(state, slot), clip)
        if not summed and free - most * ratio <= chunk_left:
            most = _reserved_tokens(state, r)
            summed = True
        added += answer
        room = free - most * ratio
        chunk = continue_prefill(state, r, _next_chunk(state, r, chunk_left, room))
        taken = ceil_div(chunk, page) * page
        if chunk > 0:
            spent += taken + page
        if replica.prefilling == NONE:
            spent += answer
        chunk_left -= taken
        input_left -= taken
    while replica.waiting_head != NONE and not closed:
        slot = replica.waiting_head
        request = state.requests[slot]
        limit = _answer_limit(state, slot)
        known = request.known_tokens
        locked = request.bounded_blocks * page
        cached = 0
        if engine.prefix_caching != 0:
            hits, hits_free = count_hits(state, r, slot)
            cached = hits * page
            locked += hits_free * page
        left = min(limit - (known - request.prompt_tokens), clip)
        needed = locked + known - cached + left + page
        if not summed and free - most * ratio - spent <= needed:
            most = _reserved_tokens(state, r)
            summed = True
        room = free - most * ratio - spent
        if room > 0 and (chunk_left <= 0 or input_left <= 0):
            break
        closed = replica.running_count >= engine.max_num_seqs or needed >= room
        chunk = known - cached
        answer = min(limit, clip)
        if ceil_div(chunk, page) * page > chunk_left:
            chunk = chunk_left // page * page
            answer = 0
        if closed or chunk <= 0 or admit(state, r, chunk) == 0:
            break
        added += min(limit, clip)
        taken = ceil_div(chunk, page) * page
        spent += locked + taken + page + answer
        chunk_left -= taken
        input_left -= taken
        if not summed and free - most * ratio - spent <= 0:
            most = _reserved_tokens(state, r)
            summed = True
        closed = free - most * ratio - spent <= 0
    memory[MEMORY.most_left] = most + added
    return closed


@compiled()
def _enter_prompts(state: State, r: int, first, continued):
    """Let what this iteration computes of prompts be found from the next one on.

    ``first`` is the first of its admissions, ``continued`` a prompt begun before.
    """
    slot = state.replicas[r].running_tail
    oldest = NONE
    while slot != NONE and state.requests[slot].admission >= first:
        oldest = slot
        slot = state.requests[slot].previous
    if continued != NONE and state.requests[continued].phase == Phase.PREFILLING:
        merge_full_blocks(
            state, r, continued, state.requests[continued].computed_tokens
        )
    while oldest != NONE:
        merge_full_blocks(state, r, oldest, state.requests[oldest].computed_tokens)
        oldest = state.requests[oldest].next


@compiled()
def _least_answered(state: State, r: int):
    """Return the decode to retract: fewest answer tokens, then longest, then newest."""
    found = NONE
    fewest = 0
    slot = state.replicas[r].running_head
    while slot != NONE:
        request = state.requests[slot]
        if request.phase == Phase.DECODING:
            answered = _answer_tokens(state, r, slot)
            longer = (
                found == NONE
                or request.prompt_tokens >= state.requests[found].prompt_tokens
            )
            if found == NONE or answered < fewest or (answered == fewest and longer):
                found = slot
                fewest = answered
        slot = request.next
    return found


@compiled()
def _retract(state: State, r: int):
    """Retract until the decodes that stay have their blocks; set the ratio.

    Return whether they have: else a result is waited for, which gives KV back.
    """
    replica = state.replicas[r]
    fits = False
    while not fits:
        slot = _least_answered(state, r)
        if replica.decode_count == 1:
            slot = replica.prefilling
        if slot == NONE:
            break
        preempt(state, r, slot)
        remove_waiting(state, r, slot)
        push_waiting_back(state, r, slot)
        fits = take_free_decode_blocks(state, r, 0)
    if replica.preempted == 0:
        return fits
    generated = 0
    limits = 1
    slot = replica.running_head
    while slot != NONE:
        if state.requests[slot].phase == Phase.DECODING:
            generated += _answer_tokens(state, r, slot)
            generated += int(state.settings[SETTING.retract_steps])
            limits += _answer_limit(state, slot)
        slot = state.requests[slot].next
    memory = state.replica_memory[r]
    memory[MEMORY.ratio] = min(1.0, generated / limits)
    memory[MEMORY.since_step] = replica.step + 1
    memory[MEMORY.closed] = 0
    return fits


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Run the prompts that fit alone; where none does, let all decode."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    left = replica.running_count < memory[MEMORY.running]
    # Those that decode, and those whose last token is in flight.
    batch_count = replica.running_count - int(replica.prefilling != NONE)
    if left or replica.prefilling != NONE or batch_count == 0:
        memory[MEMORY.closed] = 0
    if replica.running_count == 0 and replica.now_s > replica.gpu_s:  # it was idle
        memory[MEMORY.ratio] = 0.0
        memory[MEMORY.since_step] = replica.step
    first, continued = replica.admissions, replica.prefilling
    opens = memory[MEMORY.closed] == 0 and replica.waiting_head != NONE
    if opens or replica.prefilling != NONE:
        closed = _add_prompts(state, r)
        # The flag is the batch's: one that was empty is replaced, and loses it.
        memory[MEMORY.closed] = int(closed and batch_count > 0)
    if replica.batch_tokens + replica.batch_extra_count > 0:
        mixed = state.settings[SETTING.mixed] != 0 and replica.decode_count > 0
        if mixed and take_free_decode_blocks(state, r, 0):
            log_decodes(state, r)
            memory[MEMORY.since_step] += 1  # only iterations of decodes alone count
            memory[MEMORY.closed] = 0
        else:
            replica.prompts_only = 1
        if state.engine[0].prefix_caching != 0:
            _enter_prompts(state, r, first, continued)
        memory[MEMORY.running] = replica.running_count
        return 1
    memory[MEMORY.running] = replica.running_count
    if replica.decode_count == 0:
        return 0
    fits = take_free_decode_blocks(state, r, 0) or _retract(state, r)
    memory[MEMORY.running] = replica.running_count
    if not fits:
        return 0
    log_decodes(state, r)
    changes = replica.preempted > 0 or replica.prefilling != NONE
    changes |= replica.waiting_count > 0 and replica.oldest_finishing != NONE
    return same_batch(state, r, 0, changes)
