"""DeepSpeed-FastGen step by step: one list of requests, what ran goes to its end."""


def fastgen(replica, settings):
    """Decodes that have room, then prompts up to the budget; flush when none can."""
    pool, engine = replica.pool, replica.engine
    buffer = replica.buffer
    buffer += replica.waiting
    replica.running += replica.waiting
    replica.waiting.clear()
    buffer[:] = [request for request in buffer if request in replica.running]
    flushed = False
    while True:
        parts = []
        free = len(pool.free)  # read once, before the decodes take theirs
        decodes = [request for request in buffer if not request.prompt_left]
        for request in decodes[: min(engine.max_num_seqs, _budget(engine))]:
            if pool.missing(request, request.computed + 1, []) <= len(pool.free):
                pool.give(request, request.computed + 1, [])
                parts.append((request, request.computed, 1))
        budget = _budget(engine) - len(parts)
        for request in [request for request in buffer if request.prompt_left]:
            if free == 0 or len(parts) >= engine.max_num_seqs or budget <= 0:
                break
            known = len(request.tokens)
            if pool.missing(request, known, []) > len(pool.free):
                if known - request.computed > 1:
                    break
                continue
            new = min(known - request.computed, budget)
            pool.give(request, request.computed + new, [])
            if request.scheduled_s is None:
                request.scheduled_s = replica.now_s
            parts.append((request, request.computed, new))
            budget -= new
        if parts:
            break
        holding = [request for request in buffer if request.blocks]
        if not holding:
            return [], flushed
        last = holding[-1]
        pool.take_back(last)
        last.computed = 0
        last.preemptions += 1
        last.prompt_left = True
        buffer.remove(last)
        buffer.append(last)
        flushed = True
    for request, computed, new in parts:
        buffer.remove(request)
        request.prompt_left = computed + new < len(request.tokens)
        if request.prompt_left:
            buffer.insert(0, request)
        else:
            buffer.append(request)
    return parts, flushed


def _budget(engine):
    return engine.max_num_batched_tokens
