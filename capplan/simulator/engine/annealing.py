"""SA scheduling: an order of waiting requests, and its batches, by annealing.

Huang et al., "SLO-Aware Scheduling for Large Language Model Inferences", arXiv
2504.14966, Algorithm 1. A plan is an order of N requests cut into batches. A request
starts when the longest of the batch before has ended, and takes the time of its prompt
and of each of its tokens in a batch of its own size, eqs. 14 to 16, here from the
latency tables. The objective is the number of requests that keep their SLO over the
sum of their end-to-end times.

As printed, the acceptance never takes a worse plan; ``metropolis`` does. The best plan
is kept (section 4.3), and the inner loop starts again at every temperature.

``state.scratch`` holds, a row each: slots; the current order, and at the first place of
each batch its size, else 0; the best ones; then what evaluating needs of each request:
prompt and predicted output [tokens], time since its arrival, its limits of TTFT, TPOT,
e2e [s]; by place in the order the times of its prompt and of its tokens [s]; and at the
first place of a batch what is known of the batches before: when they end, the sum of
end-to-end times [s], and SLOs that are kept. A move costs what it changes, and the sum
from there on: that adds in the order of the plan, so that it is the sum of all again.
"""

import math
from typing import NamedTuple

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import State

# A plan is two rows, its order and its batch sizes; the first of them names it.
SLOTS, ORDER, SIZES, BEST_ORDER, BEST_SIZES = range(1, 6)
PROMPT, OUTPUT, WAITED, TTFT, TPOT, E2E = range(6, 12)
_FIRST_S, _REST_S, _BEGINS_S, _TOTAL_S, _KEPT = range(12, 17)
_LEFT, _BATCH, _LEAST_S = ORDER, SIZES, _FIRST_S  # while no plan is judged

_FEW = 10
"""Requests of which the best of all plans is sought, to know when to stop."""
_TRIES = 2000
"""Batches that are looked at for it at most."""

_ROUNDING = 1.0 + 1e-9
"""Objectives and times nearer than this are equal, whatever the rounding."""
_NO_BETTER = 1.0 + 0.5e-9
_MODULUS = 2147483647
_MULTIPLIER = 48271  # Park and Miller's minimal standard generator, as revised


class Cooling(NamedTuple):
    """Settings of the search."""

    hottest: float
    coldest: float
    decay: float
    moves: int  # at each temperature
    metropolis: bool
    early_return: bool


@inlined()
def _copy_plan(scratch, n, source, target):
    for k in range(n):
        scratch[target, k] = scratch[source, k]
        scratch[target + 1, k] = scratch[source + 1, k]


@inlined()
def prefill_s(state: State, tokens):
    """Return the time of a prefill in iterations of at most the token budget. [s]"""
    budget = min(state.engine[0].max_num_batched_tokens, state.fused_s.shape[0] - 1)
    full = tokens // budget
    rest = tokens - full * budget
    # The table has a time of no tokens too, that of an iteration which is not run.
    return full * state.fused_s[budget] + (rest > 0) * state.fused_s[rest]


@inlined()
def first_and_rest_s(state: State, index, b):
    """Return the times of a request's prompt and of its tokens in a batch of b. [s]"""
    prompt = state.scratch[PROMPT, index]
    output = state.scratch[OUTPUT, index]
    b = min(b, state.by_batch.shape[0] - 1)
    # Eq. 14 for b prompts alike, as the paper takes a request's own length for all.
    attention_s = state.engine[0].attention_s * 0.5 * prompt * prompt * b
    first_s = prefill_s(state, int(b * prompt)) + attention_s
    # Eq. 16 in closed form: contexts prompt + 1 to prompt + output, in the mean.
    context = b * (prompt + 0.5 * (output + 1))
    times = state.by_batch[b]
    rest_s = output * (times.decode_s + times.decode_context_s * context)
    return first_s, rest_s


