"""ALISE step by step: all requests sorted by level and arrival, then Algorithm 2."""

from judge_swapping import Links, on_gpu

SAME_S = 1e-9


class Desk:
    """What the scheduler keeps of a replica."""

    def __init__(self, replica):
        self.active = []
        self.level, self.predicted, self.since_s = {}, {}, {}
        self.links = Links(replica)


def alise(replica, settings):
    """Return the next batch: the first in order that fit blocks, seats and budget."""
    if not hasattr(replica, "desk"):
        replica.desk = Desk(replica)
    desk, engine, pool = replica.desk, replica.engine, replica.pool
    links = desk.links
    for request in list(replica.waiting):
        replica.waiting.remove(request)
        replica.running.append(request)
        desk.predicted[request] = max(1, request.predicted_count)
        desk.level[request] = level(replica, request, settings)
        desk.since_s[request] = request.arrival_s
    desk.active = [request for request in desk.active if not request.done]
    for request in replica.running:
        if request in desk.active:
            desk.since_s[request] = replica.now_s
            now = level(replica, request, settings)
            if generated(request) >= desk.predicted[request]:
                desk.predicted[request] *= 2
                desk.level[request] = level(replica, request, settings)
            else:
                desk.level[request] = min(desk.level[request], now)
            continue
        waited_s = replica.now_s - desk.since_s[request]
        if waited_s + SAME_S >= settings["ageing_s"] and desk.level[request] > 0:
            desk.level[request] -= 1
            desk.since_s[request] = replica.now_s

    def place(request):
        waits = not (settings["defer"] and request in desk.active)
        return waits, desk.level[request], request.row

    order = sorted(replica.running, key=place)
    chosen, fetched, within, tokens, full = [], [], 0, 0, False
    for request in order:
        within += pool.blocks_for(len(request.tokens))
        within += pool.bounded(request) + len(request.bounded)
        if within > engine.kv_blocks - 1:
            break
        prompt = prompt_left(request)
        fits = not prompt or not full
        fits = fits and tokens + prompt <= engine.max_num_batched_tokens
        if len(chosen) < engine.max_num_seqs and fits:
            chosen.append(request)
            tokens += prompt
        elif prompt:
            full = True
        elif request.host_blocks:
            fetched.append(request)
    needed = sum(request.host_blocks for request in fetched)
    for request in chosen:
        needed += pool.missing(request, len(request.tokens), [])
    paused = [request for request in desk.active if request not in chosen]
    # What just stopped stands where it will wait.
    for request in paused:
        desk.active.remove(request)
    last = sorted(replica.running, key=place)
    evicted = False
    while len(pool.free) < needed:
        request = [q for q in last if on_gpu(q) and q not in chosen][-1]
        evicted = True
        if settings["swap"]:
            links.out(request)
        else:
            pool.take_back(request)
            request.computed = 0
            request.preemptions += 1
    for request in chosen + fetched:
        if request.host_blocks:
            links.back(request)
    runs = chosen
    stalled = settings["stall"] and any(prompt_left(request) for request in chosen)
    if stalled:
        runs = [request for request in chosen if prompt_left(request)]
    parts = []
    for request in runs:
        if request.scheduled_s is None:
            request.scheduled_s = replica.now_s
        links.take(request, len(request.tokens))
        links.wait(links.ready_s.get(request, 0.0))
        new = len(request.tokens) - request.computed
        parts.append((request, request.computed, new))
        if request not in desk.active:
            desk.active.append(request)
    return parts, evicted


def generated(request):
    return len(request.tokens) - request.prompt_count


def prompt_left(request):
    """Tokens of a prompt to compute, or of all that is known after an eviction."""
    decodes = request.computed >= request.prompt_count
    return 0 if decodes else len(request.tokens) - request.computed


def level(replica, request, settings):
    """Rank the time that a request has left."""
    tables, budget = replica.tables, replica.engine.max_num_batched_tokens
    b = min(settings["batch_size"], replica.engine.max_num_seqs)
    t0_s, alpha_s = settings["t0_s"], settings["alpha_s"]
    beta_s = settings["beta_s"]
    if t0_s < 0:
        t0_s = tables.fused_s[budget] - tables.fused_s[1]
        t0_s = t0_s / (budget - 1) if budget > 1 else tables.fused_s[1]
    if alpha_s < 0:
        alpha_s = tables.decode_context_s[b]
    if beta_s < 0:
        beta_s = tables.decode_s[b] / b
    left = max(0, replica.desk.predicted[request] - generated(request))
    left_s = left * (alpha_s * request.prompt_count + beta_s)
    left_s += prompt_left(request) * t0_s
    for found in range(settings["levels"] - 1):
        if left_s <= settings["base_s"] * settings["ratio"] ** found + SAME_S:
            return found
    return settings["levels"] - 1
