"""Iterations of ranks that step together, one or many at once.

All ranks schedule at the same moment, each by the engine's scheduler, and run as long
as the slowest of them: a rank's own part is a straight line over the iterations of a
batch, ``c + d * i``, so that an iteration takes ``m + max(c + d * i)`` with m the time
of the experts and the exchange, which the batch fixes. Iterations run at once as long
as the same rank is the slowest. A rank without work computes a dummy token.

See latency/rank_tables.py for the times, and ranks.py for the records.
"""

import math

from capplan.simulator.engine.batch import decode_horizon, take_free_decode_blocks
from capplan.simulator.engine.decoding import end_sitting
from capplan.simulator.engine.examine import has_fault
from capplan.simulator.engine.jump import decode_time_s, jump_length
from capplan.simulator.engine.log import log_has_room
from capplan.simulator.engine.ranks import (
    LOOK_S,
    dummy_time_s,
    look_at_ranks,
    shared_time_s,
    take_clocks,
    wake_group,
)
from capplan.simulator.engine.replica import (
    batch_line,
    batch_of,
    begin_iteration,
    collect_oldest,
    iteration_time_s,
    put_in_flight,
    run_batch,
)
from capplan.simulator.engine.wake import next_s, only_decodes
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, RUN_GROUP, Count, State

_FIRST, _SLOPE, _HORIZON, _TOKENS = 1, 2, 3, 4
"""Rows of ``State.scratch`` with what each rank is about to run; see ``SENDING``."""


@compiled()
def _collect(state: State, ranks, g: int):
    """Collect the oldest iteration in flight on all ranks.

    Where nothing could be scheduled before, the engines compute a dummy token now.
    """
    group = state.replicas[g]
    engine = state.engine[0]
    group.outstanding = 0
    for r in range(g * engine.ranks, (g + 1) * engine.ranks):
        collect_oldest(ranks, r)
        group.outstanding += ranks.replicas[r].outstanding
    take_clocks(state, g)
    if group.stalled != 0:
        group.stalled = 0
        if engine.ranks > 1:
            group.gpu_s = max(group.gpu_s, group.now_s) + dummy_time_s(state)
            group.step += 1


@inlined()
def _decode_on(ranks, r: int):
    """Let a rank decode as before, where its scheduler would; return for how many.

    0 where the scheduler must be asked.
    """
    engine = ranks.engine[0]
    if (
        engine.keeps_batch == 0
        or engine.asked != 0
        or engine.recording + engine.examined != 0
        or engine.prefill_interval > 1
        or not only_decodes(ranks, r)
        or not take_free_decode_blocks(ranks, r, 0)
    ):
        return 0
    return decode_horizon(ranks, r, 0)


@inlined()
def _note_line(state: State, ranks, r: int, k, horizon):
    """Note a rank's horizon, tokens and time of what it is about to run.

    A rank without work computes a dummy token.
    """
    tokens = 1
    if horizon == 0:
        first_s, slope_s = iteration_time_s(ranks, r, 0, 0.0, 0)
    else:
        _, first_s, slope_s = batch_line(ranks, r)
        first_s += ranks.replicas[r].wait_s
        _, _, tokens = batch_of(ranks, r)
        tokens += ranks.replicas[r].batch_tokens
    state.scratch[_FIRST, k] = first_s
    state.scratch[_SLOPE, k] = slope_s
    state.scratch[_HORIZON, k] = horizon
    state.scratch[_TOKENS, k] = tokens


@inlined()
def _schedule(state: State, ranks, g: int, until_s, schedule):
    """Let each rank put together its iteration; return how many may run of them.

    0 where no rank has work. The ranks' lines are noted.
    """
    group = state.replicas[g]
    engine = state.engine[0]
    horizon = engine.longest_jump
    if engine.prefill_interval > 1:
        into = (group.step - group.wave_step) % engine.prefill_interval
        horizon = min(horizon, engine.prefill_interval - into)
    runs = False
    first = g * engine.ranks
    for k in range(engine.ranks):
        r = first + k
        rank = ranks.replicas[r]
        rank.now_s = group.now_s
        rank.gpu_s = group.gpu_s
        begin_iteration(rank, until_s)
        rank.throttled = int(engine.prefill_interval > 1 and into != 0)
        own = 0
        if rank.outstanding > 0:
            own = _decode_on(ranks, r)
            if own == 0:
                own = schedule(ranks, r)
            if engine.examined != 0 and has_fault(ranks, r, own):
                return 0
        if own == 0 and rank.sitting > 0:
            end_sitting(ranks, r)
        if own > 0:
            runs = True
            horizon = min(horizon, own)
        elif rank.waiting_count > 0 or rank.prefilling != NONE:
            horizon = 1  # a result may let it go on
        _note_line(state, ranks, r, k, own)
    return horizon if runs else 0


@inlined()
def _slowest(state: State):
    """Return the slowest rank of the next iteration and for how many it stays so."""
    lines = state.scratch
    count = state.engine[0].ranks
    lead = 0
    for k in range(1, count):
        if lines[_FIRST, k] > lines[_FIRST, lead] or (
            lines[_FIRST, k] == lines[_FIRST, lead]
            and lines[_SLOPE, k] > lines[_SLOPE, lead]
        ):
            lead = k
    leads = math.inf
    for k in range(count):
        faster = lines[_SLOPE, k] - lines[_SLOPE, lead]
        if faster > 0.0:
            behind_s = lines[_FIRST, lead] - lines[_FIRST, k]
            leads = min(leads, math.floor(behind_s / faster) + 1.0)
    return lead, leads


