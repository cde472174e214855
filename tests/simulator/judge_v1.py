"""vLLM V1's scheduler with all it can do at once, one iteration at a time.

One loop over the requests that run and one over those that wait, as vLLM 0.32 has
them in ``Scheduler.schedule`` and ``update_from_output``, with ``AsyncScheduler``, the
queues of ``request_queue.py``, ``EncoderCacheManager`` and ``EngineCore``: prefix
caching, LoRA adapters, priorities, images, recurrent states, drafts, pipeline stages
and steps of ranks without prompts. ``EngineSettings`` say which of them are on. A
request's ``computed`` tokens include drafts in flight, as if all were accepted.

At one instant, arrivals come before all else.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from judge_drafts import Draws
from judge_encoder import Encoder
from judge_kv import Pool
from judge_loras import Loras
from judge_request import Image, Part, Request, request_of

from capplan.deployment.adapters import Adapters
from capplan.deployment.engine import EngineSettings
from capplan.deployment.speculation import Speculation
from capplan.latency.contract import LatencyTables
from capplan.workload.slo import RequestSlo
from capplan.workload.trace import Trace

NO_DRAFTS = Speculation("ngram", ())

REFUSED = {
    ("states", "whole images"): "config/vllm.py:3278",
    ("drafts by ngram", "async scheduling"): "config/vllm.py:1562",
    ("adapters", "stages"): "v1/core/sched/scheduler.py, AssertionError: max_loras",
}
"""What vLLM 0.32 refuses or ends with, and where; the judge serves it too."""


@dataclass
class Batch:
    """One iteration in flight."""

    parts: list[Part]
    end_s: float


class Replica:
    """One engine."""

    defers = False  # nothing is preempted whose result is in flight

    def __init__(
        self,
        tables: LatencyTables,
        engine: EngineSettings,
        index: int = 0,
        seed: int = 0,
        line: bool = True,
    ) -> None:
        self.index, self.seed = index, seed
        self.engine, self.tables = engine, tables
        self.request_s = tables.request_s
        self.drafts = engine.speculation or NO_DRAFTS
        self.draws = Draws(self.drafts.rates, seed, line)
        self.verifying = tables  # without the draft's passes
        if engine.speculation:
            self.tables = engine.speculation.tables(tables)
            alone = replace(engine.speculation, draft_share=0.0, draft_s=0.0)
            self.verifying = alone.tables(tables)
        self.by_priority = engine.scheduler.name == "vllm-v1-priority"
        self.stages = engine.pipeline_parallel_size
        self.depth = self.stages + 1 if engine.async_scheduling else self.stages
        self.stage_s = [0.0] * self.stages  # end of the newest step on each
        self.sampled_s: dict[int, float] = {}  # when the tokens of a step are there
        self.pool = Pool(engine)
        images, budget = engine.images, engine.max_num_batched_tokens
        self.encoder = Encoder(images.cache_tokens(budget) if images else 0)
        self.loras = Loras(engine.adapters or Adapters())
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.in_flight: deque[Batch] = deque()
        self.now_s = 0.0
        self.retry_s = 0.0  # when a scheduler that has nothing to run looks again
        self.step = 0
        self.skipped: set[Request] = set()  # of those that wait
        self.tells = False  # who has finished, to the workers, with the next step
        self.stops = False  # vLLM ended with an assertion
        self.queue_stays = False  # the last step that took prompts left some

    @property
    def gpu_s(self) -> float:
        return self.stage_s[0]

    @gpu_s.setter
    def gpu_s(self, end_s: float) -> None:
        self.stage_s[0] = end_s

    @property
    def unfinished(self) -> list[Request]:
        return [each for each in {*self.waiting, *self.running} if not each.done]

    @property
    def outstanding(self) -> int:
        return len(self.unfinished)

    @property
    def seats_left(self) -> int:
        return self.engine.max_num_seqs - len(self.running)

    # The engine's clock

    def arrive(self, request: Request, now_s: float) -> None:
        """Take a request; an engine that computes in vain waits for that first."""
        if self.outstanding == 0:
            if self.in_flight:
                self.collect(self.in_flight.popleft())
            self.now_s = max(self.now_s, now_s)
        self.waiting.append(request)

    def advance(self, until_s: float) -> None:
        """Do all that happens before ``until_s``."""
        while True:
            if self.tells and self.in_flight and not self.outstanding:
                self.begin()
                self.in_flight.append(Batch([], self.now_s))
            full = len(self.in_flight) == self.depth
            if full or (self.in_flight and not self.outstanding):
                if self.in_flight[0].end_s >= until_s:
                    return
                self.collect(self.in_flight.popleft())
            elif self.outstanding and self.now_s < until_s:
                batch = self.schedule()
                if not batch.parts and self.retry_s > self.now_s:
                    self.now_s = min(self.retry_s, until_s)
                else:
                    self.in_flight.append(batch)
            else:
                return

    def schedule(self) -> Batch:
        """Choose the next iteration and give it to the GPU."""
        parts, preempted = self.choose()
        if not parts:
            waits = any(batch.parts for batch in self.in_flight)
            waits = waits or self.retry_s > self.now_s
            if not preempted and not waits and self.outstanding:
                raise RuntimeError("nothing can ever be scheduled")
            return Batch([], self.now_s)
        parts = self.started(parts)
        return Batch(parts, self.run(parts))

    # What runs in an iteration

    def choose(self, throttled: bool = False) -> tuple[list[Part], bool]:
        """Choose what runs next; return it, and whether a request was preempted.

        ``throttled``: prompts wait for another step of the ranks.
        """
        self.begin()
        decode = any(not each.in_prompt for each in self.running)
        self.no_prompts = throttled and decode and not self.queue_stays
        self.go_on()
        if not self.made_way:
            self.take_from_queue(self.admitted)
            if not self.no_prompts:
                self.queue_stays = len(self.waiting) > len(self.skipped)
        self.line_up()
        return self.parts, self.made_way

    def begin(self) -> None:
        """Begin an iteration: it has nothing yet."""
        self.step += 1
        self.tells = False
        self.pool.hashed_now = set()
        self.parts: list[Part] = []
        self.budget = self.engine.max_num_batched_tokens
        self.to_encode = self.encoder.size  # tokens of images
        self.encodes: dict[Request, list[Image]] = {}
        self.made_way = False  # a request was preempted
        self.no_prompts = False

    def go_on(self) -> None:
        """Let the running ones go on, in order; preempt for their blocks."""
        for request in list(self.running):
            if self.budget == 0:
                return
            if request not in self.running or self.rests(request):
                continue
            known = len(request.tokens) + request.drafts + request.placeholders
            new = min(known - request.computed, self.budget)
            new = min(new, self.engine.max_model_len - request.computed - 1)
            new = self.cut(request, request.computed, new)
            new, images = self.with_images(request, request.computed, new)
            if new <= 0:
                continue
            tokens = request.computed + new
            processed = max(0, request.computed - request.in_flight)
            self.pool.free_skipped(request, processed)
            slots = self.slots(tokens)
            while not self.pool.fits(request, tokens, [], slots):
                victim = self.last_running()
                if self.defers and victim.in_flight:
                    return
                self.make_way(victim)
                if victim is request:
                    return
            self.pool.give(request, tokens, [], slots)
            self.pool.enter(request, min(tokens, len(request.tokens)))
            self.add(request, request.computed, new, request.drafts, images)

    def rests(self, request: Request) -> bool:
        """Whether a running request sits this iteration out."""
        # It has its last token in flight even if all drafts are rejected,
        last = request.placeholders and (
            request.computed + 2 - request.placeholders >= request.last_count
        )
        # or is on the stages, or its prompt is put off.
        on_stages = self.stages > 1 and self.step < request.next_step
        return bool(last or on_stages or (self.no_prompts and request.in_prompt))

    def slots(self, tokens: int) -> int:
        """Return the tokens for which it has KV blocks, those of the draft too."""
        return min(tokens + self.drafts.lookahead_tokens, self.engine.max_model_len)

    def last_running(self) -> Request:
        """Return whom to preempt: the last, or the last by priority."""
        if self.by_priority:
            return max(self.running, key=self.order)
        return self.running[-1]

    def make_way(self, victim: Request) -> None:
        """Preempt a request, also one that has its part of the iteration already."""
        self.made_way = True
        self.running.remove(victim)
        self.budget += sum(part.new for part in self.parts if part.request is victim)
        self.parts = [part for part in self.parts if part.request is not victim]
        for image in self.encodes.pop(victim, []):
            self.to_encode += image.end - image.begin
        self.preempt(victim)

    def preempt(self, request: Request) -> None:
        """Take a request's KV; it computes all it knows again, first in the queue."""
        self.pool.take_back(request)
        self.encoder.leave(request, np.inf)
        request.begin_again()
        request.stale = request.in_flight
        request.preemptions += 1
        self.waiting.appendleft(request)

    def take_from_queue(self, admit: Any) -> None:
        """Take from the queue while there are seats and budget, until one may not run.

        Skipped are those whose results of before a preemption are in flight, and those
        whose adapter would be one too many.
        """
        self.line_up()
        skipped: list[Request] = []
        prompts = any(part.request.in_prompt for part in self.parts)
        self.pads = bool(self.drafts.drafts and not prompts)
        self.runs = self.parts != []
        while self.waiting and self.budget > 0 and self.seats_left > 0:
            request = self.waiting[0]
            together = self.adapters([*self.parts, Part(request, 0, 0)])
            if request.stale or len(together) > self.loras.slots:
                self.skipped.add(request)
                skipped.append(self.waiting.popleft())
                continue
            if admit(request) is None:
                break
            self.skipped.discard(request)
        self.waiting.extendleft(reversed(skipped))

    def admitted(self, request: Request) -> bool | None:
        """Admit the head of the queue if all its known tokens fit."""
        pool, known = self.pool, len(request.tokens)
        hits = pool.hits(request)
        start = len(hits) * pool.block_size
        request.junction = pool.junction(request, hits)
        new, drafts = known - start, 0
        if self.no_prompts and new > 1:
            return None
        # A last token that is left is padded with drafts that are none.
        padded = 1 + self.drafts.drafts
        roomy = start + padded + 1 <= self.engine.max_model_len
        if self.pads and new == 1 and (self.runs or start > 0) and roomy:
            if padded > self.budget:
                return None
            new, drafts = padded, padded - 1
        new = self.cut(request, start, min(new, self.budget))
        if drafts and 0 < new < padded:
            new, drafts = 1, 0
        new, images = self.with_images(request, start, new)
        if new == 0:
            return None
        slots = self.slots(start + new)
        whole = pool.fits(request, known, hits)
        if not (whole and pool.fits(request, start + new, hits, slots)):
            self.encoder.leave(request, np.inf)
            return None
        pool.give(request, start + new, hits, slots)
        pool.enter(request, min(start + new, known))
        if request.scheduled_s is None:
            request.cached_tokens = start
        self.admit()
        self.add(request, start, new, drafts, images)
        return True

    def admit(self) -> None:
        """Let the head of the queue run."""
        request = self.waiting.popleft()
        if request.scheduled_s is None:
            request.scheduled_s = self.now_s
        request.known_at_admission = len(request.tokens)
        self.running.append(request)

    def line_up(self) -> None:
        """Let the queue stand by priority, where that is asked for."""
        if self.by_priority:
            self.waiting = deque(sorted(self.waiting, key=self.order))

    def order(self, request: Request) -> tuple:
        return request.priority, request.row

    def add(
        self, request: Request, before: int, new: int, drafts: int, images: list[Image]
    ) -> None:
        """Let a request have its part of the iteration."""
        verified = before + new - len(request.tokens) - request.placeholders
        self.parts.append(Part(request, before, new, max(0, min(drafts, verified))))
        self.budget -= new
        request.drafts = 0
        if images:
            self.encodes[request] = images
        for image in images:
            self.encoder.put(image, request.row)
            self.to_encode -= image.end - image.begin

    def cut(self, request: Request, start: int, new: int) -> int:
        """Return the tokens of a chunk that ends where its state is to be kept."""
        size, known = self.pool.block_size, len(request.tokens)
        prompt_end = max(request.prompt_count, known - 1)
        if not self.pool.groups or start >= prompt_end:
            return new
        end = start + new
        if end < prompt_end:
            floor = end // size * size
            if floor > start or size <= self.engine.max_num_batched_tokens:
                end = floor
        stops = [self.pool.last_state(known) * size, request.junction]
        if start % size:
            stops.append((start // size + 1) * size)
        return max(0, min([s for s in stops if start < s < end], default=end) - start)

    def with_images(
        self, request: Request, start: int, new: int
    ) -> tuple[int, list[Image]]:
        """Return the tokens of a chunk that can be computed, and what to encode.

        A draft with KV reads a token further.
        """
        to_encode: list[Image] = []
        wanted = 0
        ahead = int(self.drafts.drops_block)
        for image in request.images if new > 0 else []:
            begin, end = image.begin, image.end
            if end <= start or begin >= start + new + ahead:
                continue
            parted = start < begin and start + new < end
            if self.engine.images.disable_chunked_mm_input and parted:
                return max(0, begin - start - ahead), to_encode
            if self.encoder.refer(image, request.row):
                continue
            wanted += end - begin
            if wanted > self.to_encode or not self.encoder.has_room(wanted):
                return max(0, begin - start - ahead), to_encode
            to_encode.append(image)
        return new, to_encode

    # From the start of an iteration to its end

    def started(self, parts: list[Part]) -> list[Part]:
        """Count what was scheduled; say what each request gets from it."""
        result = []
        for part in (Part(*each) for each in parts):
            request = part.request
            request.computed = part.before + part.new
            part = part._replace(context=part.before + 1.0)
            request.in_flight += part.new
            known = len(request.tokens) + request.placeholders
            request.in_prompt = request.computed < known
            if not request.in_prompt:
                part = self.draws.gained(part)
                if self.engine.async_scheduling:
                    request.placeholders += 1 + part.drafts
                    request.drafts = self.drafts.drafts
                    request.next_step = self.step + self.stages
            result.append(part)
        return result

    def run(self, parts: list[Part]) -> float:
        """Return when the GPU is done with the iteration, on its last stage. [s]"""
        took_s = self.took_s(parts, self.tables)
        drafting_s = took_s - self.took_s(parts, self.verifying)
        end_s = max(self.now_s, self.sampled_s.get(self.step - self.stages, 0.0))
        end_s = max(end_s, self.gpu_s) + self.encoding_s()
        if together := self.adapters(parts):
            self.stops |= len(together) > self.loras.slots
            costs = self.loras.costs
            end_s += sum(self.loras.load_s(each, self.step) for each in together)
            drafting_s *= 1 + costs.slowdown
            took_s = took_s * (1 + costs.slowdown) + len(together) * costs.read_s
        if pipeline := self.engine.pipeline:
            decodes = sum(self.decodes(part) for part in parts)
            own_s = pipeline.own_s + pipeline.own_request_s * decodes
            whole_s = own_s + drafting_s  # the draft is on the last stage
            took_s = took_s * pipeline.share + whole_s * (1 - pipeline.share)
            tokens = sum(part.new for part in parts)
            took_s += pipeline.hop_s + pipeline.hop_token_s * tokens
        for stage in range(self.stages):
            end_s = max(end_s, self.stage_s[stage]) + took_s
            self.stage_s[stage] = end_s
        if any(self.sends(part) for part in parts):
            self.sampled_s[self.step] = end_s
        return end_s

    def adapters(self, parts: list[Part]) -> dict[int, None]:
        """Return the adapters of an iteration, in the order of its requests."""
        found = dict.fromkeys(part.request.adapter for part in parts)
        found.pop(-1, None)
        return found

    def took_s(self, parts: list[Part], tables: LatencyTables) -> float:
        """Return the time of an iteration without adapters, images and stages. [s]"""
        contexts, chunks, verified, attention = [], 0, 0, 0.0
        for part in parts:
            if self.decodes(part):
                contexts.append(part.context)
                verified += part.new
            else:
                chunks += part.new
                attention += part.new * (part.before + part.new / 2)
        b, length = len(contexts), sum(contexts)
        if chunks == 0 and verified == b * self.drafts.verified_tokens:
            return float(tables.decode_s[b] + tables.decode_context_s[b] * length)
        took_s = tables.fused_s[chunks + verified] + tables.fused_decode_s[b]
        took_s += tables.fused_context_s[b] * length
        return float(took_s + tables.attention_s * attention)

    def decodes(self, part: Part) -> bool:
        """Return whether a part of an iteration costs as a decode."""
        alone = part.new == 1 and part.before >= part.request.prompt_count
        return alone or part.drafts > 0

    def encoding_s(self) -> float:
        """Return the time to encode the images of the iteration. [s]"""
        images = self.engine.images
        encoded = [image for each in self.encodes.values() for image in each]
        if not encoded:
            return 0.0
        times_s = [images.encode_s(image.end - image.begin) for image in encoded]
        shared_s = max(sum(times_s) / images.encoders, max(times_s))
        return float(max(shared_s + images.call_s, images.least_s))

    def sends(self, part: Part) -> bool:
        """Return whether the first stage is sent a token: not a prompt's only one."""
        request = part.request
        known = request.known_at_admission
        one = part.before < known and known + 1 >= request.last_count
        return not request.in_prompt and not one

    def collect(self, batch: Batch) -> None:
        """Wait for an iteration and hand out its tokens."""
        self.now_s = max(self.now_s, batch.end_s)
        for part in batch.parts:
            request = part.request
            if request.done:
                continue  # computed in vain
            request.in_flight -= part.new
            stale = request.stale > 0
            if stale:
                request.stale -= part.new
            elif part.gained:
                rejected = part.drafts + 1 - part.gained
                request.computed -= rejected
                request.placeholders -= min(rejected, request.placeholders)
            ahead = int(self.drafts.drops_block)
            written = request.computed - request.placeholders
            self.encoder.leave(request, written - ahead)
            if part.gained:
                self.hand_out(part, stale, batch.end_s)

    def hand_out(self, part: Part, stale: bool, end_s: float) -> None:
        """Give a request its tokens of an iteration."""
        request, before = part.request, len(part.request.tokens)
        for k in range(before, min(before + part.gained, request.last_count)):
            request.tokens.append(("output", request.row, k))
        request.token_s.append(end_s)
        request.given = max(request.given, part.turn)
        if not self.engine.async_scheduling:
            request.drafts = self.drafts.drafts
        elif not stale:
            request.placeholders -= len(request.tokens) - before
            self.enter_output(request)
        if request.done:
            self.finish(request)

    def enter_output(self, request: Request) -> None:
        """Make the blocks findable that its new tokens fill."""
        self.pool.enter(request, request.computed - request.placeholders)

    def finish(self, request: Request) -> None:
        """Let a request go that has its last token."""
        self.tells = True
        (self.running if request in self.running else self.waiting).remove(request)
        self.skipped.discard(request)
        self.encoder.leave(request, np.inf)
        self.pool.take_back(request)


@dataclass
class Verdict:
    """What the judge found: the requests in order, and their replicas."""

    requests: list[Request]
    replica: list[int]
    replicas: list[Any]


def judge_v1(
    trace: Trace,
    tables: LatencyTables,
    engine: EngineSettings,
    replica_count: int,
    seed: int = 0,
    slo: RequestSlo | None = None,
    line: bool = True,
) -> Verdict:
    """Serve a trace step by step, by the shortest queue."""
    every = range(replica_count)
    replicas = [Replica(tables, engine, r, seed, line) for r in every]
    return serve(trace, replicas, shortest_queue, slo)


def shortest_queue(replicas: list, request: Request, now_s: float) -> int:
    counts = [replica.outstanding for replica in replicas]
    return counts.index(min(counts))


def serve(
    trace: Trace,
    replicas: list,
    choose: Any,
    slo: RequestSlo | None = None,
    look: Any = lambda now_s: None,
    kind: type[Request] = Request,
) -> Verdict:
    """Serve a trace step by step, on the replicas that are chosen."""
    requests, chosen = [], []
    for row in range(len(trace)):
        request = request_of(trace, row, slo, kind)
        now_s = request.arrival_s + replicas[0].request_s
        look(now_s)
        for replica in replicas:
            replica.advance(now_s)
        r = choose(replicas, request, now_s)
        replicas[r].arrive(request, now_s)
        requests.append(request)
        chosen.append(r)
    for replica in replicas:
        replica.advance(np.inf)
    return Verdict(requests, chosen, replicas)
