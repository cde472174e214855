"""The judge of V1 with host memory that keeps KV of prompts.

vLLM 0.32 and 0.33: ``Scheduler`` with ``OffloadingConnector`` and its CPU manager. A
chunk is known by all tokens up to its last; which blocks of the GPU are copied is known
one by one. What the workers do is that of ``docs/internals/simulator.md``.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from judge_kv import Block, Pool
from judge_request import Part, Request
from judge_v1 import Batch, Replica, Verdict, serve, shortest_queue

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.workload.trace import Trace


@dataclass(eq=False)
class Chunk:
    """KV of a request's tokens up to some position."""

    content: tuple
    rank: tuple[int, int]
    references: int = -1  # -1: it is being stored


@dataclass(eq=False)
class Copy:
    """A copy between GPU and host."""

    loads: bool
    request: Request
    chunks: list[Chunk]
    blocks: list[Block]
    end_s: float = math.inf
    is_found: bool = False


@dataclass(eq=False)
class TierBatch(Batch):
    """One iteration in flight, with the copies of whose end it tells."""

    found: list[Copy] = field(default_factory=list)


@dataclass(eq=False)
class OfTier:
    """What is remembered of a request."""

    stored: int = 0
    here: int = 0  # tokens loaded, until it runs
    loads: bool = False
    rank: int = 0
    used: dict[tuple, int] = field(default_factory=dict)  # contents and places
    tier_tokens: int = 0


class TierPool(Pool):
    """Blocks, of which those are noted that were taken or found."""

    def __init__(self, engine: EngineSettings) -> None:
        super().__init__(engine)
        self.allocated: set[Block] = set()  # in this call of the scheduler

    def take(self) -> Block:
        block = super().take()
        self.allocated.add(block)
        return block

    def give(self, request, tokens, hits, slots=0) -> None:
        self.allocated.update(hits)
        super().give(request, tokens, hits, slots)


