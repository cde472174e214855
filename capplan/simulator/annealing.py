"""SA scheduling: an order of waiting requests, and its batches, by annealing.

Huang et al., "SLO-Aware Scheduling for Large Language Model Inferences", arXiv
2504.14966, Algorithm 1. A plan is an order of N requests cut into batches. A request
starts when the longest of the batch before has ended, and takes the time of its prompt
and of each of its tokens in a batch of its own size, eqs. 14 to 16, here from the
latency tables. The objective is the number of requests that keep their SLO over the
sum of their end-to-end times.

As printed, the acceptance never takes a worse plan; ``metropolis`` does. The best plan
is kept (section 4.3), and the inner loop starts again at every temperature.

``state.scratch`` holds, a row each: slots, the current order and batch sizes, the
candidate's, the best one's; then what evaluating needs of each request: prompt and
predicted output [tokens], time since its arrival, its limits of TTFT, TPOT, e2e [s].
"""

import math
from typing import NamedTuple

from capplan.simulator.jit import compiled, inlined

# A plan is two rows, its order and its batch sizes; the first of them names it.
SLOTS, ORDER, SIZES, NEW_ORDER, NEW_SIZES, BEST_ORDER, BEST_SIZES = range(1, 8)
PROMPT, OUTPUT, WAITED, TTFT, TPOT, E2E = range(8, 14)

_ROUNDING = 1.0 + 1e-9
"""Objectives and times nearer than this are equal, whatever the rounding."""
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
def prefill_s(state, tokens):
    """Return the time of a prefill in iterations of at most the token budget. [s]"""
    budget = min(state.engine[0].max_num_batched_tokens, state.fused_s.shape[0] - 1)
    full = tokens // budget
    rest = tokens - full * budget
    # The table has a time of no tokens too, that of an iteration which is not run.
    return full * state.fused_s[budget] + (rest > 0) * state.fused_s[rest]


@inlined()
def first_and_rest_s(state, index, b):
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


@compiled()
def goodput(state, n, order, sizes, delay_s):
    """Return kept SLOs per second of latency of a plan, and how many are kept.

    ``order`` and ``sizes`` are rows of ``scratch``; the first batch starts after
    ``delay_s``.
    """
    scratch = state.scratch
    kept = 0
    total_s = 0.0
    begins_s = delay_s
    position = 0
    batch = 0
    while position < n:
        b = int(scratch[sizes, batch])
        longest_s = 0.0
        for k in range(position, position + b):
            index = int(scratch[order, k])
            first_s, rest_s = first_and_rest_s(state, index, b)
            longest_s = max(longest_s, first_s + rest_s)
            ttft_s = scratch[WAITED, index] + begins_s + first_s
            e2e_s = ttft_s + rest_s
            total_s += e2e_s
            if (
                ttft_s <= scratch[TTFT, index] * _ROUNDING
                and rest_s <= scratch[TPOT, index] * scratch[OUTPUT, index] * _ROUNDING
                and e2e_s <= scratch[E2E, index] * _ROUNDING
            ):
                kept += 1
        # Eq. 11: a batch waits for the longest of every batch before it.
        begins_s += longest_s
        position += b
        batch += 1
    return kept / max(total_s, 1e-12), kept


@inlined()
def _batch_of(scratch, position):
    """Return the candidate's batch at a position, and where the batch begins."""
    batch = 0
    begins = 0
    while position >= begins + scratch[NEW_SIZES, batch]:
        begins += int(scratch[NEW_SIZES, batch])
        batch += 1
    return batch, begins


@inlined()
def _drop_empty(scratch, n, batch):
    """Take a batch that is empty out of the candidate."""
    if scratch[NEW_SIZES, batch] == 0:
        for k in range(batch, n - 1):
            scratch[NEW_SIZES, k] = scratch[NEW_SIZES, k + 1]
        scratch[NEW_SIZES, n - 1] = 0


@compiled()
def _squeeze(scratch, n, position, largest):
    """Move a request to the end of the batch before; return whether it did."""
    batch, begins = _batch_of(scratch, position)
    # Section 4.3: not from the first batch, and not into a full one.
    if batch == 0 or scratch[NEW_SIZES, batch - 1] >= largest:
        return False
    # The place where its batch began becomes the last of the batch before.
    moved = scratch[NEW_ORDER, position]
    for k in range(position, begins, -1):
        scratch[NEW_ORDER, k] = scratch[NEW_ORDER, k - 1]
    scratch[NEW_ORDER, begins] = moved
    scratch[NEW_SIZES, batch - 1] += 1
    scratch[NEW_SIZES, batch] -= 1
    _drop_empty(scratch, n, batch)
    return True