@inlined()
def _tokens(state: State, ranks, g: int):
    """Return the tokens of the largest rank and of all; whether one has a prompt."""
    first = g * state.engine[0].ranks
    largest = 0
    total = 0
    has_prompt = False
    for k in range(state.engine[0].ranks):
        tokens = int(state.scratch[_TOKENS, k])
        runs = state.scratch[_HORIZON, k] > 0
        has_prompt = has_prompt or (runs and ranks.replicas[first + k].batch_tokens > 0)
        largest = max(largest, tokens)
        total += tokens
    return largest, total, has_prompt


@inlined()
def _until_look(state: State, ranks, g: int, until_s, horizon):
    """Return until when iterations may run at once, so that no report is missed.

    A report differs within the iterations where a request in flight is done with one,
    and by blocks, which matter once more than half are in use: see ``choose_rank``.
    """
    engine = state.engine[0]
    if horizon <= 1 or engine.balance > 1 or engine.ranks == 1:
        return until_s
    look_s = (state.replicas[g].looks + 1) * LOOK_S
    for r in range(g * engine.ranks, (g + 1) * engine.ranks):
        rank = ranks.replicas[r]
        if rank.oldest_finishing != NONE or rank.newest_finishing != NONE:
            return min(until_s, look_s)
        tokens = (horizon + 2) * engine.tokens_per_request
        more = rank.decode_count * (tokens // engine.block_size + 1)
        if 2 * (rank.free_blocks - more) < engine.kv_blocks:
            return min(until_s, look_s)
    return until_s


@inlined()
def _run(state: State, ranks, g: int, horizon, until_s):
    """Run what the ranks have put together, up to ``horizon`` iterations."""
    group = state.replicas[g]
    engine = state.engine[0]
    largest, total, has_prompt = _tokens(state, ranks, g)
    lead, leads = _slowest(state)
    slope_s = state.scratch[_SLOPE, lead]
    first_s = state.scratch[_FIRST, lead]
    first_s += shared_time_s(state, largest, total, has_prompt)
    start_s = max(group.now_s, group.gpu_s)
    n = 1
    if not has_prompt:
        horizon = int(min(leads, horizon))
        until_s = _until_look(state, ranks, g, until_s, horizon)
        n = jump_length(engine.depth, first_s, slope_s, until_s - start_s, horizon)
    first = g * engine.ranks
    for k in range(engine.ranks):
        r = first + k
        if state.scratch[_HORIZON, k] > 0:
            run_batch(ranks, r, start_s, first_s, slope_s, n)
            if ranks.replicas[r].sitting > 0:
                end_sitting(ranks, r)
        else:
            _run_dummy(ranks, r, start_s, first_s, slope_s, n)
    group.step += n
    take_clocks(state, g)


@inlined()
def _run_dummy(ranks, r: int, start_s, first_s, slope_s, n):
    """Let a rank without work compute with the others."""
    rank = ranks.replicas[r]
    rank.gpu_s = start_s + decode_time_s(first_s, slope_s, n)
    rank.dummy_s = rank.gpu_s
    put_in_flight(ranks, r, start_s, first_s, slope_s, n, 0)


@inlined()
def _copies_s(state: State, ranks, g: int):
    """Return when a rank next has a copy for which it waits; infinite: none. [s]"""
    now_s = state.replicas[g].now_s
    first_s = math.inf
    for r in range(g * state.engine[0].ranks, (g + 1) * state.engine[0].ranks):
        rank_s = ranks.replicas[r].idle_until_s
        if rank_s > now_s:
            first_s = min(first_s, rank_s)
    return first_s


@inlined()
def _step(state: State, ranks, g: int, until_s, schedule):
    """Collect one result, or schedule one iteration or jump, as ``step`` does."""
    group = state.replicas[g]
    look_at_ranks(state, g, next_s(state, g))
    if group.in_flight == state.engine[0].depth or group.stalled != 0:
        _collect(state, ranks, g)
        return
    horizon = _schedule(state, ranks, g, until_s, schedule)
    if state.counts[Count.STUCK] != 0:
        return
    copies_s = _copies_s(state, ranks, g)
    group.idle_until_s = 0.0
    if horizon > 0:
        _run(state, ranks, g, horizon, min(until_s, copies_s))
        return
    preempted = 0
    awaited = 0
    for r in range(g * state.engine[0].ranks, (g + 1) * state.engine[0].ranks):
        preempted += ranks.replicas[r].preempted
        awaited += ranks.replicas[r].awaited
    if group.in_flight > 0:
        group.stalled = 1
    elif copies_s < math.inf:
        group.idle_until_s = copies_s
        group.now_s = min(copies_s, until_s)
    elif preempted == 0 and awaited > 0:
        group.now_s = math.inf  # until what is awaited comes
    elif preempted == 0:
        state.counts[Count.STUCK] = 1


@compiled(RUN_GROUP)
def run_group(state: State, g: int, until_s, once, schedule):
    """Simulate a group up to ``until_s``, or do one step, as ``serve`` does."""
    ranks = state.by_rank
    while once or (
        next_s(state, g) < until_s
        and log_has_room(state)
        and state.counts[Count.STUCK] == 0
    ):
        _step(state, ranks, g, until_s, schedule)
        if once:
            break
    wake_group(state, ranks, g)
    return 0
