"""vLLM V1 with drafts to verify, one iteration at a time, to judge the fast one by.

``judge.py`` with what vLLM 0.32 does of drafts: a decoding request is scheduled 1 + k
tokens, its KV has slots for these and the draft's lookahead, and what is rejected is
taken off when the result is collected. With ``line`` the tokens between the first and
the last iteration come on the straight line that the simulator takes; without, each
iteration gives what was drawn for it.
"""

from dataclasses import dataclass, field

import judge
import numpy as np
from judge import ROUTERS, Batch, Verdict

LOW = 0xFFFFFFFF
PARTS = 2**20
PROMPT = -1  # the part of an iteration is a prompt's


def mixed(number):
    for _ in range(2):
        number = ((number >> 16) ^ number) * 0x45D9F3B & LOW
    return (number >> 16) ^ number


def accepted(rates, seed, row, j):
    """Return how many drafts are accepted in a request's iteration j."""
    key = mixed(mixed(row & LOW) ^ mixed((row >> 32) ^ ((seed + 0x51ED270B) & LOW)))
    both = mixed((key + (j // 2) * 0x9E3779B9) & LOW)
    share = (both >> 16 if j % 2 else both & 0xFFFF) / 2**16
    return sum(share < rate for rate in rates)


@dataclass(eq=False)
class Request(judge.Request):
    """A request whose drafts are verified."""

    slots: int = 0  # tokens for which it has blocks
    verifies: bool = False  # its prompt is done, or in flight
    gains: list = field(default_factory=list)  # tokens of its iterations since then
    began: int = 0  # KV tokens before the first of them
    ran: int = 0  # of these iterations scheduled
    collected: int = 0  # and collected
    drawn: int = 0  # iterations before a preemption
    ran_before: int = 0  # of these those scheduled since its prompt before that
    padding: int = 0  # drafts beside the last token of its prompt, none of them one
    earlier: list = field(default_factory=list)  # before ``gains``: KV and context
    last_new: int = 0  # tokens of its newest iteration

    @property
    def last_count(self):
        return self.prompt_count + self.output_count

    def kv_tokens(self, i, line):
        """Return the KV tokens before its iteration i."""
        if i < len(self.earlier):
            return self.earlier[i][0]
        i -= len(self.earlier)
        gained = sum(self.gains[:i])
        if line and 0 < i < len(self.gains):
            gained = sum(self.gains[:-1]) * i // (len(self.gains) - 1)
        return self.began + gained

    def context(self, i, line):
        """Return the context of its iteration i, not cut to whole tokens."""
        if i < len(self.earlier):
            return self.earlier[i][1]
        if i == len(self.earlier):
            return self.began + 1
        i -= len(self.earlier)
        if line and 0 < i < len(self.gains):
            growth = sum(self.gains[:-1]) * PARTS // (len(self.gains) - 1)
            return self.began + 1 + i * growth / PARTS
        return self.kv_tokens(i + len(self.earlier), line) + 1


class Replica(judge.Replica):
    """An engine that verifies drafts."""

    def __init__(self, tables, engine, index, seed, line):
        super().__init__(tables, engine, "vllm-v1", index, seed)
        self.drafts = engine.speculation
        self.tables = self.drafts.tables(self.tables)
        self.verified = 1 + self.drafts.drafts
        self.lookahead = self.drafts.lookahead_tokens
        self.line = line

    def arrive(self, request, now_s):
        """Take a request; an engine that computes and discards waits for that first."""
        while self.in_flight and not self.outstanding:
            self.collect(self.in_flight.popleft())
        super().arrive(request, now_s)

    def schedule(self):
        """Choose the next iteration and give it to the GPU."""
        goes_on = any(
            not each.verifies and each.computed < len(each.tokens)
            for each in self.running
        )
        parts, budget, preempted = self.going_on()
        if not preempted:
            parts += self.admissions(budget, parts != [], goes_on)
        if not parts:
            if not preempted and not self.in_flight and self.outstanding:
                raise RuntimeError("nothing can ever be scheduled")
            return Batch([], self.now_s)
        return Batch(parts, self.run(parts))

    def going_on(self):
        """Let the running ones go on, in order; preempt the newest for their blocks."""
        budget = self.engine.max_num_batched_tokens
        parts, preempted = [], False
        for request in list(self.running):
            if request not in self.running:
                continue
            if request.verifies:
                known = request.kv_tokens(request.collected, self.line) + 1
                flying = request.ran - request.collected
                # Its drafts that are none are in flight too.
                padding = request.padding * (request.ran == 0 and self.depth == 2)
                if known + int(flying > 0) >= request.last_count:
                    continue  # it has its tokens even if all drafts are rejected
                new = min(self.verified, budget)
                if new == 0:
                    continue
                slots = known - 1 + flying * request.last_new + new + padding
            else:
                left = len(request.tokens) - request.computed
                new = self.cut(request, request.computed, min(left, budget))
                if new == 0:
                    continue
                slots = request.computed + new
            self.looked_at(request)
            while self.missing(request, slots) > len(self.pool.free):
                victim = self.running[-1]
                preempted = True
                self.running.remove(victim)
                self.preempt(victim)
                if victim is request:
                    return parts, budget, preempted
            self.give(request, slots, [])
            parts.append(self.part(request, new))
            budget -= new
        return parts, budget, preempted

    def cut(self, request, start, new):
        """Return how many of ``new`` tokens of a prompt are scheduled."""
        return new

    def looked_at(self, request):
        """Do what comes before its blocks are taken."""

    def missing(self, request, slots):
        """Return the blocks that a running request lacks, its lookahead's too."""
        slots = max(slots + self.lookahead, request.slots)
        return self.pool.missing(request, slots, [])

    def admissions(self, budget, runs, goes_on):
        """Take from the queue while there are seats, budget and blocks.

        A last token that is left is padded with drafts that are none, if the iteration
        ``runs`` something or the tokens before were found, and no prompt ``goes_on``.
        """
        parts, pool = [], self.pool
        while self.waiting and self.seats_left and budget > 0:
            request = self.waiting[0]
            if request.stale:
                break
            hits = pool.hits(request)
            if hits and self.drafts.drops_block:
                hits.pop()
            start = len(hits) * pool.block_size
            new = min(len(request.tokens) - start, budget)
            padded = len(request.tokens) - start == 1 and (runs or start > 0)
            padding = (self.verified - 1) * int(padded and not goes_on)
            if padding and new + padding > budget:
                break
            slots = start + new + padding
            most = max(len(request.tokens), slots + self.lookahead)
            if pool.missing(request, most, hits) > len(pool.free):
                break
            self.give(request, slots, hits)
            if request.scheduled_s is None:
                request.cached_tokens = start
            self.admit()
            request.computed = start
            request.padding = padding
            parts.append(self.part(request, new))
            budget -= new + padding
        return parts

    def give(self, request, slots, hits):
        request.slots = max(slots + self.lookahead, request.slots)
        self.pool.give(request, request.slots, hits)

    def part(self, request, new):
        """Count what is scheduled of a request; return it with its iteration."""
        request.in_flight += new
        if request.verifies:
            i = request.ran
            if new < self.verified:
                self.begin_anew(request, i, new)
            request.ran += 1
            request.last_new = new
            self.enter(request, len(request.tokens))
            return request, new, i
        before = request.computed
        request.computed += new
        self.pool.enter(request, request.computed)
        if request.computed == len(request.tokens):
            self.begin(request)
        padding = request.padding if request.verifies else 0
        return request, new, (PROMPT, before, request.verifies, padding)

    def begin(self, request):
        """Draw the iterations of a request whose prompt is done."""
        request.verifies = True
        request.began = request.computed
        request.ran = request.collected = 0
        request.earlier = []
        self.draw(request)

    def draw(self, request):
        """Draw its iterations behind ``began``."""
        request.gains = []
        while request.began + sum(request.gains) < request.last_count - 1:
            j = request.drawn + len(request.earlier) + len(request.gains)
            request.gains.append(self.gain(request, j))

    def gain(self, request, j):
        return 1 + accepted(self.drafts.rates, self.seed, request.row, j)

    def begin_anew(self, request, i, new):
        """Let a request compute fewer tokens in iteration i; draw those behind it."""
        held = request.kv_tokens(i, self.line)
        before = [
            (request.kv_tokens(k, self.line), request.context(k, self.line))
            for k in range(i)
        ]
        request.earlier = [*before, (held, held + 1)]
        request.began = held + min(new, self.gain(request, request.drawn + i))
        self.draw(request)

    def enter(self, request, tokens):
        """Make its full blocks findable, up to tokens that it was given."""
        self.pool.enter(request, min(tokens, len(request.tokens)))

    def run(self, parts):
        """Return when the GPU is done with the iteration. [s]"""
        contexts, chunks, attention, verified = [], 0, 0.0, 0
        for request, new, kind in parts:
            if isinstance(kind, int):
                contexts.append(request.context(kind, self.line))
                verified += new
            elif kind[3] or (new == 1 and kind[1] >= request.prompt_count):
                contexts.append(kind[1] + 1)
                verified += 1 + kind[3]
            else:
                chunks += new
                attention += new * (kind[1] + new / 2)
        b, length, tables = len(contexts), sum(contexts), self.tables
        if chunks == 0 and verified == b * self.verified:
            took_s = tables.decode_s[b] + tables.decode_context_s[b] * length
        else:
            took_s = tables.fused_s[chunks + verified]
            took_s += tables.fused_decode_s[b] + tables.fused_context_s[b] * length
            took_s += tables.attention_s * attention
        self.gpu_s = max(self.now_s, self.gpu_s) + float(took_s)
        return self.gpu_s

    def preempt(self, request):
        """Take a request's KV; it computes all it knows again, first in the queue."""
        self.pool.take_back(request)
        request.slots = request.computed = 0
        request.stale = request.in_flight
        request.ran_before = request.ran
        request.drawn, request.ran = request.drawn + request.ran, 0
        request.verifies = False
        request.preemptions += 1
        self.waiting.appendleft(request)

    def collect(self, batch):
        """Wait for an iteration and hand out its tokens."""
        self.now_s = max(self.now_s, batch.end_s)
        for request, new, kind in batch.parts:
            if request.done:
                continue  # computed and discarded
            request.in_flight -= new
            stale = request.stale > 0
            if stale:
                request.stale -= new
            if isinstance(kind, int):
                request.collected = kind + 1
                known = request.kv_tokens(kind + 1, self.line) + 1
            elif kind[2]:
                known = len(request.tokens) + 1
            else:
                continue
            for k in range(len(request.tokens), min(known, request.last_count)):
                request.tokens.append(("output", request.row, k))
            request.token_s.append(batch.end_s)
            if not stale and self.engine.async_scheduling:
                self.enter(request, len(request.tokens) - 1)
            if request.done:
                self.finish(request)


def judge_speculative(
    trace,
    tables,
    engine,
    replica_count,
    router,
    seed=0,
    slo=None,
    line=True,
    kind=Replica,
):
    """Serve a trace step by step."""
    draws = np.random.default_rng(seed).random((len(trace), 2))
    replicas = [
        kind(tables, engine, index, seed, line) for index in range(replica_count)
    ]
    requests, chosen = [], []
    for row in range(len(trace)):
        arrival_s = float(trace.arrival_s[row])
        now_s = arrival_s + tables.request_s
        for replica in replicas:
            replica.advance(now_s)
        prompt = int(trace.prompt_tokens[row])
        group = int(trace.prefix_group[row])
        shared = int(trace.prefix_tokens[row]) if group >= 0 else 0
        request = Request(
            row,
            arrival_s,
            prompt,
            int(trace.output_tokens[row]),
            [
                ("group", group, k) if k < shared else ("prompt", row, k)
                for k in range(prompt)
            ],
            predicted_count=int(trace.output_tokens[row]),
            slo=slo,
        )
        r = ROUTERS[router](replicas, row, draws[row], request, now_s, slo)
        replicas[r].arrive(request, now_s)
        requests.append(request)
        chosen.append(r)
    for replica in replicas:
        replica.advance(np.inf)
    return Verdict(requests, chosen, replicas)
