"""FastServe step by step: lists of requests by level, as in its scheduler.py."""

import math
from collections import defaultdict

from judge_swapping import Links, on_gpu

SAME_S = 1e-9


class Desk:
    """What the scheduler keeps of a replica."""

    def __init__(self, replica):
        self.queues = defaultdict(list)
        self.batch = []
        self.formed_s = 0.0
        self.iterations = 0
        self.level, self.ran_s, self.last_s = {}, {}, {}
        self.links = Links(replica)

    def queued(self):
        """All requests in the queues, from the highest level on."""
        return [q for level in sorted(self.queues) for q in self.queues[level]]

    def to_front(self, request):
        self.queues[self.level[request]].insert(0, request)


def fastserve(replica, settings):
    """Return what ran to its queue, form the next batch, make room for it."""
    if not hasattr(replica, "desk"):
        replica.desk = Desk(replica)
    desk, engine = replica.desk, replica.engine
    links = desk.links
    for request in list(replica.waiting):
        replica.waiting.remove(request)
        replica.running.append(request)
        desk.level[request] = first_level(replica, request, settings)
        desk.ran_s[request] = 0.0
        never = -math.inf if settings["as_written"] else request.arrival_s
        desk.last_s[request] = never
        desk.queues[desk.level[request]].append(request)
    if desk.batch:
        for request in desk.batch:
            if request.done:
                continue
            desk.ran_s[request] += replica.now_s - desk.formed_s
            desk.last_s[request] = replica.now_s
            if desk.ran_s[request] > quantum_s(settings, desk.level[request]) + SAME_S:
                desk.level[request] += 1
                desk.ran_s[request] = 0.0
            desk.to_front(request)
        reserve(replica, settings, [])

    batch, aside = [], []
    while desk.queued():
        request = desk.queued()[0]
        new = request.prompt_count if is_prompt(request) else 1
        prompts = sum(q.prompt_count for q in batch if is_prompt(q))
        low = links.host_free < settings["host_share"] * engine.host_kv_blocks
        if is_prompt(request) and low:
            aside.append(request)
        elif (
            prompts + new <= engine.max_num_batched_tokens
            and len(batch) < engine.max_num_seqs
        ):
            batch.append(request)
        else:
            break
        desk.queues[desk.level[request]].pop(0)
    for request in aside:
        desk.to_front(request)
    batch, dropped = reserve(replica, settings, batch)
    for request in reversed(dropped):
        desk.to_front(request)
    desk.iterations += 1
    if desk.iterations % settings["starvation_iterations"] == 0:
        starving = [
            request
            for request in desk.queued()
            if replica.now_s - desk.last_s[request] + SAME_S >= settings["starvation_s"]
        ]
        for request in starving:
            desk.queues[desk.level[request]].remove(request)
        for request in starving:
            desk.level[request] = 0
            desk.to_front(request)
    desk.batch, desk.formed_s = batch, replica.now_s
    parts = []
    for request in batch:
        if request.scheduled_s is None:
            request.scheduled_s = replica.now_s
        links.take(request, len(request.tokens))
        links.wait(links.ready_s.get(request, 0.0))
        new = len(request.tokens) - request.computed
        parts.append((request, request.computed, new))
    return parts, False


def first_level(replica, request, settings):
    tables, tokens = replica.tables, request.prompt_count
    alone_s = tables.fused_s[tokens] + tables.fused_decode_s[0]
    alone_s += tables.attention_s * tokens * tokens / 2
    level = 0
    while quantum_s(settings, level) + SAME_S < alone_s:
        level += 1
    return level


def quantum_s(settings, level):
    if level == settings["levels"] - 1:
        return math.inf
    return settings["base_quantum_s"] * settings["ratio"] ** level


def is_prompt(request):
    return len(request.tokens) == request.prompt_count


def reserve(replica, settings, batch):
    """Swap out until a batch fits; return what runs, and what was dropped of it."""
    desk, pool = replica.desk, replica.pool
    links, seats = desk.links, replica.engine.max_num_seqs
    spare = 0
    if settings["proactive"]:
        spare = max(seats, settings["min_free_blocks"])
    needed = sum(pool.missing(q, len(q.tokens), []) for q in batch)
    short = spare + needed - len(pool.free)
    no_swap_out = short <= 0
    for request in reversed(desk.queued()):
        if short > 0 and on_gpu(request):
            short -= len(request.blocks) + len(request.bounded)
            links.out(request)
    runs, dropped = list(batch), []
    while short > 0 and runs:
        request = runs.pop()
        dropped.append(request)
        short -= pool.blocks_for(len(request.tokens))
        short -= pool.bounded(request) + len(request.bounded)
        if on_gpu(request):
            links.out(request)
    assert short <= 0
    for request in runs:
        if request.host_blocks:
            links.back(request)
    if no_swap_out and settings["proactive"]:
        for request in desk.queued()[:seats]:
            blocks = request.host_blocks
            if blocks and len(pool.free) >= spare + needed + blocks:
                links.back(request)
    return runs, dropped
