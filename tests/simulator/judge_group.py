"""Ranks that step together, one iteration at a time, to judge groups by.

Each rank is a replica of ``judge.py``; the group gives them one clock, chooses the rank
of an arrival and lets idle ranks compute dummy tokens. It follows vLLM 0.32:
``DPEngineCoreProc.run_busy_loop``, ``DPLBAsyncMPClient.get_core_engine_for_request``.
"""

from collections import deque

import judge_speculative
import numpy as np
from judge import Batch, Replica, Request
from judge_drafted_states import DraftedStateReplica
from judge_schedulers import SCHEDULERS, admitted, from_queue, going_on
from judge_states import StateReplica

from capplan.latency.rank_tables import RankTables, RankWork
from capplan.workload.slo import RequestSlo, Slo

REPORT_S = 0.1
SYNC = 16


class Rank(Replica):
    """One of the ranks; its work of an iteration is noted, not timed."""

    own = RankWork()

    def run(self, parts):
        contexts, chunks, attention = [], 0, 0.0
        for request, before, new in parts:
            if self.decodes(request, before, new):
                contexts.append(before + 1)
            else:
                chunks += new
                attention += new * (before + new / 2)
        self.own = RankWork(len(contexts), sum(contexts), chunks, attention)
        return 0.0

    def put_together(self, throttled):
        """Return the batch of the next iteration, empty where none can be."""
        self.own = RankWork()
        if not self.outstanding:
            return Batch([], 0.0), False
        if self.engine.prefill_schedule_interval > 1:
            parts, preempted = self.in_cadence(throttled)
        else:
            parts, preempted = SCHEDULERS[self.scheduler](self, self.settings)
        self.fewest_free = min(self.fewest_free, len(self.pool.free))
        if not parts:
            return Batch([], 0.0), preempted
        return Batch(self.started(parts), self.run(parts)), preempted

    capacity_bound = False

    def in_cadence(self, throttled):
        """Schedule as V1, without prompts where they are put off."""
        prompts = [
            each for each in self.running if each.computed < each.known_at_admission
        ]
        if not throttled or self.capacity_bound or len(prompts) == len(self.running):
            parts, preempted = SCHEDULERS["vllm-v1"](self, self.settings)
            if not preempted:
                self.capacity_bound = bool(self.waiting)
            return parts, preempted
        parts, budget, preempted = going_on(self, skips=prompts.__contains__)

        def admit(rank, budget):
            head = rank.waiting[0]
            found = len(rank.pool.hits(head)) * rank.engine.block_size
            return admitted(rank, budget) if len(head.tokens) - found <= 1 else None

        if not preempted:
            parts += from_queue(self, budget, admit)
        return parts, preempted


class VerifyingRank(judge_speculative.Replica):
    """One of ranks that verify drafts; its part of the time and tokens are noted."""

    def __init__(self, tables, engine, index, seed):
        super().__init__(tables, engine, index, seed, line=True)
        self.own = NOTHING
        self.taken = 0

    def run(self, parts):
        before_s, self.gpu_s = self.gpu_s, 0.0
        now_s, self.now_s = self.now_s, 0.0
        took_s = super().run(parts)
        self.gpu_s, self.now_s = before_s, now_s
        tokens, prompt = 0, False
        for request, new, kind in parts:
            verifies = isinstance(kind, int)
            decodes = new == 1 and not verifies and kind[1] >= request.prompt_count
            tokens += new if verifies else new + kind[3]
            prompt = prompt or not (verifies or kind[3] or decodes)
        self.own = took_s, tokens, prompt
        return 0.0

    def preempt(self, request):
        self.taken += 1
        super().preempt(request)

    def put_together(self, throttled):
        """Return the batch of the next iteration, empty where none can be."""
        self.own = NOTHING
        if not self.outstanding:
            return Batch([], 0.0), False
        self.in_flight = deque([None])  # the group sees whether nothing ever runs
        before = self.taken
        return super().schedule(), self.taken > before


