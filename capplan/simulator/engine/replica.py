"""One replica's engine: schedule, run one iteration or many, collect results.

Mirrors vLLM V1's ``EngineCore.step`` (one iteration in flight, depth 1) and
``step_with_batch_queue`` (depth 2, async scheduling): with depth 2, iteration
k + 1 is scheduled while k runs, so arrivals, finished requests and their blocks
are seen one iteration later. When a scheduler's batch stays the same for n
iterations, all of them run at once (an event jump): with b requests whose
contexts sum to L, n iterations take
n * (a[b] + s[b] * L) + s[b] * b * n * (n - 1) / 2. With drafts contexts grow by what
the batch gains on average: ``speculation.py``.
"""

import math

from capplan.simulator.columns import REPLICA_COLUMNS, REQUEST_COLUMNS, places
from capplan.simulator.engine.decoding import (
    end_sitting,
    enter_decoding,
    leave_decoding,
)
from capplan.simulator.engine.examine import has_fault
from capplan.simulator.engine.gaps import (
    add_gap,
    end_gaps,
    enter_resuming,
    note_gaps,
    start_gaps,
)
from capplan.simulator.engine.in_flight import end_vain
from capplan.simulator.engine.jump import SMALLEST_STEP_S, decode_time_s, jump_length
from capplan.simulator.engine.log import add_to_bins, log_iteration
from capplan.simulator.engine.ordered import remove_ordered
from capplan.simulator.engine.queues import (
    count_outstanding,
    give_slot,
    push_waiting_back,
    remove_end,
    remove_running,
    remove_waiting,
    tell,
)
from capplan.simulator.engine.speculation import PARTS, REPLICA, grow, verified_batch
from capplan.simulator.engine.verifying import (
    begin_line,
    count_last,
    resume_later,
    set_quiet,
    take_slots,
)
from capplan.simulator.engine.wake import set_wake
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import (
    blocks_in_iterations,
    return_blocks,
    take_blocks,
)
from capplan.simulator.kv.paths import extend_path
from capplan.simulator.kv.states import return_states
from capplan.simulator.memory.active_blocks import discharge
from capplan.simulator.records import Replica
from capplan.simulator.state import NONE, Count, Phase, State

TIER = places(REPLICA_COLUMNS, "tiers")
OF_TIER = places(REQUEST_COLUMNS, "tiers")
DISCARDED = places(REQUEST_COLUMNS, "drafts").discarded


@inlined()
def _return_discarded(state: State, r: int):
    """Return the blocks, beside a tier, of requests that were computed once more."""
    if state.engine[0].blocks_per_chunk == 0 or state.engine[0].verifies == 0:
        return
    memory = state.replica_memory[r]
    slot = int(memory[TIER.holding]) - 1
    memory[TIER.holding] = 0.0
    while slot != NONE:
        request = state.requests[slot]
        following = request.next
        held = request.prompt_tokens + request.output_tokens - 1
        return_blocks(state, r, slot, held, held - request.unhashed_tokens, False)
        if state.request_memory[slot, OF_TIER.holds] == 2.0:
            give_slot(state, slot)
        state.request_memory[slot, OF_TIER.holds] = 0.0
        slot = following


@inlined()
def join_queue(state: State, r: int, slot: int):
    """Put an arrival last in a queue."""
    request = state.requests[slot]
    request.phase = Phase.WAITING
    request.replica = r
    count_outstanding(state, r, slot, 1)
    state.replicas[r].prefill_tokens += request.known_tokens
    push_waiting_back(state, r, slot)


@inlined()
def end_idling(state: State, r: int, now_s):
    """Let a replica without requests stand at a moment.

    The engine waits for what it computes and discards: verifying.py.
    """
    replica = state.replicas[r]
    if replica.in_flight > 0:
        if state.engine[0].depth > 2:
            end_vain(state, r, now_s)
        else:
            if state.engine[0].blocks_per_chunk > 0:
                state.replica_memory[r, TIER.rested_s] = replica.now_s
            replica.now_s = max(replica.now_s, replica.gpu_s)
            replica.in_flight = 0
            _return_discarded(state, r)
    replica.now_s = max(replica.now_s, now_s)


