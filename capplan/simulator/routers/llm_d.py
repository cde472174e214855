"""llm-d's weighted scores: free queue, free KV and cached prefix, the highest sum.

llm-d inference scheduler (520af478), pkg/epp: the queue scorer gives 1 to the shortest
queue and 0 to the longest, the KV scorer the share that is free, the prefix scorer the
share of the prompt's blocks that is cached there. The weights are those of its
config/loader/defaults.go. Queues and KV are as old as the last look at the metrics,
every 50 ms there; the prefixes are those of the replica's cache at the arrival, as with
its precise scorer. Equals are drawn from.
"""

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kvcache import count_hits
from capplan.simulator.state import (
    ADVANCE_FIRST,
    ROUTE,
    ROUTER_SETTINGS,
    Count,
    Needs,
)
from capplan.simulator.wake import next_s

NEEDS = Needs.SEEN
RULES = Rules(
    {
        "queue": Knob(2.0, 0, 1000),
        "kv": Knob(2.0, 0, 1000),
        "prefix": Knob(3.0, 0, 1000),
        "refresh": Knob(0.05, 0, 3600, is_duration=True),
    }
)
_OWN = indices(RULES.settings)
QUEUE = ROUTER_SETTINGS + _OWN.queue
KV = ROUTER_SETTINGS + _OWN.kv
PREFIX = ROUTER_SETTINGS + _OWN.prefix


def score(weights, most, fewest, waiting, kv_use, hit_share):
    """Return the score of a replica on which so many requests wait.

    ``weights`` are of queue, KV and prefix; on others ``fewest`` to ``most`` wait.
    """
    queue = 1.0
    if most > fewest:
        queue = (most - waiting) / (most - fewest)
    return weights[0] * queue + weights[1] * (1.0 - kv_use) + weights[2] * hit_share


_score = inlined()(score)


@compiled(ROUTE)
def route(state, slot, now_s):
    """Return the replica of the highest score, one of equals by the first draw."""
    n = state.counts[Count.OPEN]
    waiting = state.replicas.seen_waiting
    scores = state.scratch[0]
    fewest = most = waiting[0]
    for r in range(1, n):
        fewest = min(fewest, waiting[r])
        most = max(most, waiting[r])
    blocks = state.requests[slot].prompt_tokens // state.engine[0].block_size
    weights = (state.settings[QUEUE], state.settings[KV], state.settings[PREFIX])
    reads_cache = state.engine[0].prefix_caching != 0 and weights[2] > 0 and blocks > 0
    highest = -1.0
    equals = 0
    for r in range(n):
        hit_share = 0.0
        if reads_cache:
            if next_s(state, r) < now_s:
                return ADVANCE_FIRST - r
            hit_share = count_hits(state, r, slot)[0] / blocks
        kv_use = state.replicas[r].seen_kv_use
        scores[r] = _score(weights, most, fewest, waiting[r], kv_use, hit_share)
        if scores[r] > highest:
            highest = scores[r]
            equals = 0
        equals += int(scores[r] == highest)
    chosen = int(state.draws[state.counts[Count.DRAW], 0] * equals)
    for r in range(n):
        if scores[r] == highest:
            if chosen == 0:
                return r
            chosen -= 1
    return 0