class TierReplica(Replica):
    """One engine with a tier."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        assert self.engine.tier is not None
        self.tier = self.engine.tier
        self.chunk = self.tier.blocks_per_chunk * self.engine.block_size
        self.defers = self.engine.async_scheduling
        self.pool = TierPool(self.engine)
        self.chunks: dict[tuple, Chunk] = {}
        self.copies: list[Copy] = []  # not told of
        self.to_begin: list[Copy] = []  # stores, with the next call
        self.free_s = {True: 0.0, False: 0.0}
        self.rank = 0
        self.of: dict[Request, OfTier] = {}
        self.ended: list[Request] = []
        self.holding: list[Request] = []
        self.held: dict[Request, list[Block]] = {}  # by those that have ended
        self.deferred: list[tuple[Batch, list[Block]]] = []

    # The clock

    @property
    def unfinished(self) -> list[Request]:
        return [*super().unfinished, *self.holding]

    def arrive(self, request: Request, now_s: float) -> None:
        self.of[request] = OfTier()
        super().arrive(request, now_s)

    def advance(self, until_s: float) -> None:
        while True:
            works = self.outstanding or self.ended or self.copies or self.to_begin
            full = len(self.in_flight) == self.depth
            if works and not full and self.now_s < until_s:
                if not self.look(until_s):
                    return
            elif self.in_flight:
                if self.in_flight[0].end_s >= until_s:
                    return
                self.collect(self.in_flight.popleft())
            else:
                return

    def look(self, until_s: float) -> bool:
        """Call the scheduler once; return whether it may be called again."""
        begun = len(self.copies) + len(self.to_begin)
        self.in_flight.append(self.schedule())
        if any(batch.parts for batch in self.in_flight):
            return True
        changed = any(batch.found for batch in self.in_flight) or self.made_way
        changed = changed or len(self.copies) + len(self.to_begin) > begun
        while self.in_flight:
            self.collect(self.in_flight.popleft())
        if changed or self.to_begin:
            return True
        ends_s = min((copy.end_s for copy in self.copies), default=math.inf)
        if ends_s == math.inf and until_s == math.inf and self.outstanding:
            raise RuntimeError("nothing can ever be scheduled")
        self.now_s = max(self.now_s, min(ends_s, until_s))
        return self.now_s < until_s

    def schedule(self) -> Batch:
        for copy in self.to_begin:
            self.begin_copy(copy, self.now_s)
        self.to_begin = []
        self.pool.allocated, self.flushed = set(), set()
        self.loads: list[Copy] = []
        new = {each for each in self.unfinished if each.scheduled_s is None}
        parts, _ = self.choose()
        for copy in self.copies:
            if copy.request.done and self.pool.allocated & {*copy.blocks}:
                self.flushed.add(copy)
        for part in parts:
            self.offer(part.request, part.before + part.new)
        self.end_requests()
        for copy in self.flushed:
            if copy in self.to_begin:
                self.to_begin.remove(copy)
                self.begin_copy(copy, self.now_s)
        waited = [copy.end_s for copy in self.flushed if not copy.is_found]
        launch_s, now_s, end_s = max([self.now_s, *waited]), self.now_s, self.now_s
        if parts:
            for part in parts:
                if part.request in new:
                    part.request.scheduled_s = launch_s
            parts = self.started(parts)
            self.now_s = launch_s
            end_s = self.run(parts)
            self.now_s = now_s
        for copy in self.loads:
            self.begin_copy(copy, launch_s)
        found = [c for c in self.copies if not c.is_found and c.end_s <= launch_s]
        for copy in found:
            copy.is_found = True
        return TierBatch(parts, end_s, found)

    def begin_copy(self, copy: Copy, launch_s: float) -> None:
        block_s = self.tier.load_block_s if copy.loads else self.tier.store_block_s
        begin_s = max(launch_s, self.gpu_s, self.free_s[copy.loads])
        copy.end_s = begin_s + (self.tier.latency_s + len(copy.blocks) * block_s)
        self.free_s[copy.loads] = copy.end_s

    def collect(self, batch: Batch) -> None:
        for last, blocks in list(self.deferred):
            if last is batch:
                self.deferred.remove((last, blocks))
                self.pool.let_go(blocks)
        super().collect(batch)
        for copy in batch.found:
            self.copies.remove(copy)
            for chunk in copy.chunks:
                chunk.references = 0
            if copy.loads:
                self.of[copy.request].loads = False

    def finish(self, request: Request) -> None:
        self.held[request] = list(request.blocks)
        writing = [
            batch
            for batch in self.in_flight
            if any(part.request is request for part in batch.parts)
        ]
        if self.defers and writing:
            self.deferred.append((writing[-1], [*reversed(request.blocks)]))
            request.blocks = []
        super().finish(request)
        self.ended.append(request)

    def preempt(self, request: Request) -> None:
        super().preempt(request)
        self.flushed |= {copy for copy in self.copies if copy.request is request}

    # What is stored

    def content(self, request: Request, k: int) -> tuple:
        return tuple(request.tokens[: (k + 1) * self.chunk])

    def use(self, request: Request, places: list[tuple[int, tuple]]) -> None:
        """Note chunks that a request uses."""
        of = self.of[request]
        new = [(k, content) for k, content in places if content not in of.used]
        of.used |= {content: k for k, content in new}
        if new and self.tier.by_request:
            if not of.rank:
                self.rank += 1
                of.rank = self.rank
            for k, content in new:
                if chunk := self.chunks.get(content):
                    chunk.rank = max(chunk.rank, (of.rank, -k - 1))

    def offer(self, request: Request, tokens: int) -> None:
        """Store the full chunks of so many tokens that the tier does not have."""
        of = self.of[request]
        tokens = min(tokens, len(request.tokens))
        if not self.tier.answers:
            tokens = min(tokens, request.prompt_count)
        places = range(of.stored, tokens // self.chunk)
        offered = [(k, self.content(request, k)) for k in places]
        if not offered:
            return
        new = [(k, c) for k, c in offered if c not in self.chunks]
        ready = [
            (k, c)
            for k, c in offered
            if c in self.chunks and self.chunks[c].references >= 0
        ]
        self.use(request, sorted([*new, *ready]))
        missing = len(self.chunks) + len(new) - self.tier.chunks
        contents = {content for _, content in offered}
        idle = [
            chunk
            for chunk in sorted(self.chunks.values(), key=lambda chunk: chunk.rank)
            if chunk.references == 0 and chunk.content not in contents
        ]
        if new and missing > len(idle):
            return  # and offered again
        of.stored = places.stop
        if not new:
            return
        for chunk in idle[: max(0, missing)]:
            del self.chunks[chunk.content]
        made = []
        for k, content in new:
            self.rank += not self.tier.by_request
            rank = (of.rank, -k - 1) if self.tier.by_request else (self.rank, 0)
            self.chunks[content] = Chunk(content, rank)
            made.append(self.chunks[content])
        size = self.tier.blocks_per_chunk
        held = request.blocks or self.held[request]
        blocks = [b for k, _ in new for b in held[k * size : (k + 1) * size]]
        copy = Copy(False, request, made, blocks)
        self.copies.append(copy)
        self.to_begin.append(copy)
        if request.done and self.pool.allocated & {*blocks}:
            self.flushed.add(copy)

    def end_requests(self) -> None:
        """Store what is left of requests that have ended; they used theirs last."""
        ended, self.ended = self.ended, []
        for request in ended:
            self.offer(request, max(request.prompt_count, len(request.tokens) - 1))
        for request in ended:
            used = self.of[request].used
            for content in sorted(used, key=lambda content: -used[content]):
                if chunk := self.chunks.get(content):
                    self.rank += 1
                    chunk.rank = (self.rank, 0)

    # What is loaded

    def begin(self) -> None:
        super().begin()
        if self.by_priority:
            self.holding.sort(key=self.order)

    def take_from_queue(self, admit: Any) -> None:
        """Take from those that hold blocks, then from the queue."""
        self.line_up()
        prompts = any(part.request.in_prompt for part in self.parts)
        self.pads = bool(self.drafts.drafts and not prompts)
        self.runs = self.parts != []
        passed: set[Request] = set()
        while self.budget > 0 and self.seats_left > 0:
            left = [each for each in self.holding if each not in passed]
            holds = bool(left)
            left = left or [each for each in self.waiting if each not in passed]
            if not left:
                return
            request, of = left[0], self.of[left[0]]
            if of.loads:
                passed.add(request)
                continue
            if holds:
                self.pool.enter(request, of.here)
            together = self.adapters([*self.parts, Part(request, 0, 0)])
            if request.stale or len(together) > self.loras.slots:
                passed.add(request)
                continue
            if not holds:
                tokens = self.found(request)
                if tokens is None:
                    passed.add(request)
                    continue
                if tokens and not self.load(request, tokens):
                    return
                if tokens:
                    passed.add(request)
                    continue
            self.waiting.remove(request) if not holds else self.holding.remove(request)
            self.waiting.appendleft(request)
            if (self.run_loaded if holds else admit)(request) is None:
                self.waiting.popleft()
                (self.holding if holds else self.waiting).insert(0, request)
                self.restore(request, holds, passed)
                return

    def restore(self, request: Request, holds: bool, passed: set[Request]) -> None:
        """Let a request that does not fit stand behind those that were passed over."""
        queue = self.holding if holds else self.waiting
        before = sum(each in passed for each in queue)
        queue.remove(request)
        queue.insert(before, request)

    def found(self, request: Request) -> int | None:
        """Return how many tokens the tier has behind the prefix cache; None: later."""
        of, size = self.of[request], self.engine.block_size
        if self.tier.by_request:
            of.stored = 0
        if any(copy.request is request for copy in self.copies):
            return None
        start = len(self.pool.hits(request)) * size
        full = len(request.tokens) // self.chunk
        if full * self.chunk - start < self.chunk:
            return 0
        chunks: list[Chunk] = []
        first = start // self.chunk
        for k in range(first, full):
            chunk = self.chunks.get(self.content(request, k))
            if chunk is None:
                break
            chunks.append(chunk)
        if any(chunk.references < 0 for chunk in chunks):
            return None
        tokens = (first + len(chunks)) * self.chunk - start
        if not chunks or tokens < self.chunk:
            return 0
        return None if any(chunk.references for chunk in chunks) else tokens

    def reserved(self) -> int:
        """Blocks that unfinished prompts and loads still need, and drafts of one."""
        more = 0
        if self.drafts.drafts:
            more = 1 + self.drafts.drafts + self.drafts.lookahead_tokens
        unfinished = [r for r in [*self.holding, *self.running] if self.is_open(r)]
        return self.pool.blocks_for(more) + sum(
            max(0, self.pool.blocks_for(len(r.tokens) + more) - len(r.blocks))
            for r in unfinished
        )

    def is_open(self, request: Request) -> bool:
        """Whether a request counts as an unfinished prompt until the call has ended."""
        return (
            request in self.holding
            or request in self.were_open
            or any(p.request is request and self.cuts(p) for p in self.parts)
        )

    def cuts(self, part: Part) -> bool:
        return part.before + part.new < len(part.request.tokens)

    def load(self, request: Request, tokens: int) -> bool:
        """Begin a load if it fits; return whether it does."""
        pool, size = self.pool, self.engine.block_size
        hits = pool.hits(request)
        here = len(hits) * size + tokens
        free = len(pool.free)
        whole = pool.missing(request, len(request.tokens), hits)
        if whole > free or pool.missing(request, here, hits) > free - self.reserved():
            return False
        pool.give(request, here, hits)
        of, first = self.of[request], len(hits) * size // self.chunk
        places = range(first, here // self.chunk)
        chunks = [self.chunks[self.content(request, k)] for k in places]
        for chunk in chunks:
            chunk.references = 1
        self.use(request, [(k, self.content(request, k)) for k in places])
        copy = Copy(True, request, chunks, request.blocks[len(hits) :])
        self.copies.append(copy)
        self.loads.append(copy)
        of.stored, of.here, of.loads = places.stop, here, True
        of.tier_tokens += tokens
        self.waiting.remove(request)
        self.holding.append(request)
        return True

    def run_loaded(self, request: Request) -> bool | None:
        """Let a request run whose KV was loaded, if all it knows fits."""
        pool, known = self.pool, len(request.tokens)
        start = min(self.of[request].here, known - 1)
        new, drafts = known - start, 0
        padded = 1 + self.drafts.drafts
        roomy = start + padded + 1 <= self.engine.max_model_len
        if self.pads and new == 1 and roomy:
            if padded > self.budget:
                return None
            new, drafts = padded, padded - 1
        new = min(new, self.budget)
        slots = self.slots(start + new)
        whole = pool.fits(request, known, [])
        if not (whole and pool.fits(request, start + new, [], slots)):
            return None
        pool.give(request, start + new, [], slots)
        pool.allocated.update(request.blocks)
        pool.enter(request, min(start + new, known))
        if request.scheduled_s is None:
            request.cached_tokens = start
        self.were_open.add(request)
        self.admit()
        self.add(request, start, new, drafts, [])
        return True

    # What the rules above look back at

    def choose(self, throttled: bool = False) -> tuple[list[Part], bool]:
        self.were_open = {each for each in self.running if each.in_prompt}
        return super().choose(throttled)


def judge_tier(
    trace: Trace, tables: LatencyTables, engine: EngineSettings, replica_count: int
) -> Verdict:
    """Serve a trace step by step, by the shortest queue."""
    every = range(replica_count)
    replicas = [TierReplica(tables, engine, r) for r in every]
    return serve(trace, replicas, shortest_queue)
