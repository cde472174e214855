"""Dynamo's KV router: the least cost in blocks to prefill and blocks in use.

ai-dynamo/dynamo, lib/kv-router/src/scheduling/selector.rs (01690d42), sequences/
single.rs (04df1c42) and approx.rs (209c9e83):

    cost = overlap * prefill tokens / block size + blocks

Prefill tokens are those of requests that have no first token yet, less what the router
knew to be cached when it chose, and this prompt's that are not cached. Blocks are the
full blocks of the prompts that are not finished, this one's included, those that
several share once. The least cost wins, one of equals by a draw; with a ``temperature``
a draw from the softmax of -cost / (max - min) / temperature. With ``events=1``, the
default, it knows the replica's cache; else what it sent there in the last ``ttl``,
pruned from ``blocks`` of all replicas to 0.8 of them, the oldest first.

Replicas that get their prompts from another pool cost their blocks alone, of which each
request has its own (kv_router/prefill_router, ``build_decode_router_override``); here
also where they compute a prompt themselves. A request whose replica died comes to the
next one with its answer so far as its prompt (lib/llm/src/migration.rs); here one that
is migrated while it runs, too.

The weight multiplies all prefill, as in releases with ``overlap_score_weight``; newer
ones have two, whose defaults give the same. Times of first tokens and ends are
known at once. Not modelled: output blocks, request queues and other tiers of KV, which
are off by default there.
"""

import math

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import cached_blocks
from capplan.simulator.memory.active_blocks import blocks_with, charge
from capplan.simulator.memory.equals import one_of_equals
from capplan.simulator.memory.prefix_memory import (
    drop_before,
    known_blocks,
    remember,
    shrink_oldest,
)
from capplan.simulator.state import (
    NONE,
    ROUTE,
    ROUTER_SETTINGS,
    Count,
    Needs,
    Setting,
    State,
)

NEEDS = Needs.ALL
RULES = Rules(
    {
        "overlap": Knob(1.0, 0, 1000),
        "temperature": Knob(0.0, 0, 1000),
        "events": Knob(1, 0, 1),
        "ttl": Knob(120.0, 0, 86_400, is_duration=True),
        "blocks": Knob(2**20, 1, 2**62),
    },
    remembers=2,  # what it sent; what is not finished
)
SETTING = indices(RULES.settings, ROUTER_SETTINGS)

PRUNED_TO = 0.8


def cost(overlap, block_size, prefill_tokens, blocks):
    """Return the cost of a replica with so many tokens to prefill and blocks in use."""
    return overlap * (prefill_tokens / block_size) + blocks


_cost = inlined()(cost)


@inlined()
def _cached_tokens(state: State, r: int, slot: int):
    """Return how many tokens of a prompt the router takes to be cached."""
    request = state.requests[slot]
    block_size = state.engine[0].block_size
    if state.settings[SETTING.events] == 0.0:
        blocks = request.known_tokens // block_size
        return known_blocks(state, r, request, block_size, blocks) * block_size
    if state.engine[0].prefix_caching == 0:
        return 0
    return cached_blocks(state, r, slot) * block_size


@inlined()
def _uncached_tokens(state: State, r: int, slot: int):
    """Return how many tokens of a prompt a replica would have to prefill."""
    if state.settings[Setting.PULLS] != 0.0:
        return 0
    return state.requests[slot].known_tokens - _cached_tokens(state, r, slot)


@compiled()
def _prune(state: State):
    """Forget the oldest blocks of all replicas, down to a share of the most."""
    n = state.replicas.shape[0]
    total = 0
    for r in range(n):
        total += state.runs[r].high
    if total <= state.settings[SETTING.blocks]:
        return
    excess = total - int(state.settings[SETTING.blocks] * PRUNED_TO)
    while excess > 0:
        oldest = NONE
        for r in range(n):
            first = state.runs[r].next
            if first != r and (
                oldest == NONE
                or state.runs[first].turn < state.runs[state.runs[oldest].next].turn
            ):
                oldest = r
        excess -= shrink_oldest(state, oldest, excess, False)


@compiled()
def _drawn(state: State, n, least, most):
    """Return a replica by the softmax of the costs in ``scratch``."""
    costs = state.scratch[0]
    scale = 1.0 / ((most - least) * state.settings[SETTING.temperature])
    total = 0.0
    for r in range(n):
        costs[r] = math.exp((least - costs[r]) * scale)
        total += costs[r]
    draw = state.draws[state.counts[Count.DRAW], 0] * total
    for r in range(n):
        draw -= costs[r]
        if draw <= 0.0:
            return r
    return n - 1


@compiled()
def _remember(state: State, r: int, slot: int, now_s):
    """Note the full blocks of a prompt: of a path the last is the first to leave."""
    request = state.requests[slot]
    block_size = state.engine[0].block_size
    blocks = request.known_tokens // block_size
    remember(state, r, request, block_size, blocks, now_s, False)
    _prune(state)


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica of the least cost, or a drawn one."""
    n = state.counts[Count.OPEN]
    holders = state.replicas.shape[0]
    events = state.settings[SETTING.events] != 0.0
    costs = state.scratch[0]
    least, most = math.inf, -math.inf
    for r in range(n):
        if not events:
            drop_before(state, r, now_s - state.settings[SETTING.ttl])
        tokens = state.replicas[r].charged_tokens + _uncached_tokens(state, r, slot)
        blocks = blocks_with(state, holders + r, slot)
        block_size = state.engine[0].block_size
        costs[r] = _cost(state.settings[SETTING.overlap], block_size, tokens, blocks)
        least = min(least, costs[r])
        most = max(most, costs[r])
    if state.settings[SETTING.temperature] > 0.0 and most > least:
        chosen = _drawn(state, n, least, most)
    else:
        chosen = one_of_equals(state, n, least)
    prefill_tokens = _uncached_tokens(state, chosen, slot)
    charge(state, chosen, holders + chosen, slot, prefill_tokens)
    if not events:
        _remember(state, chosen, slot, now_s)
    return chosen
