"""TensorRT-LLM step by step: capacity first, then the batch."""


def trtllm(replica, settings):
    """Return the parts of the next iteration, and whether it preempted."""
    pool, engine = replica.pool, replica.engine
    reserves = settings["policy"] == 0
    paused = False
    fitting = []
    # Capacity of those that run, in the order in which they started.
    for request in list(replica.running):
        if request not in replica.running:
            break  # paused: the list ends there
        if request.is_last_in_flight:
            continue
        while pool.missing(request, _next_tokens(request), []) > len(pool.free):
            last = replica.running.pop()
            replica.preempt(last)
            paused = True
            if last is request:
                break
        if request in replica.running:
            pool.give(request, _next_tokens(request), [])
            fitting.append(request)
    fitting = [request for request in fitting if request in replica.running]
    decoding = [q for q in fitting if q.computed >= q.known_at_admission]
    parts = [(q, q.computed, 1) for q in decoding]
    left = engine.max_num_batched_tokens - len(decoding)
    cut = False
    for request in fitting:
        if request not in decoding:
            rest = len(request.tokens) - request.computed
            new = _chunk(rest, left, settings, engine)
            if new:
                parts.append((request, request.computed, new))
            left -= new
            cut = new < rest
    reserved = sum(_whole(replica, settings, request) for request in replica.running)
    while replica.waiting and not paused and not cut and replica.seats_left:
        request = replica.waiting[0]
        if request.is_last_in_flight:
            break
        known = len(request.tokens)
        whole = _whole(replica, settings, request)
        if reserves and reserved + whole > engine.kv_blocks - 1:
            break
        if pool.missing(request, known, []) > len(pool.free):
            break
        new = _chunk(known, left, settings, engine)
        if new == 0:
            break
        pool.give(request, known, [])
        replica.admit()
        parts.append((request, 0, new))
        reserved += whole
        left -= new
        cut = new < known
    assert not (reserves and paused)
    return parts, paused


def _next_tokens(request):
    """Return the tokens of which it holds KV after the iteration: prompts are whole."""
    return max(request.computed + 1, request.known_at_admission)


def _chunk(rest, left, settings, engine):
    if rest <= left:
        return rest
    return left - left % engine.block_size if settings["chunked"] else 0


def _whole(replica, settings, request):
    """Return the blocks that a request holds when it ends at its limit."""
    pool, blocks = replica.pool, replica.engine.kv_blocks - 1
    whole = pool.blocks_for(request.prompt_count + request.most_output_count)
    return min(whole + pool.bounded(request) + len(request.bounded), blocks)
