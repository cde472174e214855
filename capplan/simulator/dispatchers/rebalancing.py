"""Aladdin's Algorithm 2: move what was just placed so that errors cancel.

Nie et al., arXiv:2405.06856, section 4.3. On each replica l^e and b^e are the errors in
tokens and requests: each running request that has outrun its prediction adds its second
prediction and 1, each that finished since the last beat with fewer tokens than
predicted takes what was left and 1. Eq. 4 is a line in (context, batch) whose parallel
through (l^e, b^e) is at a distance from the origin. The longest prediction first, each
request of a replica above 0 goes to the lowest one where the distances' sum falls by
that.

The second prediction is the mean of past outputs longer than the first, of prompts as
long (``beats.py``). Errors are found anew at each beat: the paper does not say whether
they accumulate.
"""

import math

from capplan.simulator.fleet.beats import predicted_again
from capplan.simulator.fleet.motion import Beat
from capplan.simulator.jit import compiled
from capplan.simulator.routers.aladdin_best_fit import remaining_tokens
from capplan.simulator.state import NONE, State

_ROUNDING = 1e-9
"""A move must gain a larger share than this."""


@compiled()
def slopes(state: State, motion, r: int):
    """Write the distance of a replica's error line, and what a request adds to it.

    By Eq. 4 with all that was just placed: alpha is the time per token of context, beta
    the slope of the iteration time about the batch.
    """
    last = state.engine[0].max_num_seqs
    here = min(max(state.replicas[r].outstanding, 1), last)
    up, down = min(here + 1, last), max(here - 1, 1)
    alpha = state.by_batch[here].decode_context_s
    beta = state.by_batch[up].decode_s - state.by_batch[down].decode_s
    beta = max(beta / max(up - down, 1), 0.0)
    norm = math.sqrt(alpha * alpha + beta * beta)
    if norm == 0.0:
        norm = 1.0
    tokens, requests = motion.beats[Beat.TOKENS, r], motion.beats[Beat.REQUESTS, r]
    for head in (state.replicas[r].running_head, state.replicas[r].waiting_head):
        slot = head
        while slot != NONE:
            request = state.requests[slot]
            held = remaining_tokens(state, r, slot)[0]
            if held - request.prompt_tokens > request.predicted_tokens:
                tokens += predicted_again(motion, state.requests[slot])
                requests += 1.0
            slot = request.next
    motion.beats[Beat.PER_TOKEN, r] = alpha / norm
    motion.beats[Beat.PER_REQUEST, r] = beta / norm
    motion.beats[Beat.DISTANCE, r] = (alpha * tokens + beta * requests) / norm


@compiled()
def sort_longest(state: State, motion, count):
    """Order what was placed by its prediction, the longest first, then by arrival."""
    slots, order = motion.placed[0], motion.placed[1]
    for k in range(count):
        tokens = state.requests[slots[k]].predicted_tokens
        at = k
        while at > 0:
            before = slots[order[at - 1]]
            if state.requests[before].predicted_tokens >= tokens:
                break
            order[at] = order[at - 1]
            at -= 1
        order[at] = k


@compiled()
def rebalance(state: State, motion, first, end, count):
    """Move requests among the replicas of a group."""
    distance = motion.beats[Beat.DISTANCE]
    per_token = motion.beats[Beat.PER_TOKEN]
    per_request = motion.beats[Beat.PER_REQUEST]
    for k in range(count):
        request = state.requests[motion.placed[0, motion.placed[1, k]]]
        x = request.replica
        if x < first or x >= end or distance[x] <= 0:
            continue
        y = first
        for r in range(first, end):
            if distance[r] < distance[y]:
                y = r
        if x == y:
            continue
        tokens = request.predicted_tokens
        after_x = distance[x] - per_token[x] * tokens - per_request[x]
        after_y = distance[y] + per_token[y] * tokens + per_request[y]
        before = abs(distance[x]) + abs(distance[y])
        if abs(after_x) + abs(after_y) < before * (1.0 - _ROUNDING):
            distance[x], distance[y] = after_x, after_y
            request.replica = y