@inlined()
def enqueue(state: State, r: int, slot: int, now_s):
    """Add an arrival to the queue of a replica that stands at ``now_s``."""
    replica = state.replicas[r]
    if replica.outstanding == 0:
        end_idling(state, r, now_s)
    elif replica.now_s == math.inf:
        replica.now_s = now_s
    join_queue(state, r, slot)
    set_wake(state, r)


@compiled()
def _hand_over(state: State, r: int, slot: int, now_s):
    """Let a prompt that is done hold its blocks until another replica has read them."""
    request = state.requests[slot]
    request.phase = Phase.HANDED
    request.handed_s = now_s
    state.replicas[r].awaited += 1
    tell(state, slot)


@compiled()
def _keep_ended(state: State, r: int, slot: int):
    """Keep the slot of a request that has ended until its scheduler has looked."""
    memory = state.replica_memory[r]
    state.requests[slot].next_in_list = NONE
    last = int(memory[TIER.ended_last]) - 1
    if memory[TIER.ended] == 0.0:
        memory[TIER.ended] = slot + 1
    else:
        state.requests[last].next_in_list = slot
    memory[TIER.ended_last] = slot + 1


@compiled()
def _return_kv(state: State, r: int, slot: int):
    """Return the blocks of a request that has ended.

    Beside a tier later, where the iteration in flight computes it once more: a load
    could overwrite what that writes. Its slot is then kept.
    """
    request = state.requests[slot]
    held = request.prompt_tokens + request.output_tokens - 1
    hashed = held - request.unhashed_tokens
    engine = state.engine[0]
    if engine.state_groups > 0:
        return_states(state, r, slot, hashed)
    if engine.blocks_per_chunk > 0 and engine.verifies != 0:
        memory = state.request_memory[slot]
        if memory[DISCARDED] != 0.0 and state.replicas[r].in_flight == 2:
            extend_path(state, r, slot, hashed // engine.block_size)
            request.next = NONE
            last = int(state.replica_memory[r, TIER.holding]) - 1
            if last == NONE:
                state.replica_memory[r, TIER.holding] = slot + 1
            else:
                while state.requests[last].next != NONE:
                    last = state.requests[last].next
                state.requests[last].next = slot
            memory[OF_TIER.holds] = 1.0
            return
    return_blocks(state, r, slot, held, hashed, False)


@inlined()
def complete(state: State, r: int, slot: int, now_s):
    """Write the result of a finished request and free its slot."""
    replica = state.replicas[r]
    request = state.requests[slot]
    count_outstanding(state, r, slot, -1)
    if request.charged_holder != NONE:
        discharge(state, slot)
    if request.phase == Phase.PREEMPTED_DRAINING:
        # Its blocks are gone already, and it never ran again.
        remove_waiting(state, r, slot)
        replica.preempted_draining -= 1
    else:
        remove_running(state, r, slot)
        if request.partner != NONE:
            _hand_over(state, r, slot, now_s)
            return
        _return_kv(state, r, slot)
    result = state.results[state.counts[Count.RESULTS]]
    state.counts[Count.RESULTS] += 1
    result.row = request.row
    result.request_class = request.request_class
    result.replica = r
    result.preemptions = request.preemptions
    result.cached_tokens = request.cached_tokens
    result.prompt_tokens = request.prompt_tokens
    result.output_tokens = request.output_tokens
    result.predicted_tokens = request.predicted_tokens
    result.arrival_s = request.arrival_s
    result.scheduled_s = request.scheduled_s
    result.first_token_s = request.first_token_s
    result.finish_s = now_s
    result.longest_gap_s = request.longest_gap_s
    result.late_gaps = request.late_gaps
    result.migrations = request.migrations
    result.handed_s = request.handed_s
    if state.orders.shape[0] > 0 and state.orders[slot].ordered != 0:
        remove_ordered(state, r, slot)
    pauses, swaps = state.pauses.shape[0] > 0, state.swaps.shape[0] > 0
    result.paused_s = state.pauses[slot].paused_s if pauses else 0.0
    result.swaps = state.swaps[slot].swaps if swaps else 0
    result.tier_tokens = 0
    request.phase = Phase.FREE
    if state.engine[0].blocks_per_chunk > 0:
        result.tier_tokens = int(state.request_memory[slot, OF_TIER.tier_tokens])
        _keep_ended(state, r, slot)
        return
    give_slot(state, slot)


@inlined()
def collect_oldest(state: State, r: int):
    """Collect the result of the oldest iteration in flight."""
    replica = state.replicas[r]
    replica.now_s = max(replica.now_s, replica.oldest_end_s)
    _return_discarded(state, r)
    slot = replica.oldest_finishing
    while slot != NONE:
        following = state.requests[slot].next_in_list
        complete(state, r, slot, replica.oldest_end_s)
        slot = following
    if replica.charged_tokens > 0:
        replica.charged_tokens -= replica.oldest_charged_tokens
        replica.oldest_charged_tokens = replica.newest_charged_tokens
        replica.newest_charged_tokens = 0
    replica.oldest_end_s = replica.newest_end_s
    replica.oldest_finishing = replica.newest_finishing
    replica.newest_finishing = NONE
    replica.in_flight -= 1
    replica.stalled = 0


@inlined()
def batch_of(state: State, r: int):
    """Return how many requests the iteration computes as decodes, and their contexts.

    Then their tokens. Those of one-token prefills are among them.
    """
    replica = state.replicas[r]
    b = tokens = 0
    context = 0.0
    if state.engine[0].verifies != 0:
        b, context, tokens = verified_batch(state, r)
    elif replica.prompts_only == 0:
        b = tokens = replica.decode_count
        context = float(replica.context_tokens)
    extra = replica.batch_extra_count
    return b + extra, context + replica.batch_extra_tokens, tokens + extra


@inlined()
def iteration_time_s(state: State, r: int, b, context, tokens):
    """Return the time of the next iteration, and by how much each later one is longer.

    With a prompt, or where some verify no drafts, there is no later one. ``tokens`` are
    those of decodes.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    times = state.by_batch[b]
    if replica.batch_tokens > 0 or tokens < b * engine.tokens_per_request:
        first_s = (
            state.fused_s[replica.batch_tokens + tokens]
            + times.fused_decode_s
            + times.fused_context_s * context
            + engine.attention_s * replica.batch_attention
        )
        return max(first_s, SMALLEST_STEP_S), 0.0
    growth = float(b)
    if engine.verifies != 0:
        growth = state.replica_memory[r, REPLICA.growth] / PARTS
    first_s = times.decode_s + times.decode_context_s * context
    return first_s, times.decode_context_s * growth


@inlined()
def batch_line(state: State, r: int):
    """Return when the next iteration starts, its time, and how much each later grows.

    With what its scheduler noted of it: adapters and images take their time. [s]
    """
    replica = state.replicas[r]
    b, context, tokens = batch_of(state, r)
    first_s, slope_s = iteration_time_s(state, r, b, context, tokens)
    start_s = max(replica.now_s, replica.gpu_s) + replica.wait_s
    stretch = replica.stretch
    return start_s, first_s * stretch + replica.more_s, slope_s * stretch


@inlined()
def run_iterations(state: State, r: int, horizon):
    """Run the scheduled iteration and those after it, up to ``horizon`` in all.

    Only as many as are scheduled before ``until_s``: the next arrival may change
    the batch.
    """
    replica = state.replicas[r]
    horizon = min(horizon, state.engine[0].longest_jump)
    start_s, first_s, slope_s = batch_line(state, r)
    n = 1
    if replica.batch_tokens == 0:
        span_s = replica.until_s - start_s
        n = jump_length(state.engine[0].depth, first_s, slope_s, span_s, horizon)
    run_batch(state, r, start_s, first_s, slope_s, n)


@inlined()
def run_batch(state: State, r: int, start_s, first_s, slope_s, n):
    """Run n iterations of a batch; the first takes ``first_s``, as given, from start.

    Each takes ``slope_s`` longer than the one before.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    end_s = start_s + decode_time_s(first_s, slope_s, n)
    last_s = first_s + (n - 1) * slope_s
    verifies = engine.verifies != 0
    used = engine.kv_blocks - replica.free_blocks
    more = 0
    if verifies:
        more, grown = take_slots(state, r, n)
        used += grown
    elif n > 1:
        more = blocks_in_iterations(state, r, replica.step + 2, n - 1)
        used += more // 2  # blocks are taken evenly over the jump
    add_to_bins(
        state, start_s, end_s, replica.running_count, replica.waiting_count, used
    )
    if engine.recording != 0:
        b, context, _ = batch_of(state, r)
        log_iteration(state, r, start_s, end_s, b, int(context), replica.batch_tokens)

    replica.gpu_s = end_s
    if replica.prompts_only == 0:
        note_gaps(state, r, start_s + first_s, last_s, slope_s, n)
        replica.decoded_s = end_s
        replica.step += n
        if verifies:
            grow(state, r, n)
        else:
            replica.context_tokens += n * replica.decode_count
    else:
        replica.prompt_steps += 1
    if verifies and replica.sitting != 0:
        resume_later(state, r)
    put_in_flight(state, r, start_s, first_s, slope_s, n, more)
    replica.ran = replica.iterations
    start_decoding(state, r, end_s)
    pop_finishing(state, r)
    if verifies:
        set_quiet(state, r)


@inlined()
def put_in_flight(state: State, r: int, start_s, first_s, slope_s, n, more_blocks):
    """Put iterations that end at ``gpu_s`` in flight; collect those before the last.

    Of a jump all but the last, or with depth 2 the last two. Nothing finishes within a
    jump, so only the iteration in flight before it can hold finishing requests.
    """
    replica = state.replicas[r]
    depth = state.engine[0].depth
    replica.iterations += n
    if n == 1:
        if replica.in_flight == 0:
            replica.oldest_end_s = replica.gpu_s
            replica.in_flight = 1
        else:
            replica.newest_end_s = replica.gpu_s
            replica.in_flight = 2
        return
    if replica.in_flight == 1:
        collect_oldest(state, r)
    replica.oldest_end_s = replica.gpu_s
    replica.in_flight = 1
    if depth == 2:
        replica.newest_end_s = replica.gpu_s
        replica.oldest_end_s = start_s + decode_time_s(first_s, slope_s, n - 1)
        replica.in_flight = 2
    take_blocks(state, r, more_blocks)  # behind what the result in flight has freed
    replica.now_s = start_s + decode_time_s(first_s, slope_s, n - depth)


@inlined()
def with_finishing(state: State, first, slot: int):
    """Add a request to those whose last token is in an iteration; return the first.

    In order of admission: so the engine hands out results, and frees blocks.
    """
    request = state.requests[slot]
    before = NONE
    after = first
    while after != NONE and state.requests[after].admission < request.admission:
        before = after
        after = state.requests[after].next_in_list
    request.next_in_list = after
    if before == NONE:
        return slot
    state.requests[before].next_in_list = slot
    return first


@inlined()
def drain_request(state: State, r: int, slot: int):
    """Let a request wait for its last token, which the newest iteration computes."""
    replica = state.replicas[r]
    state.requests[slot].phase = Phase.DRAINING
    end_gaps(state, r, slot)
    if replica.in_flight == 1:
        replica.oldest_finishing = with_finishing(state, replica.oldest_finishing, slot)
    else:
        replica.newest_finishing = with_finishing(state, replica.newest_finishing, slot)


@inlined()
def give_first_token(state: State, r: int, slot: int, end_s):
    """Note the token that comes with the end of a prompt, computed again or not."""
    replica = state.replicas[r]
    request = state.requests[slot]
    if math.isnan(request.first_token_s):
        request.first_token_s = end_s
    else:
        add_gap(state, slot, end_s - request.last_token_s)
    if request.charged_tokens > 0:
        if replica.in_flight == 1:
            replica.oldest_charged_tokens += request.charged_tokens
        else:
            replica.newest_charged_tokens += request.charged_tokens
        request.charged_tokens = 0


@inlined()
def start_decoding(state: State, r: int, end_s):
    """Let requests whose prompt this iteration completes decode from the next on.

    From here on the iteration of the last token is known, unless the request is
    preempted, so no later iteration needs to touch it.
    """
    replica = state.replicas[r]
    slot = replica.joining
    replica.joining = NONE
    while slot != NONE:
        request = state.requests[slot]
        following = request.next_in_list
        give_first_token(state, r, slot, end_s)
        start_gaps(state, r, slot)
        generated = request.known_tokens - request.prompt_tokens + 1
        iterations = request.run_tokens - generated
        if state.engine[0].verifies != 0:
            iterations = begin_line(state, slot, replica.step, iterations)
        request.end_step = replica.step + iterations
        if iterations == 0:
            drain_request(state, r, slot)
        else:
            enter_decoding(state, r, slot, request.known_tokens + 1)
            if replica.prompts_only != 0:
                request.last_token_s = end_s
                enter_resuming(state, r, slot)
        slot = following


@inlined()
def pop_finishing(state: State, r: int):
    """Take requests whose last token has been scheduled out of the decoding ones."""
    replica = state.replicas[r]
    while replica.heap_count > 0:
        slot = state.ends[r, 0]
        if state.requests[slot].end_step > replica.step:
            break
        remove_end(state, r, slot)
        leave_decoding(state, r, slot)
        if state.engine[0].verifies != 0:
            count_last(state, r, slot)
        drain_request(state, r, slot)


@inlined()
def begin_iteration(replica: Replica, until_s):
    """Empty what a scheduler tells of the iteration that it puts together."""
    replica.batch_tokens = 0
    replica.batch_attention = 0.0
    replica.batch_extra_count = 0
    replica.batch_extra_tokens = 0
    replica.preempted = 0
    replica.prompts_only = 0
    replica.stretch = 1.0
    replica.more_s = 0.0
    replica.wait_s = 0.0
    replica.sitting = 0
    replica.until_s = until_s


@inlined()
def _run_scheduled(state: State, r: int, horizon):
    """Run what was scheduled; where that is nothing, wait for what may change it."""
    replica = state.replicas[r]
    if state.engine[0].examined != 0 and has_fault(state, r, horizon):
        return
    if horizon > 0:
        run_iterations(state, r, horizon)
    elif horizon < 0:
        return  # the scheduler has run it itself
    elif replica.in_flight > 0:
        # Nothing to run until a result frees seats or blocks: wait for it even
        # though another iteration could be in flight.
        replica.stalled = 1
    elif replica.idle_until_s > replica.now_s:
        replica.now_s = min(replica.idle_until_s, replica.until_s)
    elif replica.preempted == 0 and replica.awaited > 0:
        replica.now_s = math.inf  # until what is awaited comes
    elif replica.preempted == 0:
        state.counts[Count.STUCK] = 1


@inlined()
def step(state: State, r: int, until_s, schedule):
    """Collect one result, or schedule one iteration or jump before ``until_s``.

    Where nothing will ever run, ``Count.STUCK`` says so. It returns nothing: with a
    value to return, the compiled loop around it takes twice as long.
    """
    replica = state.replicas[r]
    if replica.in_flight == state.engine[0].depth or replica.stalled != 0:
        collect_oldest(state, r)
        return
    begin_iteration(replica, until_s)
    horizon = schedule(state, r)
    _run_scheduled(state, r, horizon)
    if replica.sitting > 0:
        end_sitting(state, r)