@inlined()
def _batch_at(scratch, position):
    """Return where the batch of a place begins."""
    while scratch[SIZES, position] == 0:
        position -= 1
    return position


@inlined()
def _times(state: State, begins, ends):
    """Write the times of the requests from a place to another, in their batches."""
    scratch = state.scratch
    b = int(scratch[SIZES, _batch_at(scratch, begins)])
    for k in range(begins, ends):
        if scratch[SIZES, k] > 0:
            b = int(scratch[SIZES, k])
        first_s, rest_s = first_and_rest_s(state, int(scratch[ORDER, k]), b)
        scratch[_FIRST_S, k] = first_s
        scratch[_REST_S, k] = rest_s


@inlined()
def _keeps(scratch, index, ttft_s, rest_s, e2e_s):
    """Return whether a request keeps its SLO, without branches: none is foreseen."""
    return (
        (ttft_s <= scratch[TTFT, index] * _ROUNDING)
        & (rest_s <= scratch[TPOT, index] * scratch[OUTPUT, index] * _ROUNDING)
        & (e2e_s <= scratch[E2E, index] * _ROUNDING)
    )


@compiled()
def _goodput_from(scratch, n, position):
    """Return the objective of the current plan, and how many SLOs it keeps.

    The batches before ``position``, where one begins, are as they were judged.
    """
    begins_s = scratch[_BEGINS_S, position]
    total_s = scratch[_TOTAL_S, position]
    kept = int(scratch[_KEPT, position])
    while position < n:
        scratch[_BEGINS_S, position] = begins_s
        scratch[_TOTAL_S, position] = total_s
        scratch[_KEPT, position] = kept
        b = int(scratch[SIZES, position])
        longest_s = 0.0
        for k in range(position, position + b):
            index = int(scratch[ORDER, k])
            first_s, rest_s = scratch[_FIRST_S, k], scratch[_REST_S, k]
            longest_s = max(longest_s, first_s + rest_s)
            ttft_s = scratch[WAITED, index] + begins_s + first_s
            e2e_s = ttft_s + rest_s
            total_s += e2e_s
            kept += _keeps(scratch, index, ttft_s, rest_s, e2e_s)
        # Eq. 11: a batch waits for the longest of every batch before it.
        begins_s += longest_s
        position += b
    return kept / max(total_s, 1e-12), kept


@inlined()
def goodput(state: State, n, delay_s):
    """Return kept SLOs per second of latency of the current plan, and how many.

    The first batch starts after ``delay_s``.
    """
    _times(state, 0, n)
    state.scratch[_BEGINS_S, 0] = delay_s
    state.scratch[_TOTAL_S, 0] = 0.0
    state.scratch[_KEPT, 0] = 0.0
    return _goodput_from(state.scratch, n, 0)


@inlined()
def _moved(scratch, n, largest, move, position, other):
    """Return where a move puts the request of a place, and what else it changes.

    That is, the first of two batches, where they meet before and after it, and where
    the second ends: there is one where they meet at an end. A request that is exchanged
    with another changes no batch: the end is 0. The first is -1 where the move cannot
    be made.
    """
    batch = _batch_at(scratch, position)
    ends = batch + int(scratch[SIZES, batch])
    if move == 0:  # to the end of the batch before
        before = _batch_at(scratch, max(batch - 1, 0))
        # Section 4.3: not from the first batch, and not into a full one.
        if batch == 0 or batch - before >= largest:
            before = -1
        return batch, before, batch, batch + 1, ends
    if move == 1:  # to the front of the batch after
        size = int(scratch[SIZES, ends]) if ends < n else 0
        # From the last batch it opens a new one, unless it is alone in it.
        if size >= largest or (ends == n and ends - batch < 2):
            batch = -1
        return ends - 1, batch, ends, ends - 1, ends + size
    return other, _batch_at(scratch, min(position, other)), 0, 0, 0


