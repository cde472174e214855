"""vLLM V0 step by step: prompts first, or decodes first with cut prompts."""


def vllm_v0(replica, settings):
    """Return the parts of the next iteration, and whether it preempted."""
    engine = replica.engine
    budget = engine.max_num_batched_tokens
    swapped = replica.buffer  # in order of arrival
    if not settings["chunked"]:
        parts = [] if swapped else prompts(replica, settings, budget, cut=False)
        if parts:
            return parts, False
        parts, preempted = running(replica, settings, budget)
        if not preempted:
            parts += swapped_in(replica, budget - len(parts))
        return parts, preempted
    parts, preempted = running(replica, settings, budget)
    budget -= sum(new for _, _, new in parts)
    if not preempted:
        back = swapped_in(replica, budget)
        parts += back
        budget -= sum(new for _, _, new in back)
    return parts + prompts(replica, settings, budget, cut=True), preempted


def prompts(replica, settings, budget, cut):
    """Admit prompts while KV, seats and budget last."""
    pool, parts, tokens, longest = replica.pool, [], 0, 0
    while replica.waiting and budget > 0:
        request = replica.waiting[0]
        known = len(request.tokens)
        new = min(known, budget - tokens) if cut else known
        longest = max(longest, known)
        total = tokens + new
        if settings["padded_budget"] and not cut:
            total = (len(parts) + 1) * longest
        if len(pool.free) - pool.missing(request, known, []) < watermark(replica):
            break
        if new == 0 or total > budget or replica.seats_left == 0:
            break
        pool.give(request, known, [])
        replica.admit()
        parts.append((request, 0, new))
        tokens += new
    return parts


def running(replica, settings, budget):
    """Let running requests go on, in order of arrival, if a block is free for each."""
    pool, parts = replica.pool, []
    unseen = sorted(replica.running, key=lambda request: request.row)
    preempted = False
    while unseen:
        request = unseen.pop(0)
        gone = False
        while not pool.free and not gone:
            victim = unseen.pop() if unseen else request
            gone = victim is request
            replica.running.remove(victim)
            preempted = True
            if settings["swap"]:
                replica.swap_out(victim)
                replica.buffer.append(victim)
                replica.buffer.sort(key=lambda request: request.row)
            else:
                replica.preempt(victim)
        if gone:
            break
        new = min(len(request.tokens) - request.computed, budget)
        pool.give(request, request.computed + new, [])
        parts.append((request, request.computed, new))
    # The unfinished prompt has what the decodes leave.
    left = budget - sum(decodes(part) for part in parts)
    return [
        part if decodes(part) else (part[0], part[1], min(part[2], left))
        for part in parts
    ], preempted


def decodes(part):
    request, computed, _ = part
    return computed >= request.known_at_admission


def swapped_in(replica, budget):
    """Bring requests back from the host, in order of arrival, while they fit."""
    parts, tokens = [], 0
    while replica.buffer and tokens < budget and replica.seats_left:
        request = replica.buffer[0]
        after = len(replica.pool.free) - (request.host_blocks + 1)
        if after < watermark(replica):
            break
        replica.buffer.pop(0)
        replica.swap_in(request)
        replica.running.append(request)
        new = min(len(request.tokens) - request.computed, budget - tokens)
        replica.pool.give(request, request.computed + new, [])
        parts.append((request, request.computed, new))
        tokens += new
    return parts


def watermark(replica):
    return int(0.01 * (replica.engine.kv_blocks - 1))
