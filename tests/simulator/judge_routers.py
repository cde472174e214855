"""Routers that remember what they sent, for the judge: token by token, block by block.

Contents are the tokens themselves. Each rule is written as its source has it, so that
nothing rests on prompts being a group's first tokens and then their own.
"""

import hashlib
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cache


@dataclass
class Sent:
    """What a router remembers of a replica."""

    lru: OrderedDict = field(default_factory=OrderedDict)  # blocks, oldest first
    expiry: dict = field(default_factory=dict)  # block -> turn, position, time
    chunks: set = field(default_factory=set)
    since: dict = field(default_factory=dict)  # owner -> turn
    leaves: OrderedDict = field(default_factory=OrderedDict)  # turn -> own tokens
    path: dict = field(default_factory=dict)  # token that others may have -> turn
    query_s: list = field(default_factory=list)
    charged: list = field(default_factory=list)  # of Charge
    pulls: bool = False  # prompts are computed in another pool
    cut_s: float = 0.0


@dataclass
class Charge:
    """What a router counts for a request on its replica."""

    request: object
    prefill_tokens: int  # until it has more tokens than then
    token_count: int
    blocks: list  # contents


def pieces(request, size, whole_only=False):
    """Contents of the prompt's blocks with all before each; the last may be a part."""
    prompt = tuple(request.tokens[: request.prompt_count])
    ends = list(range(size, len(prompt) + 1, size))
    if len(prompt) % size and not whole_only:
        ends.append(len(prompt))
    return [prompt[:end] for end in ends]


def shared_count(request):
    """Tokens of the prompt that are its group's, of a conversation all."""
    if request.text_nodes is not None:
        return request.prompt_count
    return sum(kind == "group" for kind, *_ in request.tokens[: request.prompt_count])


def owner(token):
    """The group that a token is of, or the row whose prompt or answer it is."""
    return token[0] == "group", token[1]


def drawn(draw, chosen):
    return chosen[int(draw[0] * len(chosen))]


def best_of(values, draw, wanted=max):
    best = wanted(values)
    return drawn(draw, [r for r, value in enumerate(values) if value == best])


def outstanding(replicas):
    return [replica.outstanding for replica in replicas]


def llm_d(
    replicas,
    turn,
    draw,
    request,
    now_s,
    slo,
    queue,
    kv,
    prefix,
    load,
    refresh,
    index,
    block,
    match,
    capacity,
):
    """Queue and KV as seen at the last look, the prefix as it is, or as it was sent."""
    waiting = [replica.seen[0] for replica in replicas]
    engine = replicas[0].engine
    if index == 0:
        blocks = request.prompt_count // engine.block_size
        hits = [
            len(replica.pool.cached(request)) if engine.prefix_caching else 0
            for replica in replicas
        ]
    else:
        size = int(block) or engine.block_size
        hashes = pieces(request, size)[: int(match)]
        if request.prompt_count < size:
            hashes = []
        blocks = len(hashes)
        hits = [0] * len(replicas)
        for each in hashes:
            if not any(each in replica.sent.lru for replica in replicas):
                break
            for r, replica in enumerate(replicas):
                hits[r] += each in replica.sent.lru
    scores = []
    for replica, hit in zip(replicas, hits, strict=True):
        span = max(waiting) - min(waiting)
        score = queue * ((max(waiting) - replica.seen[0]) / span if span else 1.0)
        score += kv * (1.0 - replica.seen[1])
        score += prefix * (hit / blocks if blocks else 0.0)
        score += load * (0.5 * (1.0 - min(replica.seen[0], 128) / 128))
        scores.append(score)
    chosen = best_of(scores, draw)
    if index == 1:
        lru = replicas[chosen].sent.lru
        for each in hashes:
            lru[each] = None
            lru.move_to_end(each)
            if len(lru) > (capacity or engine.kv_blocks):
                lru.popitem(last=False)
    return chosen