@compiled()
def _delay(scratch, n, position, largest):
    """Move a request to the front of the batch after; return whether it did."""
    batch, begins = _batch_of(scratch, position)
    size = int(scratch[NEW_SIZES, batch])
    ends = begins + size
    # From the last batch a request opens a new one, unless it was alone in it.
    if ends == n:
        if size < 2:
            return False
    elif scratch[NEW_SIZES, batch + 1] >= largest:
        return False
    moved = scratch[NEW_ORDER, position]
    for k in range(position, ends - 1):
        scratch[NEW_ORDER, k] = scratch[NEW_ORDER, k + 1]
    scratch[NEW_ORDER, ends - 1] = moved
    scratch[NEW_SIZES, batch + 1] += 1
    scratch[NEW_SIZES, batch] -= 1
    _drop_empty(scratch, n, batch)
    return True


@inlined()
def _next_draw(draw):
    return (draw * _MULTIPLIER) % _MODULUS


@inlined()
def _start(scratch, n, largest):
    """Cut the current order into batches of ``largest``, the last one shorter."""
    for k in range(n):
        scratch[SIZES, k] = max(0, min(largest, n - k * largest))


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
def _sort_by_time(state, n, largest):
    """Put the current order by time in a batch of ``largest``, the oldest first."""
    scratch = state.scratch
    for k in range(1, n):
        index = int(scratch[ORDER, k])
        first_s, rest_s = first_and_rest_s(state, index, largest)
        position = k
        while position > 0:
            other = int(scratch[ORDER, position - 1])
            other_first_s, other_rest_s = first_and_rest_s(state, other, largest)
            if other_first_s + other_rest_s <= (first_s + rest_s) * _ROUNDING:
                break
            scratch[ORDER, position] = other
            position -= 1
        scratch[ORDER, position] = index


@compiled()
def anneal(state, n, largest, delay_s, seed, cooling):
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
    in_order, _ = goodput(state, n, ORDER, SIZES, delay_s)
    _copy_plan(scratch, n, ORDER, BEST_ORDER)
    _sort_by_time(state, n, largest)
    now, kept = goodput(state, n, ORDER, SIZES, delay_s)
    best = now
    # The paper stops where all keep their SLO; where none can, no order helps either,
    # and the search would only shorten the sum of the times of the late.
    all_kept = kept == n and cooling.early_return
    if all_kept or now * _ROUNDING >= in_order:
        _copy_plan(scratch, n, ORDER, BEST_ORDER)
        if all_kept or _all_late(scratch, n, delay_s):
            return best
    else:
        best = now = in_order
        _copy_plan(scratch, n, BEST_ORDER, ORDER)
    if n == 1:
        return best
    draw = seed
    temperature = cooling.hottest
    _copy_plan(scratch, n, ORDER, NEW_ORDER)
    while temperature >= cooling.coldest:
        for _ in range(cooling.moves):
            draw = _next_draw(draw)
            move = draw % 3  # rand({0, 1, 2}) of Algorithm 1
            draw = _next_draw(draw)
            position = draw % n
            moved = True
            if move == 0:
                moved = _squeeze(scratch, n, position, largest)
            elif move == 1:
                moved = _delay(scratch, n, position, largest)
            else:
                draw = _next_draw(draw)
                other = draw % n
                held = scratch[NEW_ORDER, position]
                scratch[NEW_ORDER, position] = scratch[NEW_ORDER, other]
                scratch[NEW_ORDER, other] = held
            # A move that is not allowed counts as one of the iterations all the same.
            if not moved:
                continue
            # A move changes all batches behind it, so the whole plan is judged again.
            found, _ = goodput(state, n, NEW_ORDER, NEW_SIZES, delay_s)
            accepted = found > now * _ROUNDING
            # Printed is exp(-(f_new - f) / T) < rand, which is true of no worse plan.
            if not accepted and cooling.metropolis:
                draw = _next_draw(draw)
                accepted = draw / _MODULUS < chance_of_worse(found, now, temperature)
            if accepted:
                now = found
                _copy_plan(scratch, n, NEW_ORDER, ORDER)
                if now > best * _ROUNDING:
                    best = now
                    _copy_plan(scratch, n, ORDER, BEST_ORDER)
            else:
                _copy_plan(scratch, n, ORDER, NEW_ORDER)
        temperature *= cooling.decay
    return best
