"""SGLang step by step, with its batches and its flag as scheduler.py keeps them."""

from dataclasses import dataclass, field


@dataclass
class Batches:
    """What SGLang's scheduler remembers from one step to the next."""

    running: list = field(default_factory=list)
    full: bool = False  # the running batch's flag
    last: list = field(default_factory=list)  # prompts of the last step, and decodes
    chunked: object = None  # the unfinished prompt
    ratio: float | None = None  # after the last retraction
    decays: int = 0


def sglang(replica, settings):
    """Return the parts of the next iteration, and whether it preempted."""
    if not hasattr(replica, "batches"):
        replica.batches = Batches()
    batches = replica.batches
    here = replica.running  # those that are not finished
    if not here and replica.now_s > replica.gpu_s:
        batches.ratio, batches.decays = None, 0  # it was idle
    if batches.last:
        merged = [q for q in batches.last if q in here and q is not batches.chunked]
        if len(merged) < len(batches.last):
            batches.full = False
        if merged and not batches.running:
            batches.running, batches.full = merged, False
        else:
            batches.running = batches.running + merged
        batches.last = []
    left = [q for q in batches.running if q in here]
    if len(left) < len(batches.running):
        batches.full = False
    batches.running = left
    parts = _prompts(replica, settings, batches)
    if parts:
        return parts, False
    if not batches.running:
        return [], False
    return _decodes(replica, settings, batches)


def _prompts(replica, settings, batches):
    engine, pool = replica.engine, replica.pool
    page = engine.block_size
    if not batches.running:
        batches.full = False
    if (batches.full or not replica.waiting) and batches.chunked is None:
        return []
    decoding = [q for q in batches.running if not q.is_last_in_flight]
    mixed = len(decoding) if settings["mixed"] else 0
    chunk_left = engine.max_num_batched_tokens - mixed
    input_left = settings["max_prefill_tokens"] - mixed
    kept = sum(
        min(limit(replica, settings, q) - answered(q), settings["clip"])
        for q in batches.running
        if not q.is_last_in_flight
    )
    room = len(pool.free) * page - mixed - kept * _ratio(settings, batches)
    parts = []
    if batches.chunked is not None:
        q = batches.chunked
        rest = len(q.tokens) - q.computed
        cap = min(chunk_left, int(room)) if int(room) > 0 else chunk_left
        free = (len(q.blocks) + len(pool.free)) * page - q.computed
        new = min(rest, cap, free)
        if new > 0:
            pool.give(q, q.computed + new, [])
            parts.append((q, q.computed, new))
            answer = 0
            if new == rest:
                answer = min(limit(replica, settings, q), settings["clip"])
                batches.chunked = None
            room -= paged(new, page) + page + answer
            chunk_left -= paged(new, page)
            input_left -= paged(new, page)
    while replica.waiting:
        if room > 0 and (chunk_left <= 0 or input_left <= 0):
            break  # OTHER
        if replica.seats_left == 0:
            batches.full = True
        if batches.full:
            break
        q = replica.waiting[0]
        hits = pool.hits(q)
        cached = len(hits) * page
        extend, most = len(q.tokens) - cached, limit(replica, settings, q)
        unused = sum(block.references == 0 for block in hits)
        bounded = (pool.bounded(q) + unused) * page
        after = min(most - answered(q), settings["clip"])
        if extend + after + page + bounded >= room:
            batches.full = bool(parts or batches.running)  # NO_TOKEN
            break
        new, answer = extend, min(most, settings["clip"])
        if paged(extend, page) > chunk_left:
            new, answer = chunk_left // page * page, 0
            if new <= 0:
                break
        pool.give(q, cached + new, hits)
        if q.scheduled_s is None:
            q.cached_tokens = cached
        replica.admit()
        parts.append((q, cached, new))
        if new < extend:
            batches.chunked = q
        room -= paged(new, page) + page + answer + bounded
        chunk_left -= paged(new, page)
        input_left -= paged(new, page)
        if room <= 0:
            batches.full = True
            break
    if not parts:
        return []
    batches.last = [q for q, _, _ in parts]
    prompts = list(parts)
    if settings["mixed"] and decoding and _needed(decoding, page) <= len(pool.free):
        for q in decoding:
            pool.give(q, q.computed + 1, [])
            parts.append((q, q.computed, 1))
        batches.last += batches.running  # also those whose last token is in flight
        batches.running = []  # its flag stays, until the last batch takes its place
        # Of those that end together the oldest gives its KV back first.
        parts.sort(key=lambda part: replica.running.index(part[0]))
    for q, before, new in prompts:
        enter(pool, q, before + new)
    return parts


