"""Llumnix: from replicas with too little free KV to those with most, by freeness.

Sun et al., "Llumnix: Dynamic Scheduling for Large Language Model Serving", OSDI 2024;
AlibabaPAI/llumnix main (load_computation.py, global_scheduler/migration_filter.py and
migration_policy.py, ``Defrag``; llumlet/local_migration_scheduler.py). A replica's
freeness is what its free blocks leave beside the demand of its queue, over the requests
that run: in how many blocks' time it is full. The queue's head alone demands blocks
(``usage=head``, as in the paper and main), or all that wait (``usage=all``, as in the
artifact). With ``target``, a replica that has a request of high priority counts only so
many blocks as its own, so that others keep out of its way. Replicas below ``theta``, or
whose head was preempted, are sources, the fullest first; those above are destinations,
the emptiest first. Of a source the request of lowest priority moves, of equals the
shortest, as main does (``SR``), or the newest, as the artifact does; with ``target``
none of high priority, so that these stay where room is kept for them.

Differs: main counts preempted requests anywhere in the queue. The paper lets the head's
demand grow to all of it step by step, at a pace it does not state; here, in the
artifact (``prefill_beta`` is 0) and in main it is all there at once. The artifact moves
the newest request, whatever its priority, if any other is normal.
"""

import math

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.engine.queues import has_high_priority, waiting_tokens
from capplan.simulator.fleet.motion import REBALANCE
from capplan.simulator.fleet.moving_requests import decoded_tokens
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.rebalancers import MIGRATION
from capplan.simulator.state import NONE, Count, Phase, State

VICTIMS = ("shortest", "newest")

FREENESS = {
    "target": Knob(0, 0),  # blocks of a replica with a request of high priority
    "high": Knob(0, -(2**31)),  # priorities below are high
}
"""Settings of the freeness, for the router of the same name too."""

RULES = Rules(
    MIGRATION
    | {
        "theta": Knob(3.0, -1000, 10**6),  # blocks for each request
        "usage": Knob(0, choices=("head", "all")),
        "victim": Knob(0, choices=VICTIMS),
    }
    | FREENESS
)
SETTING = indices(RULES.settings)


@inlined()
def headroom_blocks(state: State, r: int, target, high):
    """Return the blocks that a replica keeps free for requests of high priority."""
    if target > 0 and has_high_priority(state, r, high):
        return state.engine[0].kv_blocks - target
    return 0.0


@inlined()
def wanted_blocks(state: State, r: int, of_all):
    """Return the blocks that the head of a queue demands, or all in it. [blocks]"""
    replica = state.replicas[r]
    tokens = 0.0
    if replica.waiting_count > 0:
        head = state.requests[replica.waiting_head]
        if of_all:
            tokens = float(waiting_tokens(state, r))
        elif head.phase != Phase.PREEMPTED_DRAINING:  # else it has only a token to get
            tokens = float(head.known_tokens)
    return tokens / state.engine[0].block_size


@compiled()
def freeness(state: State, r: int, of_all, target, high):
    """Return the free blocks for each request of a replica; infinite when idle.

    ``of_all``: all that wait demand blocks, or else the head of the queue.
    """
    replica = state.replicas[r]
    requests = replica.running_count + int(replica.waiting_count > 0)
    if requests == 0:
        return math.inf
    free = replica.free_blocks - wanted_blocks(state, r, of_all)
    return (free - headroom_blocks(state, r, target, high)) / requests


@inlined()
def _was_preempted(state: State, r: int):
    head = state.replicas[r].waiting_head
    return head != NONE and state.requests[head].preemptions > 0


@compiled()
def victim(state: State, r: int, newest, above):
    """Return the running request to move, of a priority ``above`` or later, or NONE.

    It decodes in the next iteration too, also if it sits one out. One that has just
    come has been in one: else a tick whenever it joins would move it on for ever.
    """
    best = NONE
    fewest = 0
    slot = state.replicas[r].running_head
    while slot != NONE:
        request = state.requests[slot]
        tokens = decoded_tokens(state, slot)
        if tokens > request.joined_tokens and request.priority >= above:
            if newest:
                tokens = -request.admission
            lower = best == NONE or request.priority > state.requests[best].priority
            equal = best != NONE and request.priority == state.requests[best].priority
            if lower or (equal and tokens < fewest):
                best = slot
                fewest = tokens
        slot = request.next
    return best


@inlined()
def _insert(column, keys, count, r):
    """Put a replica into ``column`` behind those whose key is not larger."""
    at = count
    while at > 0 and keys[int(column[at - 1])] > keys[r]:
        column[at] = column[at - 1]
        at -= 1
    column[at] = r


@compiled(REBALANCE)
def rebalance(state: State, motion, now_s):
    """Pair the fullest replica with the emptiest, the next with the next."""
    theta = motion.settings[SETTING.theta]
    newest = motion.settings[SETTING.victim] != 0
    of_all = motion.settings[SETTING.usage] != 0
    target, high = motion.settings[SETTING.target], motion.settings[SETTING.high]
    above = high if target > 0 else -math.inf
    keys, sources, targets = motion.scratch[0], motion.scratch[1], motion.scratch[2]
    source_count = target_count = 0
    for r in range(state.replicas.shape[0]):
        closed = r >= state.counts[Count.OPEN]
        here = state.replicas[r].running_count + state.replicas[r].waiting_count
        if closed and here == 0:
            continue
        keys[r] = -1000.0
        if not closed:
            keys[r] = freeness(state, r, of_all, target, high)
        killed = _was_preempted(state, r)
        if closed or killed or keys[r] < theta:
            _insert(sources, keys, source_count, r)
            source_count += 1
        elif keys[r] > theta:
            keys[r] = -keys[r]
            _insert(targets, keys, target_count, r)
            target_count += 1
    pairs = 0
    for k in range(min(source_count, target_count)):
        source, target = int(sources[k]), int(targets[k])
        if motion.busy[source] != 0 or motion.busy[target] != 0:
            continue
        slot = victim(state, source, newest, above)
        if slot != NONE:
            motion.pairs[pairs, 0] = source
            motion.pairs[pairs, 1] = target
            motion.pairs[pairs, 2] = slot
            pairs += 1
    return pairs
