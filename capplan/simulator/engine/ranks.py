"""Ranks of DP attention: the rows behind a group, and what a group shows of them.

A replica whose ranks step together is a group. Each rank is a record of ``State.ranks``
with its own queue, seats and KV; functions of one replica work on it with
``state.by_rank``. The group's own record in ``State.replicas`` has the clocks
that all share, and the sums that routers read.
"""

import math

from capplan.simulator.engine.jump import decode_time_s
from capplan.simulator.engine.wake import (
    before_end_s,
    iterations_to_change,
    only_decodes,
)
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Shared, State

LOOK_S = 0.1
"""Least time between two reports of the ranks' loads. [s] vLLM 0.32, v1/engine/
coordinator.py, ``min_stats_update_interval_ms``."""


@compiled()
def sum_up(state: State, g: int):
    """Let a group show the clocks of its ranks and the sums of what they have."""
    group = state.replicas[g]
    count = state.engine[0].ranks
    first = g * count
    group.outstanding = 0
    group.outstanding_prompt_tokens = 0
    group.outstanding_output_tokens = 0
    group.prefill_tokens = 0
    group.running_count = 0
    group.waiting_count = 0
    group.oldest_finishing = NONE
    group.newest_finishing = NONE
    free = 0
    for r in range(first, first + count):
        rank = state.ranks[r]
        group.outstanding += rank.outstanding
        group.outstanding_prompt_tokens += rank.outstanding_prompt_tokens
        group.outstanding_output_tokens += rank.outstanding_output_tokens
        group.prefill_tokens += rank.prefill_tokens
        group.running_count += rank.running_count
        group.waiting_count += rank.waiting_count
        group.oldest_finishing = max(group.oldest_finishing, rank.oldest_finishing)
        group.newest_finishing = max(group.newest_finishing, rank.newest_finishing)
        free += rank.free_blocks
    group.free_blocks = free // count  # of a rank, as ``engine.kv_blocks``


@inlined()
def take_clocks(state: State, g: int):
    """Let a group have the clocks of its ranks, which are the same."""
    group = state.replicas[g]
    rank = state.ranks[g * state.engine[0].ranks]
    group.now_s = rank.now_s
    group.gpu_s = rank.gpu_s
    group.in_flight = rank.in_flight
    group.oldest_end_s = rank.oldest_end_s
    group.newest_end_s = rank.newest_end_s


@inlined()
def shared_time_s(state: State, largest, all_tokens, has_prompt):
    """Return the time of the experts and of the exchange with them. [s]

    ``largest`` are the tokens of the largest rank. Where a CUDA graph has room for
    them, every rank is padded to it.
    """
    engine = state.engine[0]
    if largest <= engine.largest_graph:
        largest = int(state.shared_s[Shared.PADDED, largest])
        all_tokens = engine.ranks * largest
    if has_prompt:
        return (
            state.shared_s[Shared.EXPERTS_PREFILL, all_tokens]
            + state.shared_s[Shared.EXCHANGE_PREFILL, largest]
        )
    return (
        state.shared_s[Shared.EXPERTS, all_tokens]
        + state.shared_s[Shared.EXCHANGE, largest]
    )


@inlined()
def dummy_time_s(state: State):
    """Return the time of an iteration in which no rank has work. [s]"""
    ranks = state.engine[0].ranks
    return state.by_batch[0].decode_s + shared_time_s(state, 1, ranks, False)


@inlined()
def look_at_ranks(state: State, g: int, now_s):
    """Note the loads of the ranks as of the newest report at or before a moment."""
    group = state.replicas[g]
    if now_s < (group.looks + 1) * LOOK_S:
        return
    look = int(now_s / LOOK_S)
    if (look + 1) * LOOK_S <= now_s:  # the quotient was rounded down
        look += 1
    look = max(look, group.looks + 1)
    group.looks = look
    count = state.engine[0].ranks
    for r in range(g * count, (g + 1) * count):
        rank = state.ranks[r]
        rank.seen_waiting = rank.waiting_count
        rank.seen_running = rank.running_count
        rank.seen_kv_use = 1.0 - rank.free_blocks / state.engine[0].kv_blocks


@compiled()
def wake_group(state: State, ranks, g: int):
    """Set a group's sums, and the time before which no request of it can finish.

    While all ranks decode, the first to finish does so no sooner than if the same rank
    were the slowest of all iterations until then.
    """
    sum_up(state, g)
    group = state.replicas[g]
    engine = state.engine[0]
    if group.outstanding == 0:
        group.wake_s = math.inf
        return
    group.wake_s = group.oldest_end_s if group.in_flight else group.now_s
    if engine.keeps_batch == 0:
        return
    n = -1
    for r in range(g * engine.ranks, (g + 1) * engine.ranks):
        if ranks.replicas[r].outstanding == 0:
            continue
        if not only_decodes(ranks, r):
            return
        own = iterations_to_change(ranks, r)
        n = own if n < 0 else min(n, own)
    span_s = 0.0
    largest = 1
    total = 0
    for r in range(g * engine.ranks, (g + 1) * engine.ranks):
        rank = ranks.replicas[r]
        times = state.by_batch[rank.decode_count]
        slope_s = times.decode_context_s
        first_s = times.decode_s + slope_s * rank.context_tokens
        own_s = decode_time_s(first_s, slope_s * rank.decode_count, n)
        span_s = max(span_s, own_s)
        tokens = max(1, rank.decode_count * engine.tokens_per_request)
        largest = max(largest, tokens)
        total += tokens
    span_s += n * shared_time_s(state, largest, total, False)
    group.wake_s = max(group.wake_s, before_end_s(group.gpu_s, span_s))