def _decodes(replica, settings, batches):
    pool, page = replica.pool, replica.engine.block_size
    decoding = [q for q in batches.running if not q.is_last_in_flight]
    if not decoding:
        return [], False
    retracted = []
    if _needed(decoding, page) > len(pool.free):
        # Those to be kept first; of equals the oldest, also where batches were mixed.
        order = sorted(
            decoding,
            key=lambda q: (answered(q), -q.prompt_count, -replica.running.index(q)),
            reverse=True,
        )
        while not retracted or _needed(order, page) > len(pool.free):
            if len(order) == 1 and batches.chunked is None:
                break  # until a result gives KV back
            if len(order) == 1:
                victim, batches.chunked = batches.chunked, None
            else:
                victim = order.pop()
            replica.running.remove(victim)
            replica.preempt(victim)
            replica.waiting.remove(victim)
            replica.waiting.append(victim)
            retracted.append(victim)
        batches.running = [q for q in batches.running if q not in retracted]
        if retracted:
            used = sum(answered(q) + settings["retract_steps"] for q in order)
            limits = sum(limit(replica, settings, q) for q in order)
            batches.ratio, batches.decays = min(1.0, used / (limits + 1)), 0
            batches.full = False
        if _needed(order, page) > len(pool.free):
            return [], bool(retracted)
        decoding = order
    else:
        batches.decays += 1
    for q in decoding:
        pool.give(q, q.computed + 1, [])
    order = sorted(decoding, key=replica.running.index)
    return [(q, q.computed, 1) for q in order], bool(retracted)


def _needed(requests, page):
    return sum(q.computed % page == 0 for q in requests)


def _ratio(settings, batches):
    """Return the ratio; falls are counted, so that rounding decides nothing."""
    if settings["ignore_eos"]:
        return 1.0
    first = settings["init_ratio"]
    least = first * settings["min_factor"]
    ratio = first if batches.ratio is None else batches.ratio
    if batches.decays == 0:
        return ratio
    fall = (first - least) / settings["decay_steps"]
    return max(ratio - fall * batches.decays, least)


def answered(request):
    """Return how many tokens it has, also those in flight."""
    return len(request.tokens) + request.placeholders - request.prompt_count


def limit(replica, settings, request):
    """Return the most tokens that a request may generate."""
    pool = replica.pool
    bounded = pool.bounded(request) + len(request.bounded)
    held = (replica.engine.kv_blocks - 1 - bounded) * replica.engine.block_size
    return min(request.most_output_count, held - 2 - request.prompt_count)


def paged(tokens, page):
    return -(-tokens // page) * page


def enter(pool, request, tokens):
    """Make full blocks findable; a copy of what can be found is given back."""
    if not pool.caching:
        return
    for k in range(request.findable, tokens // pool.block_size):
        content = pool.content(request, k)
        block = request.blocks[k]
        if pool.found.get(content):
            same = pool.found[content][0]
            if same.references == 0:
                pool.free.remove(same)
            same.references += 1
            request.blocks[k] = same
            block.references = 0
            pool.free.insert(0, block)
        else:
            block.content = content
            pool.found[content] = [block]
        request.findable = k + 1