def dynamo_kv(
    replicas, turn, draw, request, now_s, slo, overlap, temperature, events, ttl, blocks
):
    """Blocks to prefill and blocks in use, the least."""
    engine = replicas[0].engine
    size = engine.block_size
    pulls = replicas[0].sent.pulls
    prompt = pieces_known(request, size)
    own_blocks = blocks_of(request, size, pulls)
    costs, prefill = [], []
    for replica in replicas:
        sent = replica.sent
        if events:
            cached = len(replica.pool.cached(request)) if engine.prefix_caching else 0
        else:
            cached = 0
            for block in [b for b, (_, _, at_s) in sent.expiry.items()]:
                if sent.expiry[block][2] < now_s - ttl:
                    del sent.expiry[block]
            while cached < len(prompt) and prompt[cached] in sent.expiry:
                cached += 1
        sent.charged = [one for one in sent.charged if not one.request.done]
        waiting = sum(
            one.prefill_tokens
            for one in sent.charged
            if len(one.request.token_s) == one.token_count
        )
        own = 0 if pulls else len(request.tokens) - cached * size
        used = {block for one in sent.charged for block in one.blocks}
        cost = overlap * ((waiting + own) / size) + len(used | set(own_blocks))
        costs.append(cost)
        prefill.append(own)
    least, most = min(costs), max(costs)
    if temperature > 0 and most > least:
        scale = 1.0 / ((most - least) * temperature)
        weights = [math.exp((least - cost) * scale) for cost in costs]
        left = draw[0] * sum(weights)
        chosen = len(replicas) - 1
        for r, weight in enumerate(weights):
            left -= weight
            if left <= 0.0:
                chosen = r
                break
    else:
        chosen = best_of(costs, draw, min)
    replicas[chosen].sent.charged.append(
        Charge(request, prefill[chosen], len(request.token_s), own_blocks)
    )
    if not events:
        _note_blocks(replicas, chosen, prompt, turn, now_s, blocks)
    return chosen


def pieces_known(request, size):
    """Contents of the full blocks of the prompt and the answer so far."""
    tokens = tuple(request.tokens)
    return [tokens[:end] for end in range(size, len(tokens) + 1, size)]


def blocks_of(request, size, pulls):
    """The same, or names that no other request has."""
    known = pieces_known(request, size)
    return [(request.row, k) for k in range(len(known))] if pulls else known


def discharge(sent, request):
    """Count a request no more; return whether it was counted."""
    before = len(sent.charged)
    sent.charged = [one for one in sent.charged if one.request is not request]
    return len(sent.charged) < before


def recharge(request, source, target):
    """Count a request that runs at the replica that it has moved to."""
    if discharge(source.sent, request):
        blocks = blocks_of(request, target.engine.block_size, target.sent.pulls)
        charge = Charge(request, 0, len(request.token_s), blocks)
        target.sent.charged.append(charge)


def _note_blocks(replicas, chosen, prompt, turn, now_s, most):
    for position, block in enumerate(prompt):
        replicas[chosen].sent.expiry[block] = turn, position, now_s
    every = [
        (turn, -position, replica.index, block)
        for replica in replicas
        for block, (turn, position, _) in replica.sent.expiry.items()
    ]
    if len(every) > most:
        gone = len(every) - int(most * 0.8)
        by_index = {replica.index: replica for replica in replicas}
        for _, _, r, block in sorted(every, key=lambda one: one[:3])[:gone]:
            del by_index[r].sent.expiry[block]


def sglang_cache_aware(
    replicas, turn, draw, request, now_s, slo, threshold, abs, rel, period, size
):
    """Least load where loads differ, else most of the prompt."""
    loads = outstanding(replicas)
    for replica in replicas:
        _cut_tree(replica.sent, now_s, period, size)
    chosen = loads.index(min(loads))
    shared = shared_count(request)
    differ = max(loads) - min(loads) > abs and max(loads) > rel * min(loads)
    path = request.tokens[:shared]
    if not differ and path:
        known = []
        for replica in replicas:
            count = 0
            while count < shared and path[count] in replica.sent.path:
                count += 1
            known.append(count)
        if max(known) / request.prompt_count > threshold:
            holders = [r for r, count in enumerate(known) if count == max(known)]
            last = owner(path[max(known) - 1])
            chosen = min(holders, key=lambda r: replicas[r].sent.since[last])
    sent = replicas[chosen].sent
    sent.leaves[turn] = request.prompt_count - shared
    for token in path:
        sent.path[token] = turn
        sent.since.setdefault(owner(token), turn)
    return chosen


