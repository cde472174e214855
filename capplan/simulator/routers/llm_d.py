"""llm-d's weighted scores: queue, free KV, cached prefix, load; the highest sum.

llm-d inference scheduler (520af478), pkg/epp: the queue scorer gives 1 to the shortest
queue and 0 to the longest, the KV scorer the share that is free, the prefix scorer the
share of the prompt's blocks that is cached there, the load-aware scorer 0.5 where none
waits, falling to 0 at 128. The weights are those of its config/loader/defaults.go.
Queues and KV are as old as the last look at the metrics, every 50 ms there. Equals are
drawn from.

Prefixes are known by one of two indices. ``precise``: the replica's cache at the
arrival. ``approximate`` (requestcontrol/dataproducer/approximateprefix): what was sent
there, in blocks of ``block`` tokens, of a prompt the first ``match``, of a replica the
last ``capacity``; 0 is what the engine reports (``autoTune``, its default), else there
16 and 31,250. A prompt's first blocks leave first, and a replica need not have them to
score with the rest, if another has them. Here prompts match as far as their prefix
group or their conversation says.
"""

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.engine.wake import next_s
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import cached_blocks, ceil_div
from capplan.simulator.memory.equals import one_of_equals
from capplan.simulator.memory.prefix_memory import (
    common_blocks,
    knows_part,
    last_owner,
    owner_before,
    part_owner,
    remember,
    remember_part,
    shrink_oldest,
    tokens_before,
)
from capplan.simulator.memory.run_table import newest_run
from capplan.simulator.records import Request
from capplan.simulator.state import (
    ADVANCE_FIRST,
    NONE,
    ROUTE,
    ROUTER_SETTINGS,
    Count,
    Needs,
    State,
)

NEEDS = Needs.SEEN
RULES = Rules(
    {
        "queue": Knob(2.0, 0, 1000),
        "kv": Knob(2.0, 0, 1000),
        "prefix": Knob(3.0, 0, 1000),
        "load": Knob(0.0, 0, 1000),
        "refresh": Knob(0.05, 0, 3600, is_duration=True),
        "index": Knob(0, choices=("precise", "approximate")),
        "block": Knob(0, 0),
        "match": Knob(256),
        "capacity": Knob(0, 0),
    },
    remembers=1,
)
SETTING = indices(RULES.settings, ROUTER_SETTINGS)

FULL_QUEUE = 128
"""Waiting requests of a replica that has no load left to take (queueThreshold)."""


def score(weights, most, fewest, waiting, kv_use, hit_share):
    """Return the score of a replica on which so many requests wait.

    ``weights`` are of queue, KV, prefix and load; of others, ``fewest`` to ``most``
    wait.
    """
    queue = 1.0
    if most > fewest:
        queue = (most - waiting) / (most - fewest)
    scored = weights[0] * queue + weights[1] * (1.0 - kv_use) + weights[2] * hit_share
    return scored + weights[3] * (0.5 * (1.0 - min(waiting, FULL_QUEUE) / FULL_QUEUE))


_score = inlined()(score)


@inlined()
def _block_tokens(state: State):
    given = int(state.settings[SETTING.block])
    return given if given > 0 else state.engine[0].block_size


@inlined()
def _hashed_blocks(state: State, request: Request):
    """Return how many blocks of a prompt are looked up: none if it fills no block.

    The last may be a part of one.
    """
    block_tokens = _block_tokens(state)
    if request.prompt_tokens < block_tokens:
        return 0
    blocks = ceil_div(request.prompt_tokens, block_tokens)
    return min(blocks, int(state.settings[SETTING.match]))


@inlined()
def _part_owner(state: State, request: Request, blocks):
    """Return whose the last of these blocks is, if it is a part of one, or NONE."""
    block_tokens = _block_tokens(state)
    if blocks * block_tokens <= request.prompt_tokens:
        return NONE
    return part_owner(state, request, block_tokens)


@compiled()
def _known_anywhere(state: State, owner, low, full):
    """Return up to which block of a stretch some replica has each."""
    known = low
    while known < full:
        before = known
        for r in range(state.counts[Count.OPEN]):
            index = newest_run(state, r, owner, 0)
            while index != NONE and known < full:
                run = state.runs[index]
                if run.low <= known < run.high:
                    known = run.high
                index = run.below
        if known == before:
            break
    return min(known, full)