@compiled()
def _move(state: State, n, origin, target, first, cut, new_cut, last):
    """Make a move, see ``_moved``; return the objective of the plan."""
    scratch = state.scratch
    held = scratch[ORDER, origin]
    if last == 0:
        scratch[ORDER, origin] = scratch[ORDER, target]
    else:
        step = 1 if target > origin else -1
        for k in range(origin, target, step):
            scratch[ORDER, k] = scratch[ORDER, k + step]
    scratch[ORDER, target] = held
    if last == 0:
        _times(state, origin, origin + 1)
        _times(state, target, target + 1)
    else:
        if cut < last:
            scratch[SIZES, cut] = 0
        scratch[SIZES, first] = new_cut - first
        if new_cut < last:
            scratch[SIZES, new_cut] = last - new_cut
        _times(state, first, last)
    found, _ = _goodput_from(scratch, n, first)
    return found


@inlined()
def _next_draw(draw):
    return (draw * _MULTIPLIER) % _MODULUS


@inlined()
def _start(scratch, n, largest):
    """Cut the current order into batches of ``largest``, the last one shorter."""
    for k in range(n):
        scratch[SIZES, k] = min(largest, n - k) if k % largest == 0 else 0


@inlined()
def chance_of_worse(found, now, temperature):
    """Return the probability with which Metropolis takes a plan that is no better."""
    return math.exp((found - now) / temperature)


@inlined()
def _all_late(scratch, n, delay_s):
    """Return whether no plan keeps an SLO: each is late before the first batch."""
    for k in range(n):
        starts_s = scratch[WAITED, k] + delay_s
        if starts_s <= min(scratch[TTFT, k], scratch[E2E, k]) * _ROUNDING:
            return False
    return True


@compiled()
def _sort_by_time(state: State, n, largest):
    """Put the current order by time in a batch of ``largest``, the oldest first."""
    scratch = state.scratch
    for k in range(n):
        index = int(scratch[ORDER, k])
        first_s, rest_s = first_and_rest_s(state, index, largest)
        took_s = first_s + rest_s
        position = k
        while position > 0 and scratch[_FIRST_S, position - 1] > took_s * _ROUNDING:
            scratch[ORDER, position] = scratch[ORDER, position - 1]
            scratch[_FIRST_S, position] = scratch[_FIRST_S, position - 1]
            position -= 1
        scratch[ORDER, position] = index
        scratch[_FIRST_S, position] = took_s


@compiled()
def _best_of_all(state: State, n, largest, delay_s, best):
    """Return the objective of the best of all plans, ``best`` or more.

    By branch and bound over batches, which are sets of requests, as bits; in place of
    the current plan. Infinite where that takes too many tries.
    """
    scratch = state.scratch
    if n > _FEW:
        return math.inf
    for k in range(n):
        scratch[_LEAST_S, k] = math.inf
        for b in range(1, min(n, largest) + 1):
            first_s, rest_s = first_and_rest_s(state, k, b)
            scratch[_LEAST_S, k] = min(scratch[_LEAST_S, k], first_s + rest_s)
    depth = tries = 0
    scratch[_LEFT, 0] = scratch[_BATCH, 0] = 2**n - 1
    scratch[_BEGINS_S, 0], scratch[_TOTAL_S, 0], scratch[_KEPT, 0] = delay_s, 0.0, 0.0
    while depth >= 0:
        left, batch = int(scratch[_LEFT, depth]), int(scratch[_BATCH, depth])
        if batch == 0:
            depth -= 1
            continue
        scratch[_BATCH, depth] = (batch - 1) & left  # the next set
        tries += 1
        if tries > _TRIES:
            return math.inf
        b = 0
        for k in range(n):
            b += (batch >> k) & 1
        if b > largest:
            continue
        begins_s, total_s = scratch[_BEGINS_S, depth], scratch[_TOTAL_S, depth]
        kept = int(scratch[_KEPT, depth])
        longest_s = 0.0
        for k in range(n):
            if (batch >> k) & 1:
                first_s, rest_s = first_and_rest_s(state, k, b)
                longest_s = max(longest_s, first_s + rest_s)
                ttft_s = scratch[WAITED, k] + begins_s + first_s
                total_s += ttft_s + rest_s
                kept += _keeps(scratch, k, ttft_s, rest_s, ttft_s + rest_s)
        # Those left wait for it, and take the least; who is not late yet may keep.
        ends_s, least_s, most = begins_s + longest_s, total_s, kept
        rest = left & ~batch
        for k in range(n):
            if (rest >> k) & 1:
                waited_s = scratch[WAITED, k] + ends_s
                least_s += waited_s + scratch[_LEAST_S, k]
                most += waited_s <= min(scratch[TTFT, k], scratch[E2E, k]) * _ROUNDING
        worth = most / max(least_s, 1e-12)
        if worth <= best:
            continue
        if rest == 0:
            best = worth
            continue
        depth += 1
        scratch[_LEFT, depth] = scratch[_BATCH, depth] = rest
        scratch[_BEGINS_S, depth], scratch[_TOTAL_S, depth] = ends_s, total_s
        scratch[_KEPT, depth] = kept
    return best


