"""Llumnix's dispatch: the replica of the highest freeness, the first of equals.

Sun et al., OSDI 2024; its artifact (osdi24ae), vllm/instance_info.py: the free blocks
that are left beside the demand of all that wait, for each request that runs or waits.
Without its rebalancer this is INFaaS++, as the paper compares with. With ``target``,
replicas that have a request of high priority count only so many blocks as their own;
for a request of high priority, those that have none do, so that these gather.

Differs: main asks for the head of the queue alone; of equals it takes the last.
"""

import math

from capplan.deployment.policy import Rules, indices
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.rebalancers.llumnix import (
    FREENESS,
    has_high_priority,
    waiting_tokens,
)
from capplan.simulator.state import ROUTE, ROUTER_SETTINGS, Count, Needs

NEEDS = Needs.ALL
RULES = Rules(FREENESS)
SETTING = indices(RULES.settings)
TARGET, HIGH = ROUTER_SETTINGS + SETTING.target, ROUTER_SETTINGS + SETTING.high


@inlined()
def _freeness(state, r, target, is_charged):
    replica = state.replicas[r]
    requests = replica.running_count + replica.waiting_count
    if requests == 0:
        return math.inf
    blocks = state.engine[0].kv_blocks
    left = replica.free_blocks - waiting_tokens(state, r) / state.engine[0].block_size
    if is_charged:
        left -= blocks - target
    return left / requests


@compiled(ROUTE)
def route(state, slot, now_s):
    """Return the replica of the highest freeness, the first of equals."""
    target, high = state.settings[TARGET], state.settings[HIGH]
    is_high = state.requests[slot].priority < high
    best, most = 0, -math.inf
    for r in range(state.counts[Count.OPEN]):
        is_charged = False
        if target > 0:
            is_charged = has_high_priority(state, r, high) != is_high
        free = _freeness(state, r, target, is_charged)
        if free > most:
            best, most = r, free
    return best
