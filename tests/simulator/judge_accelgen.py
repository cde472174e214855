"""AccelGen step by step: one list of requests, looked through anew each iteration."""

import math


class Turn:
    """What one scheduling sees of a replica."""

    def __init__(self, replica, settings):
        self.replica, self.pool, self.set = replica, replica.pool, settings
        self.now_s = replica.now_s
        tables, s_pf = replica.tables, settings["s_pf"]
        self.t_max_s = settings["t_pf_s"] or (
            tables.fused_s[s_pf]
            + tables.fused_decode_s[0]
            + tables.attention_s * (s_pf * (0.5 * s_pf))
        )
        self.fixed_s = tables.fused_s[0] if settings["affine"] else 0.0
        self.parts = []

    # One request.

    def generated(self, request):
        return len(request.tokens) - request.prompt_count

    def rest(self, request):
        return len(request.tokens) - request.computed

    def n_ck(self, tokens):
        return -(-tokens // self.set["s_pf"])

    def is_long(self, request):
        return request.prompt_count >= self.set["long_tokens"]

    def has_gaps(self, request):
        return math.isfinite(request.slo.ttft_s) and math.isfinite(request.slo.tbt_s)

    def share_s(self, request):
        steps = self.n_ck(request.prompt_count) + request.predicted_count
        return request.slo.e2e_s / steps

    def limit_s(self, request):
        if not self.has_gaps(request):
            return self.share_s(request)
        return request.slo.tbt_s if self.generated(request) else request.slo.ttft_s

    def slack_from_s(self, request):
        """Return the time at which its slack is zero."""
        chunks = self.n_ck(self.rest(request))
        if not self.has_gaps(request):
            steps = self.n_ck(request.prompt_count) + self.generated(request) - chunks
            due_s = request.arrival_s + (steps + 1) * self.share_s(request)
            return due_s - self.t_max_s
        if self.generated(request):
            due_s = request.token_s[-1] + request.slo.tbt_s
        else:
            due_s = request.arrival_s + request.slo.ttft_s
        return due_s - chunks * self.t_max_s

    def urgent_from_s(self, request):
        return self.slack_from_s(request) - self.t_max_s

    def is_urgent(self, request):
        return self.urgent_from_s(request) <= self.now_s

    def rank(self, request):
        slack = self.slack_from_s(request) if self.set["ordering"] else 0.0
        return slack, request.row

    # The iteration so far.

    def used(self):
        return sum(new for _, _, new in self.parts)

    def runs(self, request):
        return any(other is request for other, _, _ in self.parts)

    def prompts_run(self):
        return any(request.prompt_left for request, _, _ in self.parts)

    def add(self, request, new):
        self.pool.give(request, len(request.tokens), [])
        if request.scheduled_s is None:
            request.scheduled_s = self.now_s
        self.parts.append((request, request.computed, new))

    def blocks(self, request):
        return self.pool.missing(request, len(request.tokens), [])

    def may_run(self, request):
        if len(self.parts) >= self.replica.engine.max_num_seqs:
            return False
        if self.blocks(request) > len(self.pool.free):
            return False
        served = any(
            other.prompt_left
            and self.is_long(other)
            and (other.computed > 0 or self.runs(other))
            for other in self.replica.running
        )
        new_long = self.is_long(request) and request.computed == 0
        return not (self.set["era"] and new_long and served)

    def within(self, limit_s):
        """Return S_b for a limit."""
        span_s = max(self.t_max_s - self.fixed_s, 1e-12)
        tokens = self.set["s_pf"] * (limit_s - self.fixed_s) / span_s
        most = self.replica.engine.max_num_batched_tokens
        return most if tokens >= most else max(1, math.floor(tokens))

    def iteration_s(self, request, chunk):
        """Return the time of the iteration so far with a chunk."""
        contexts, tokens, attention = [], 0, 0.0
        for other, before, new in [*self.parts, (request, request.computed, chunk)]:
            decodes = new == 1 and before >= other.prompt_count
            if decodes and other is not request:
                contexts.append(before + 1)
            else:
                tokens += new
                attention += new * (before + new / 2)
        b, tables = len(contexts), self.replica.tables
        took_s = tables.fused_s[tokens + b] + tables.fused_decode_s[b]
        took_s += tables.fused_context_s[b] * sum(contexts)
        return took_s + tables.attention_s * attention

    def in_time(self, request, most):
        """Return how much of a chunk the limits of the decodes allow."""
        if not self.set["bounded"]:
            return most
        new, limit_s = 0, min(map(self.limit_s, self.held), default=math.inf)
        while new < most and self.iteration_s(request, new + 1) <= limit_s + 1e-9:
            new += 1
        return new


def accelgen(replica, settings):
    """Decodes, urgent prompts, then Algorithm 2; evict when nothing can run."""
    replica.running += replica.waiting
    replica.waiting.clear()
    evicted = False
    while True:
        turn = Turn(replica, settings)
        live = sorted(replica.running, key=turn.rank)
        held = [request for request in live if not request.prompt_left]
        turn.held = held
        urgent = [q for q in live if q.prompt_left and turn.is_urgent(q)]
        calm = [q for q in live if q.prompt_left and not turn.is_urgent(q)]
        if settings["batching"]:
            limits = [turn.limit_s(q) for q in [*held, *urgent, *calm[:1]]]
            s_b = turn.within(min(limits))
        else:
            s_b = replica.engine.max_num_batched_tokens
        for request in held:
            seat = len(turn.parts) < min(s_b, replica.engine.max_num_seqs)
            if seat and turn.blocks(request) <= len(replica.pool.free):
                turn.add(request, 1)
        fill(turn, urgent, s_b, True)
        if settings["batching"]:
            nearest(turn, calm, s_b)
        else:
            fill(turn, calm, s_b, False)
        if turn.parts:
            break
        if not held and not urgent:
            replica.retry_s = min(turn.urgent_from_s(request) for request in calm)
            return [], evicted
        holders = [request for request in live if request.computed]
        victim = max(holders, key=turn.rank)
        replica.pool.take_back(victim)
        victim.computed = 0
        victim.preemptions += 1
        victim.prompt_left = True
        evicted = True
    for request, computed, new in turn.parts:
        request.prompt_left = computed + new < len(request.tokens)
    return turn.parts, evicted


def fill(turn, prompts, s_b, urgent):
    """Prompts in order, each up to what is left of S_b."""
    for request in prompts:
        new, left = turn.rest(request), s_b - turn.used()
        if turn.set["chunking"]:
            new = turn.in_time(request, min(new, left))
            fits = new > 0
        elif urgent and not turn.prompts_run():
            fits = True
        else:
            in_time = new <= left and turn.in_time(request, new)
            fits = in_time == new
        if fits and turn.may_run(request):
            turn.add(request, new)


def nearest(turn, calm, s_b):
    """Algorithm 2: the prompt that leaves the least of S_b and KV, again and again."""
    if not calm:
        return
    latest_s = turn.slack_from_s(calm[0]) + turn.set["gamma_s"]
    cut = s_b - turn.used()
    wanted = {}
    for request in calm:
        if turn.slack_from_s(request) <= latest_s:
            new = turn.rest(request)
            if turn.is_long(request) and turn.set["chunking"]:
                new = min(new, cut)
            wanted[request.row] = (request, new)
    while True:
        found = []
        for place, (request, new) in enumerate(wanted.values()):
            left = s_b - turn.used() - new
            guarded = turn.used() + new > turn.within(turn.limit_s(request))
            if turn.runs(request) or new <= 0 or left < 0 or guarded:
                continue
            cut, new = new, turn.in_time(request, new)
            left += cut - new
            may_cut = turn.is_long(request) and turn.set["chunking"]
            if new == 0 or (new < cut and not may_cut):
                continue
            if turn.may_run(request):
                free = len(turn.pool.free) - turn.blocks(request)
                distance = left**2 + (free * turn.pool.block_size) ** 2
                found.append((distance, place, request, new))
        if not found:
            return
        _, _, request, new = min(found, key=lambda row: row[:2])
        turn.add(request, new)