@compiled()
def anneal(state: State, n, largest, delay_s, seed, cooling):
    """Leave the best plan of n requests in ``scratch``; return its objective.

    Parameters
    ----------
    state
        With what each request needs in ``scratch``, in order of arrival.
    n, largest
        Requests, and the most of a batch.
    delay_s
        Time until the first batch can start. [s]
    seed
        Of the draws, 1 to 2**31 - 2.
    cooling
        Settings, see Cooling.
    """
    scratch = state.scratch
    for k in range(n):
        scratch[ORDER, k] = k
    # Two starts, as Algorithm 1: in order of arrival and by time; the better goes on.
    _start(scratch, n, largest)
    in_order, _ = goodput(state, n, delay_s)
    _copy_plan(scratch, n, ORDER, BEST_ORDER)
    _sort_by_time(state, n, largest)
    now, kept = goodput(state, n, delay_s)
    best = now
    # The paper stops where all keep their SLO; where none can, no order helps either,
    # and the search would only shorten the sum of the times of the late.
    all_kept = kept == n and cooling.early_return
    if all_kept or now * _ROUNDING >= in_order:
        _copy_plan(scratch, n, ORDER, BEST_ORDER)
        if all_kept or _all_late(scratch, n, delay_s):
            return best
    else:
        best = in_order
    if n == 1:
        return best
    most = _best_of_all(state, n, largest, delay_s, best)
    _copy_plan(scratch, n, BEST_ORDER, ORDER)
    now, _ = goodput(state, n, delay_s)
    draw = seed
    temperature = cooling.hottest
    while temperature >= cooling.coldest:
        for _ in range(cooling.moves):
            # Nothing is found that is better than the best of all, but for rounding.
            if best * _NO_BETTER >= most:
                return best
            draw = _next_draw(draw)
            move = draw % 3  # rand({0, 1, 2}) of Algorithm 1
            draw = _next_draw(draw)
            position = draw % n
            other = 0
            if move == 2:
                draw = _next_draw(draw)
                other = draw % n
            target, first, cut, new_cut, last = _moved(
                scratch, n, largest, move, position, other
            )
            # A move that is not allowed counts as one of the iterations all the same.
            if first < 0:
                continue
            found = _move(state, n, position, target, first, cut, new_cut, last)
            accepted = found > now * _ROUNDING
            # Printed is exp(-(f_new - f) / T) < rand, which is true of no worse plan.
            if not accepted and cooling.metropolis:
                draw = _next_draw(draw)
                accepted = draw / _MODULUS < chance_of_worse(found, now, temperature)
            if not accepted:
                _move(state, n, target, position, first, new_cut, cut, last)
                continue
            now = found
            if now > best * _ROUNDING:
                best = now
                _copy_plan(scratch, n, ORDER, BEST_ORDER)
        temperature *= cooling.decay
    return best