class StateRank(StateReplica):
    """One of ranks that keep states."""

    own = RankWork()
    taken = 0
    run = Rank.run

    def __init__(self, tables, engine, index):
        super().__init__(tables, engine)
        self.index = index

    def preempt(self, request):
        self.taken += 1
        super().preempt(request)

    def put_together(self, throttled):
        """Return the batch of the next iteration, empty where none can be."""
        self.own = RankWork()
        if not self.outstanding:
            return Batch([], 0.0), False
        before = self.taken
        return self.schedule(), self.taken > before


class DraftedStateRank(VerifyingRank, DraftedStateReplica):
    """One of ranks that keep states and verify drafts."""


NOTHING = None, 1, False


class Group:
    """A replica whose ranks step together."""

    def __init__(self, tables: RankTables, graphs, engine, scheduler, index=0, seed=0):
        self.tables, self.graphs, self.engine = tables, graphs, engine
        if engine.speculation is not None:
            self.tables = engine.speculation.rank_tables(tables)
            kind = DraftedStateRank if engine.keeps_states else VerifyingRank
            self.ranks = [
                kind(tables.rank, engine, r, seed) for r in range(tables.ranks)
            ]
        elif engine.keeps_states:
            every = range(tables.ranks)
            self.ranks = [StateRank(tables.rank, engine, r) for r in every]
        else:
            self.ranks = [
                Rank(tables.rank, engine, scheduler, r) for r in range(tables.ranks)
            ]
        self.index = index
        self.depth = 2 if engine.async_scheduling else 1
        self.in_flight: deque[list[Batch]] = deque()
        self.now_s = self.gpu_s = 0.0
        self.stalled = False
        self.running = False
        self.counter = 0
        self.turn = 0
        self.reports = 0
        self.seen = [[0, 0, 0.0] for _ in self.ranks]  # waiting, running, use of KV

    @property
    def outstanding(self):
        return sum(rank.outstanding for rank in self.ranks)

    def report(self, moment_s):
        """Take the newest report at or before a moment, as things stand."""
        newest = self.reports
        while (newest + 1) * REPORT_S <= moment_s:
            newest += 1
        if newest == self.reports:
            return
        self.reports = newest
        blocks = self.engine.kv_blocks - 1
        self.seen = [
            [len(r.waiting), len(r.running), 1.0 - len(r.pool.free) / blocks]
            for r in self.ranks
        ]

    def choose(self):
        count = len(self.ranks)
        rule = self.engine.dp_balance
        order = [(self.turn + k) % count for k in range(count)]
        if rule != "vllm-0.1x":
            self.turn = (self.turn + 1) % count
        if rule == "round-robin":
            return order[0]
        if rule != "vllm":
            order = list(range(count))
        scores = []
        for r in order:
            waiting, running, used = self.seen[r]
            score = max(self.ranks[r].outstanding, waiting + running)
            if waiting:
                score += waiting * 6 * max(0.0, used - 0.5)
            if rule == "vllm-0.1x":
                score = 4 * waiting + running
            if rule == "shortest-queue":
                score = self.ranks[r].outstanding
            scores.append(score)
        best = order[scores.index(min(scores))]
        self.seen[best][0] += 1
        return best

    def time_s(self, work=None):
        """Return the time of an iteration, without work of a dummy."""
        if self.engine.speculation is None:
            work = work or [RankWork()] * len(self.ranks)
            return self.tables.iteration_time_s(work, self.graphs)
        own = work or [NOTHING] * len(self.ranks)
        idle_s = self.ranks[0].tables.decode_s[0]
        alone_s = max(idle_s if time_s is None else time_s for time_s, _, _ in own)
        largest = max(tokens for _, tokens, _ in own)
        everything = sum(tokens for _, tokens, _ in own)
        graphs = [size for size in self.graphs if size >= largest]
        if graphs:
            largest, everything = graphs[0], graphs[0] * len(own)
        tables = self.tables
        shared = tables.experts_s, tables.exchange_s
        if any(prompt for _, _, prompt in own):
            shared = tables.experts_prefill_s, tables.exchange_prefill_s
        return alone_s + shared[0][everything] + shared[1][largest]

    def step(self):
        """Count a step; ranks agree now and then whether any has work."""
        self.counter += 1
        agree = self.counter == 1 or self.counter % SYNC == 0
        if len(self.ranks) > 1 and agree and not self.outstanding:
            self.running, self.counter = False, 0

    def dummy(self):
        """Let all ranks compute a dummy token."""
        self.gpu_s = max(self.gpu_s, self.now_s)
        self.gpu_s += self.time_s()

    def arrive(self, request, now_s):
        if not self.outstanding:
            if self.in_flight:  # computed and discarded
                self.now_s = max(self.now_s, self.in_flight.pop()[0].end_s)
                if len(self.ranks) > 1:
                    self.dummy()
                    self.step()
            while self.running and len(self.ranks) > 1 and self.gpu_s < now_s:
                self.gpu_s += self.time_s()
                self.step()
            self.now_s = max(self.now_s, now_s)
            self.running = True
        self.report(now_s)
        self.ranks[self.choose()].waiting.append(request)

    def advance(self, until_s):
        while True:
            full = len(self.in_flight) == self.depth or self.stalled
            if not full and not self.outstanding:
                return
            event_s = self.in_flight[0][0].end_s if full else self.now_s
            if event_s >= until_s:
                return
            self.report(event_s)
            if full:
                self.collect()
            else:
                self.schedule()

    def schedule(self):
        throttled = self.counter % self.engine.prefill_schedule_interval != 0
        for rank in self.ranks:
            rank.now_s, rank.gpu_s = self.now_s, self.gpu_s
        made = [rank.put_together(throttled) for rank in self.ranks]
        batches = [batch for batch, _ in made]
        if not any(batch.parts for batch in batches):
            if self.in_flight:
                self.stalled = True
            elif not any(preempted for _, preempted in made):
                raise RuntimeError("nothing can ever be scheduled")
            return
        took_s = self.time_s([rank.own for rank in self.ranks])
        self.gpu_s = max(self.now_s, self.gpu_s) + took_s
        for batch in batches:
            batch.end_s = self.gpu_s
        self.in_flight.append(batches)
        if self.depth == 2:
            self.step()

    def collect(self):
        batches = self.in_flight.popleft()
        for rank, batch in zip(self.ranks, batches, strict=True):
            rank.now_s = self.now_s
            rank.collect(batch)
        self.now_s = max(self.now_s, batches[0].end_s)
        if self.stalled:
            self.stalled = False
            if len(self.ranks) > 1:
                self.dummy()
                self.step()
        elif self.depth == 1:
            self.step()


