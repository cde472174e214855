"""Llumnix's dispatch: the replica of the highest freeness, the first of equals.

Sun et al., OSDI 2024; its artifact (osdi24ae), vllm/instance_info.py: the free blocks
that are left beside the demand of all that wait, for each request that runs or waits.
Without its rebalancer this is INFaaS++, as the paper compares with. With ``target``,
replicas that have a request of high priority count only so many blocks as their own;
for a request of high priority, those that have none do, so that these gather.
All is as old as the last look, every 50 ms in main (POLLING_INTERVAL), so that a burst
goes to one replica; in the artifact as old as the schedule of the last iteration that
is over.

Differs: main asks for the head of the queue alone; of equals it takes the last.
"""

import math

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.rebalancers.llumnix import FREENESS
from capplan.simulator.state import ROUTE, ROUTER_SETTINGS, Count, Needs, Setting, State

NEEDS = Needs.SEEN
RULES = Rules(FREENESS | {"refresh": Knob(0.05, 0, 3600, is_duration=True)})
TARGET = ROUTER_SETTINGS + indices(RULES.settings).target


@inlined()
def _freeness(state: State, r: int, target, is_charged):
    replica = state.replicas[r]
    requests = replica.seen_running + replica.seen_waiting
    if requests == 0:
        return math.inf
    blocks = state.engine[0].kv_blocks
    left = float(round(blocks * (1.0 - replica.seen_kv_use)))
    left -= replica.seen_tokens / state.engine[0].block_size
    if is_charged:
        left -= blocks - target
    return left / requests


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica of the highest freeness, the first of equals."""
    target = state.settings[TARGET]
    is_high = state.requests[slot].priority < state.settings[Setting.HIGH]
    best, most = 0, -math.inf
    for r in range(state.counts[Count.OPEN]):
        is_charged = (state.replicas[r].seen_high != 0) != is_high
        free = _freeness(state, r, target, is_charged)
        if free > most:
            best, most = r, free
    return best
