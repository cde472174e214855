"""Ranks that step together, one iteration at a time, to judge groups by.

Each rank is a replica of ``judge.py``; the group gives them one clock, chooses the rank
of an arrival and lets idle ranks compute dummy tokens. It follows vLLM 0.32:
``DPEngineCoreProc.run_busy_loop``, ``DPLBAsyncMPClient.get_core_engine_for_request``.
"""

from collections import deque

from judge import Replica, Request
from judge_v1 import Batch, serve, shortest_queue

from capplan.latency.rank_tables import RankTables, RankWork

REPORT_S = 0.1
SYNC = 16


NOTHING = None, 1, False


def is_timed(engine) -> bool:
    """Return whether a rank's own time is not of its work alone."""
    return bool(engine.speculation or engine.adapters or engine.images)


class Rank(Replica):
    """One of the ranks; its work of an iteration is noted, not timed."""

    def begin(self):
        super().begin()
        self.own = NOTHING if is_timed(self.engine) else RankWork()

    def run(self, parts):
        chunks = [part for part in parts if not self.decodes(part)]
        if is_timed(self.engine):
            self.now_s = self.gpu_s = 0.0
            self.sampled_s.clear()
            tokens = sum(part.new for part in parts)
            self.own = super().run(parts), tokens, chunks != []
            return 0.0
        contexts = [part.before + 1 for part in parts if self.decodes(part)]
        new = sum(part.new for part in chunks)
        attention = sum(part.new * (part.before + part.new / 2) for part in chunks)
        self.own = RankWork(len(contexts), sum(contexts), new, attention)
        return 0.0

    def put_together(self, throttled):
        """Return the batch of the next iteration, empty where none can be."""
        if not self.outstanding:
            self.begin()
            return Batch([], 0.0), False
        parts, preempted = self.choose(throttled)
        parts = self.started(parts)
        if parts:
            self.run(parts)
        return Batch(parts, 0.0), preempted


class Group:
    """A replica whose ranks step together."""

    def __init__(self, tables: RankTables, graphs, engine, scheduler, index=0, seed=0):
        self.tables, self.graphs, self.engine = tables, graphs, engine
        self.request_s = tables.rank.request_s
        if engine.speculation is not None:
            self.tables = engine.speculation.rank_tables(tables)
        self.ranks = [
            Rank(tables.rank, engine, scheduler, r, seed) for r in range(tables.ranks)
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
        if not is_timed(self.engine):
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
    verdict = serve(trace, groups, shortest_queue, slo, kind=Request)
    return verdict.requests, verdict.replica, groups