@compiled()
def _blocks_anywhere(state: State, request: Request, full):
    """Return how many of a prompt's first blocks some replica has, up to a gap."""
    size = _block_tokens(state)
    high = known = common_blocks(state, request, size, full)
    owner = last_owner(state, request)
    while high > 0:
        low = min(high, tokens_before(state, owner) // size)
        if low < high:
            has = _known_anywhere(state, owner, low, high)
            known = has if has < high else known
        owner, high = owner_before(state, owner), low
    return known


@compiled()
def _blocks_sent(state: State, r: int, request: Request, known):
    """Return how many of a prompt's first ``known`` blocks a replica was sent."""
    size = _block_tokens(state)
    owner, high, sent = last_owner(state, request), known, 0
    while high > 0:
        low = min(high, tokens_before(state, owner) // size)
        index = newest_run(state, r, owner, 0) if low < high else NONE
        while index != NONE:
            run = state.runs[index]
            sent += max(0, min(run.high, high) - min(run.low, high))
            index = run.below
        owner, high = owner_before(state, owner), low
    return sent


@compiled()
def _note_matches(state: State, request: Request):
    """Note in ``scratch`` how many of a prompt's blocks each replica was sent.

    Up to the first that none was sent.
    """
    matches = state.scratch[0]
    blocks = _hashed_blocks(state, request)
    owner = _part_owner(state, request, blocks)
    full = blocks - int(owner != NONE)
    known = _blocks_anywhere(state, request, full)
    for r in range(state.counts[Count.OPEN]):
        matches[r] = _blocks_sent(state, r, request, known)
        if owner != NONE and known == full:
            matches[r] += knows_part(state, r, owner, request.prompt_tokens)


@compiled()
def _remember(state: State, r: int, slot: int, now_s):
    """Note the blocks of a prompt; forget the oldest beyond the capacity."""
    request = state.requests[slot]
    block_tokens = _block_tokens(state)
    blocks = _hashed_blocks(state, request)
    owner = _part_owner(state, request, blocks)
    full = blocks - int(owner != NONE)
    remember(state, r, request, block_tokens, full, now_s, True)
    if owner != NONE:
        remember_part(state, r, owner, request.prompt_tokens, now_s)
    capacity = int(state.settings[SETTING.capacity])
    if capacity == 0:
        capacity = state.engine[0].kv_blocks + 1  # with the null block
    while state.runs[r].high > capacity:
        shrink_oldest(state, r, state.runs[r].high - capacity, True)


@inlined()
def _cached_blocks(state: State, r: int, slot: int):
    """Return how many blocks of a prompt a replica has cached, a group on one rank."""
    count = state.engine[0].ranks
    if count == 0:
        return cached_blocks(state, r, slot)
    ranks = state.by_rank
    most = 0
    for row in range(r * count, (r + 1) * count):
        most = max(most, cached_blocks(ranks, row, slot))
    return most


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica of the highest score, one of equals by the first draw."""
    n = state.counts[Count.OPEN]
    request = state.requests[slot]
    waiting = state.replicas.seen_waiting
    scores = state.scratch[0]
    fewest = most = waiting[0]
    for r in range(1, n):
        fewest = min(fewest, waiting[r])
        most = max(most, waiting[r])
    own = state.settings
    weights = (
        own[SETTING.queue],
        own[SETTING.kv],
        own[SETTING.prefix],
        own[SETTING.load],
    )
    approximate = own[SETTING.index] != 0.0
    if approximate:
        blocks = _hashed_blocks(state, request)
        _note_matches(state, request)
    else:
        blocks = request.prompt_tokens // state.engine[0].block_size
    reads_cache = state.engine[0].prefix_caching != 0 and weights[2] > 0 and blocks > 0
    highest = -1.0
    for r in range(n):
        hit_share = 0.0
        if approximate:
            if blocks > 0:
                hit_share = scores[r] / blocks
        elif reads_cache:
            if next_s(state, r) < now_s:
                return ADVANCE_FIRST - r
            hit_share = _cached_blocks(state, r, slot) / blocks
        kv_use = state.replicas[r].seen_kv_use
        scores[r] = _score(weights, most, fewest, waiting[r], kv_use, hit_share)
        highest = max(highest, scores[r])
    best = one_of_equals(state, n, highest)
    if approximate:
        _remember(state, best, slot, now_s)
    return best
