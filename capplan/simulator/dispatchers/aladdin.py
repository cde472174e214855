"""Aladdin's heartbeat: best fit of all that arrived since the last, then re-balanced.

Nie et al., "Aladdin: Joint Placement and Scaling for SLO-Aware LLM Serving",
arXiv:2405.06856. At each heartbeat Algorithm 1 places the requests that wait, one
after another: on the replica of the largest capacity norm that meets (b) to (e), where
each counts those placed before it. Then Algorithm 2 (section 4.3) moves some of them,
before they start, from replicas whose outputs were predicted too short to those where
they were predicted too long. With ``waste``, e of Eq. 8, the scheduler is distributed:
as many groups of equal size as have 1/(2e) replicas each take requests in turn, in
proportion to their replicas, and place them alone.

As ``routers/aladdin_best_fit.py`` where no replica meets (b) to (e). The heartbeat's
length is not published.
"""

import math

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.dispatchers.rebalancing import rebalance, slopes, sort_longest
from capplan.simulator.engine.queues import (
    count_outstanding,
    push_waiting_back,
    remove_waiting,
)
from capplan.simulator.fleet.beats import DISPATCH
from capplan.simulator.fleet.motion import DISPATCHER_SETTINGS, Beat, Index
from capplan.simulator.fleet.serve import enqueue
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.routers import aladdin_best_fit as best_fit
from capplan.simulator.state import NONE, Count, Phase, State

RULES = Rules(
    {
        "beat": Knob(0.2, 1e-3, 3600, is_duration=True),
        **best_fit.RULES.settings,
        "waste": Knob(0.0, 0, 0.5),  # share of replicas; 0: one group
        "rebalance": Knob(0, choices=("on", "off")),
    }
)
SETTING = indices(RULES.settings, DISPATCHER_SETTINGS)


@inlined()
def group_count(replicas, waste):
    """Return the number of groups of at least 1 / (2 waste) replicas, or 1."""
    return max(1, int(2.0 * waste * replicas + 1e-9))


@inlined()
def group_start(replicas, groups, group):
    """Return the first replica of a group; the first ones have one more."""
    return group * (replicas // groups) + min(group, replicas % groups)


@compiled()
def next_group(motion, replicas, groups):
    """Return whose turn it is: smooth weighted round-robin."""
    credit = motion.beats[Beat.CREDIT]
    best = 0
    for group in range(groups):
        first = group_start(replicas, groups, group)
        credit[group] += group_start(replicas, groups, group + 1) - first
        if credit[group] > credit[best]:
            best = group
    credit[best] -= replicas
    return best


@compiled()
def fullest(state: State, motion, slot: int, now_s, first, end):
    """Return the replica of the largest capacity norm that meets (b) to (e)."""
    norms = motion.beats[Beat.NORM]
    emptiest = first
    for r in range(first, end):
        replica = state.replicas[r]
        load = (
            state.settings[best_fit.SETTING.gamma] * replica.outstanding_output_tokens
        )
        load += replica.outstanding_prompt_tokens
        norms[r] = math.sqrt(best_fit.squared_norm(float(replica.outstanding), load))
        if norms[r] < norms[emptiest]:
            emptiest = r
    for r in range(first, end):
        if not best_fit.meets_decode_slo(state, r, slot):
            norms[r] = -1.0
    for _ in range(first, end):
        best = first
        for r in range(first, end):
            if norms[r] > norms[best]:
                best = r
        if norms[best] < 0:
            break
        if best_fit.meets_prefill_slos(state, best, slot, now_s) and best_fit.fits_kv(
            state, best, slot
        ):
            return best
        norms[best] = -1.0
    return emptiest


@compiled()
def _propose(state: State, r: int, slot: int):
    """Let a replica count a request as its own until all are placed."""
    count_outstanding(state, r, slot, 1)
    state.replicas[r].prefill_tokens += state.requests[slot].known_tokens
    state.requests[slot].phase = Phase.WAITING
    state.requests[slot].replica = r
    push_waiting_back(state, r, slot)


@compiled()
def _withdraw(state: State, slot: int):
    r = state.requests[slot].replica
    count_outstanding(state, r, slot, -1)
    state.replicas[r].prefill_tokens -= state.requests[slot].known_tokens
    state.requests[slot].phase = Phase.EXPECTED
    remove_waiting(state, r, slot)


@compiled(DISPATCH)
def dispatch(state: State, motion, now_s):
    """Place all that are held; return how many."""
    slot = motion.counts[Index.HELD_FIRST]
    n = state.counts[Count.OPEN]
    groups = group_count(n, motion.settings[SETTING.waste])
    if slot != NONE and motion.counts[Index.GROUPED] != n:
        for group in range(n):
            motion.beats[Beat.CREDIT, group] = 0.0
        motion.counts[Index.GROUPED] = n
    count = 0
    while slot != NONE:
        group = next_group(motion, n, groups)
        first = group_start(n, groups, group)
        end = group_start(n, groups, group + 1)
        _propose(state, fullest(state, motion, slot, now_s, first, end), slot)
        motion.placed[0, count] = slot
        count += 1
        slot = state.requests[slot].next_in_list
    rebalances = motion.settings[SETTING.rebalance] == 0 and n > 1
    if rebalances:
        for r in range(n):
            slopes(state, motion, r)
    for k in range(count - 1, -1, -1):
        _withdraw(state, motion.placed[0, k])
    if rebalances:
        sort_longest(state, motion, count)
        for group in range(groups):
            first = group_start(n, groups, group)
            end = group_start(n, groups, group + 1)
            rebalance(state, motion, first, end, count)
    for r in range(state.replicas.shape[0]):
        motion.beats[Beat.TOKENS, r] = motion.beats[Beat.REQUESTS, r] = 0.0
    for k in range(count):
        slot = motion.placed[0, k]
        enqueue(state, state.requests[slot].replica, slot, now_s)
    state.counts[Count.ROUTED] += count
    return count
