"""Shortest remaining first, step by step."""


def oracle(replica, settings):
    """Decodes go on, then the queue by what is left, while seats, budget, KV last."""
    pool, engine = replica.pool, replica.engine
    budget = engine.max_num_batched_tokens
    everyone = replica.buffer
    everyone += replica.waiting
    replica.waiting.clear()
    everyone[:] = [request for request in everyone if not request.done]
    before = sum(request.preemptions for request in everyone)

    def place(request):
        """Iterations left, then the newest first."""
        chunks = -(-(len(request.tokens) - request.computed) // budget)
        rest = request.prompt_count + request.output_count - len(request.tokens)
        return chunks - 1 + rest, -request.row

    def evict(request):
        pool.take_back(request)
        request.computed = 0
        request.preemptions += 1

    def last(requests):
        return max(requests, key=place)

    running = [r for r in replica.running if r.decodes and not r.done]
    while True:
        wanted = sum(pool.missing(r, r.computed + 1, []) for r in running)
        if wanted <= len(pool.free):
            break
        victim = last([r for r in everyone if r.computed])
        if victim in running:
            running.remove(victim)
        evict(victim)
    parts = [(r, r.computed, 1) for r in running]
    for request in running:
        pool.give(request, request.computed + 1, [])
    seated = set()  # those that this scheduling lets run stay
    while True:
        queue = [r for r in everyone if r not in running]
        if not queue:
            break
        first = min(queue, key=place)
        displaced = None
        free_seats = engine.max_num_seqs - len(running)
        behind = [r for r in running if r not in seated and place(r) > place(first)]
        if free_seats == 0:
            if not behind:
                break
            displaced = last(behind)
        used = sum(new for request, _, new in parts if request is not displaced)
        known = len(first.tokens)
        holders = behind + [r for r in queue if r.computed and place(r) > place(first)]
        missing = pool.missing(first, known, [])
        held = sum(len(r.blocks) + len(r.bounded) for r in holders)
        if used >= budget or missing > len(pool.free) + held:
            break

        def leave(request):
            running.remove(request)
            parts[:] = [part for part in parts if part[0] is not request]
            spare = request.computed % engine.block_size == 0
            if spare:
                block = request.blocks.pop()
                block.references = 0
                pool.free.insert(0, block)

        if displaced is not None:
            leave(displaced)
        while missing > len(pool.free):
            victim = last(holders)
            holders.remove(victim)
            if victim in running:
                leave(victim)
            evict(victim)
        new = min(known - first.computed, budget - used)
        pool.give(first, first.computed + new, [])
        if first.scheduled_s is None:
            first.scheduled_s = replica.now_s
        parts.append((first, first.computed, new))
        running.append(first)
        if first.computed + new < known or not resumed(first):
            seated.add(first)
        first.decodes = first.computed + new == known
    replica.running = running
    preempted = sum(request.preemptions for request in everyone) > before
    return parts, preempted


def resumed(request):
    """Whether it only has its newest token to compute."""
    return (
        request.computed >= request.prompt_count
        and len(request.tokens) - request.computed == 1
    )