def _cut_tree(sent, now_s, period, size):
    """Cut a tree if a multiple of the period is between the last arrival and this."""
    first = math.ceil(sent.cut_s / period)
    sent.cut_s = now_s
    if first * period >= now_s:
        return
    while 4 * (sum(sent.leaves.values()) + len(sent.path)) > size:
        turns = [turn for turn, count in sent.leaves.items() if count]
        oldest = min([*turns, *sent.path.values()])
        if sent.leaves.pop(oldest, 0):
            continue
        leaf = owner(
            max((t for t, at in sent.path.items() if at == oldest), key=_place)
        )
        sent.path = {
            token: at
            for token, at in sent.path.items()
            if at != oldest or owner(token) != leaf
        }
        owners = {owner(token) for token in sent.path}
        sent.since = {one: at for one, at in sent.since.items() if one in owners}


def _place(token):
    return token[2]


def prefix_aware(replicas, turn, draw, request, now_s, slo, match, chunk, window):
    """Most chunks of the prompt, one of equals by a draw; else the fewest queries."""
    prompt = pieces(request, int(chunk) // 4)
    length, selected = 0, list(range(len(replicas)))
    for piece in prompt:
        both = [r for r in selected if piece in replicas[r].sent.chunks]
        if not both:
            break
        length += chunk
        selected = both
    if length < match:
        chosen = fewest_queries(replicas, now_s, window)
    else:
        chosen = drawn(draw, selected)
    replicas[chosen].sent.chunks |= set(prompt)
    replicas[chosen].sent.query_s.append(now_s)
    return chosen


def fewest_queries(replicas, now_s, window):
    lowest, chosen = math.inf, None
    for r, replica in enumerate(replicas):
        if not replica.sent.query_s:
            return r
        rate = sum(at_s >= now_s - window for at_s in replica.sent.query_s) / 60
        if rate < lowest:
            lowest, chosen = rate, r
    return chosen


def session(replicas, turn, draw, request, now_s, slo, window):
    """The ring's replica of the session, else of the group; else the fewest queries."""
    if request.session >= 0:
        chosen = on_ring(hashed(request.session, 1), replicas)
    elif request.group >= 0:
        chosen = on_ring(hashed(request.group, 2), replicas)
    else:
        chosen = fewest_queries(replicas, now_s, window)
    replicas[chosen].sent.query_s.append(now_s)
    return chosen


def consistent_hash(replicas, turn, draw, request, now_s, slo, tokens, load):
    """The ring's replica of the first tokens, unless it has too many requests."""
    first = request.tokens[: min(int(tokens), request.prompt_count)]
    place = int(draw[0] * 2**32)
    is_text, of = owner(first[-1])
    if request.text_nodes is not None:
        place = hashed(request.text_nodes[of] if is_text else of, len(first))
    elif is_text:
        place = hashed(of, len(first))
    chosen = on_ring(place, replicas)
    loads = outstanding(replicas)
    most = (sum(loads) + 1) / len(replicas) * load
    within = [r for r in range(len(replicas)) if loads[r] <= most or not sum(loads)]
    if chosen in within or not within:
        return chosen
    return min(within, key=lambda r: loads[r])


def hashed(key, salt):
    """Two rounds of a 32-bit integer hash on both halves of the key."""

    def mix(x):
        for _ in range(2):
            x = (((x >> 16) ^ x) * 0x45D9F3B) % 2**32
        return (x >> 16) ^ x

    return mix(mix(key % 2**32) ^ mix((key >> 32) ^ salt))


@cache
def ring_of(numbers):
    """160 points of each replica, by md5."""
    return sorted(
        (int(hashlib.md5(f"{number}-{k}".encode()).hexdigest()[:8], 16), r)
        for r, number in enumerate(numbers)
        for k in range(160)
    )


def on_ring(place, replicas):
    """The replica of the next point; a later one has points of its own."""
    points = ring_of(tuple(replica.index for replica in replicas))
    return next((r for point, r in points if point > place), points[0][1])


def size_split(replicas, turn, draw, request, now_s, slo, tokens, share, of):
    """The fewest requests among the replicas for requests of that size."""
    n = len(replicas)
    border = max(1, min(n - 1, math.floor(share * n + 0.5))) if n > 1 else 0
    total = request.prompt_count + (request.predicted_count if of == 0 else 0)
    part = range(border) if total <= tokens and border else range(border, n)
    return min(part, key=lambda r: replicas[r].outstanding)


REMEMBERING = {
    "llm-d": llm_d,
    "dynamo-kv": dynamo_kv,
    "sglang-cache-aware": sglang_cache_aware,
    "prefix-aware": prefix_aware,
    "session": session,
    "consistent-hash": consistent_hash,
    "size-split": size_split,
}
"""Routers of this file; they take their settings by name."""