def judge_groups(
    trace, tables, graphs, engine, count, scheduler="vllm-v1", slo=None, seed=0
):
    """Serve a trace step by step, by the group with the fewest requests."""
    groups = [Group(tables, graphs, engine, scheduler, g, seed) for g in range(count)]
    slo = slo or RequestSlo(ttft_s=np.inf, tpot_s=np.inf)
    requests, chosen = [], []
    for row in range(len(trace)):
        now_s = float(trace.arrival_s[row]) + tables.rank.request_s
        for group in groups:
            group.advance(now_s)
        prompt = int(trace.prompt_tokens[row])
        own = int(trace.prefix_group[row])
        shared = int(trace.prefix_tokens[row]) if own >= 0 else 0
        tokens = [
            ("group", own, k) if k < shared else ("prompt", row, k)
            for k in range(prompt)
        ]
        kind = Request if engine.speculation is None else judge_speculative.Request
        request = kind(
            row,
            float(trace.arrival_s[row]),
            prompt,
            int(trace.output_tokens[row]),
            tokens,
            most_output_count=int(trace.most_output_tokens[row]),
            priority=int(trace.priority[row]),
            slo=Slo(slo).of_class(trace.class_names[trace.request_class[row]]),
        )
        counts = [group.outstanding for group in groups]
        g = counts.index(min(counts))
        groups[g].arrive(request, now_s)
        requests.append(request)
        chosen.append(g)
    for group in groups:
        group.advance(np.inf)
    return requests, chosen, groups
