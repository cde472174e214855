"""A simulator that steps through every iteration, to judge the fast one by.

Plain lists and dicts, one iteration at a time, one object per KV block and one
value per token, so that each rule of the engine can be read off. It follows
vLLM 0.32: ``EngineCore.step`` and ``step_with_batch_queue`` and the block pool;
``judge_schedulers.py`` holds the schedulers. At one instant, arrivals come before
all else.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from judge_best_fit import best_fit
from judge_routers import REMEMBERING, Sent
from judge_schedulers import SCHEDULERS
from judge_sglang import enter

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.simulator.routers import parse_router
from capplan.simulator.schedulers import parse_scheduler
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace


@dataclass(eq=False)
class Block:
    """Room for the KV of ``block_size`` tokens."""

    references: int = 0
    content: tuple | None = None  # all tokens up to its last; None: cannot be found


@dataclass(eq=False)
class Request:
    """One request on its replica."""

    row: int
    arrival_s: float
    prompt_count: int
    output_count: int
    tokens: list  # prompt and collected output
    computed: int = 0  # tokens whose KV is there once what is in flight is done
    placeholders: int = 0  # output tokens in flight (async only)
    in_flight: int = 0  # tokens scheduled, result not collected
    stale: int = 0  # of those, the ones scheduled before a preemption
    findable: int = 0  # its blocks entered in the cache
    blocks: list[Block] = field(default_factory=list)
    bounded: list[Block] = field(default_factory=list)  # of windows and states
    scheduled_s: float | None = None
    cached_tokens: int = 0
    preemptions: int = 0
    swaps: int = 0
    host_blocks: int = 0  # its KV on the host
    predicted_count: int = 0  # predicted output tokens
    slo: RequestSlo | None = None  # of its class
    most_output_count: int = 0  # that its client asked for
    priority: int = 0
    session: int = -1
    group: int = -1
    prompt_left: bool = True  # FastGen: it still counts as a prompt
    decodes: bool = False  # oracle: its prompt is done
    batch: int = 0  # SA: of the plan; 0: not planned
    known_at_admission: int = 0  # tokens to prefill when last admitted
    token_s: list[float] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return len(self.tokens) == self.prompt_count + self.output_count

    @property
    def is_last_in_flight(self) -> bool:
        due = max(self.placeholders, int(self.stale > 0))
        return len(self.tokens) + due >= self.prompt_count + self.output_count


class Pool:
    """The KV blocks of a replica; free ones stand in the order they are taken."""

    def __init__(self, engine: EngineSettings) -> None:
        self.block_size = engine.block_size
        self.caching = engine.prefix_caching
        self.bounded_groups = engine.bounded_groups
        self.bounded_blocks = engine.bounded_blocks
        self.free = [Block() for _ in range(engine.kv_blocks - 1)]
        self.found: dict[tuple, list[Block]] = {}

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def bounded_tokens(self, request: Request) -> int:
        """Tokens of the blocks of windows and states that the request needs."""
        tokens = request.prompt_count + request.output_count - 1
        most = min(self.blocks_for(tokens), self.bounded_blocks)
        return self.bounded_groups * most * self.block_size

    def bounded(self, request: Request) -> int:
        """Return how many of these blocks the request does not hold yet."""
        return self.bounded_tokens(request) // self.block_size - len(request.bounded)

    def hits(self, request: Request) -> list[Block]:
        """Blocks that hold the request's first tokens; one token is left over."""
        blocks = []
        if self.caching:
            for k in range((len(request.tokens) - 1) // self.block_size):
                same = self.found.get(self.content(request, k))
                if not same:
                    break
                blocks.append(same[0])
        return blocks

    def content(self, request: Request, k: int) -> tuple:
        return tuple(request.tokens[: (k + 1) * self.block_size])

    def missing(self, request: Request, tokens: int, hits: list[Block]) -> int:
        """Free blocks it takes so that ``tokens`` of the request have room."""
        held = len(request.blocks) + len(hits)
        unused = sum(block.references == 0 for block in hits)
        return max(0, self.blocks_for(tokens) - held) + unused + self.bounded(request)

    def give(self, request: Request, tokens: int, hits: list[Block]) -> None:
        """Let a request hold ``hits`` and what else ``tokens`` need."""
        for block in hits:
            if block.references == 0:
                self.free.remove(block)
            block.references += 1
        request.blocks += hits
        request.findable += len(hits)
        bounded = self.bounded(request)
        for taken in range(self.missing(request, tokens, [])):
            block = self.take()
            (request.bounded if taken < bounded else request.blocks).append(block)

    def take(self) -> Block:
        """Take the first free block; its content is lost."""
        block = self.free.pop(0)
        if block.content is not None:
            self.found[block.content].remove(block)
            block.content = None
        block.references = 1
        return block

    def enter(self, request: Request, tokens: int) -> None:
        """Make the request's full blocks among its first ``tokens`` findable."""
        if not self.caching:
            return
        for k in range(request.findable, tokens // self.block_size):
            block = request.blocks[k]
            block.content = self.content(request, k)
            self.found.setdefault(block.content, []).append(block)
            request.findable = k + 1

    def take_back(self, request: Request) -> None:
        """Free the request's blocks, the last first; findable ones are kept longest."""
        first, last = [], []
        for block in [*reversed(request.blocks), *request.bounded]:
            block.references -= 1
            if block.references == 0:
                (first if block.content is None else last).append(block)
        self.free = first + self.free + last
        request.blocks = []
        request.bounded = []
        request.findable = 0


@dataclass
class Batch:
    """One iteration in flight."""

    parts: list[tuple[Request, int, bool]]  # request, new tokens, gives a token
    end_s: float


class Replica:
    """One engine."""

    def __init__(
        self,
        tables: LatencyTables,
        engine: EngineSettings,
        scheduler: str,
        index: int = 0,
        seed: int = 0,
        slo: RequestSlo | None = None,
    ) -> None:
        self.index = index
        self.seed = seed
        self.slo = slo
        self.plans = 0
        self.charged = 0.0  # InstAssign: tokens
        self.seen = 0, 0.0  # waiting requests and KV use at the last look
        self.sent = Sent()  # what a router remembers of it
        policy = parse_scheduler(scheduler)
        self.scheduler, self.settings = policy.name, policy.settings
        overhead_s = self.settings.get("overhead_s", 0.0)
        self.tables = tables._replace(
            decode_s=tables.decode_s + overhead_s, fused_s=tables.fused_s + overhead_s
        )
        self.engine = engine
        self.depth = 2 if engine.async_scheduling else 1
        self.pool = Pool(engine)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.buffer: list[Request] = []  # all, where a scheduler has its own order
        self.in_flight: deque[Batch] = deque()
        self.now_s = 0.0
        self.gpu_s = 0.0
        self.retry_s = 0.0  # when a scheduler that has nothing to run looks again
        self.pauses = 0  # decodes that sat out an iteration
        self.fewest_free = engine.kv_blocks - 1

        self.host_free = engine.host_kv_blocks if engine.kv_block_bytes else 0

    @property
    def unfinished(self) -> list[Request]:
        everyone = {*self.waiting, *self.running, *self.buffer}
        return [request for request in everyone if not request.done]

    @property
    def outstanding(self) -> int:
        return len(self.unfinished)

    @property
    def seats_left(self) -> int:
        return self.engine.max_num_seqs - len(self.running)

    def admit(self) -> None:
        """Let the head of the queue run."""
        request = self.waiting.popleft()
        if request.scheduled_s is None:
            request.scheduled_s = self.now_s
        request.known_at_admission = len(request.tokens)
        self.running.append(request)

    def swap_out(self, request: Request) -> None:
        """Copy a request's KV to the host; the next iteration waits for it."""
        request.host_blocks = len(request.blocks) + len(request.bounded)
        self.pool.take_back(request)
        self.host_free -= request.host_blocks
        assert self.host_free >= 0
        request.swaps += 1
        self.copy(request.host_blocks)

    def swap_in(self, request: Request) -> None:
        """Copy it back."""
        bounded = self.pool.bounded(request)
        tokens = (request.host_blocks - bounded) * self.engine.block_size
        self.pool.give(request, tokens, [])
        self.host_free += request.host_blocks
        self.copy(request.host_blocks)
        request.host_blocks = 0

    def copy(self, blocks: int) -> None:
        """Make the next iteration wait for blocks that are copied."""
        start_s = max(self.now_s, self.gpu_s)
        self.gpu_s = start_s + blocks * self.engine.block_link_s

    def arrive(self, request: Request, now_s: float) -> None:
        if self.outstanding == 0:
            self.now_s = max(self.now_s, now_s)
        self.waiting.append(request)

    def look(self, moment_s: float) -> None:
        """Note the queue and the share of the KV in use at a moment."""
        self.advance(moment_s)
        free = len(self.pool.free) / (self.engine.kv_blocks - 1)
        self.seen = len(self.waiting), 1.0 - free

    def advance(self, until_s: float) -> None:
        """Do all that happens before ``until_s``."""
        while True:
            if len(self.in_flight) == self.depth:
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
        parts, preempted = SCHEDULERS[self.scheduler](self, self.settings)
        self.fewest_free = min(self.fewest_free, len(self.pool.free))
        if not parts:
            waits = self.in_flight or self.retry_s > self.now_s
            if not preempted and not waits and self.outstanding:
                raise RuntimeError("nothing can ever be scheduled")
            return Batch([], self.now_s)
        return Batch(self.started(parts), self.run(parts))

    def started(
        self, parts: list[tuple[Request, int, int]]
    ) -> list[tuple[Request, int, bool]]:
        """Count what was scheduled; say which requests get a token from it."""
        result = []
        for request, before, new in parts:
            request.computed = before + new
            request.in_flight += new
            gives = request.computed >= len(request.tokens) + request.placeholders
            if gives and self.engine.async_scheduling:
                request.placeholders += 1
            result.append((request, new, gives))
        return result

    def run(self, parts: list[tuple[Request, int, int]]) -> float:
        """Return when the GPU is done with the iteration. [s]"""
        contexts, chunks, attention = [], 0, 0.0
        for request, before, new in parts:
            if self.decodes(request, before, new):
                contexts.append(before + 1)
            else:
                chunks += new
                attention += new * (before + new / 2)
        b, length, tables = len(contexts), sum(contexts), self.tables
        if chunks == 0:
            took_s = tables.decode_s[b] + tables.decode_context_s[b] * length
        else:
            took_s = tables.fused_s[chunks + b] + tables.fused_decode_s[b]
            took_s += tables.fused_context_s[b] * length
            took_s += tables.attention_s * attention
        self.gpu_s = max(self.now_s, self.gpu_s) + float(took_s)
        return self.gpu_s

    def decodes(self, request: Request, before: int, new: int) -> bool:
        """Return whether a part of an iteration costs as a decode."""
        return new == 1 and before >= request.prompt_count

    def preempt(self, request: Request) -> None:
        """Take a request's KV; it computes all it knows again, first in the queue."""
        self.pool.take_back(request)
        request.computed = 0
        request.placeholders = 0
        request.stale = request.in_flight
        request.preemptions += 1
        self.waiting.appendleft(request)

    def collect(self, batch: Batch) -> None:
        """Wait for an iteration and hand out its tokens."""
        self.now_s = max(self.now_s, batch.end_s)
        for request, new, gives in batch.parts:
            self.executed(request)
            request.in_flight -= new
            stale = request.stale > 0
            if stale:
                request.stale -= new
            if not gives:
                continue
            request.tokens.append(("output", request.row, len(request.tokens)))
            request.token_s.append(batch.end_s)
            if not stale and self.engine.async_scheduling:
                request.placeholders -= 1
                if self.scheduler != "sglang":  # at its end
                    self.pool.enter(request, request.computed - request.placeholders)
            if request.done:
                self.finish(request)

    def executed(self, request: Request) -> None:
        """Do what follows on an iteration of a request, before its token."""

    def finish(self, request: Request) -> None:
        """Let a request go that has its last token."""
        (self.running if request in self.running else self.waiting).remove(request)
        if self.scheduler == "sglang":
            enter(self.pool, request, request.computed)
        self.pool.take_back(request)


def _round_robin(replicas, index, draw, request, now_s, slo):
    return index % len(replicas)


def _shortest_queue(replicas, index, draw, request, now_s, slo):
    counts = [replica.outstanding for replica in replicas]
    return counts.index(min(counts))


def _power_of_two(replicas, index, draw, request, now_s, slo):
    n = len(replicas)
    first = int(draw[0] * n)
    others = [r for r in range(n) if r != first]
    if not others:
        return first
    second = others[int(draw[1] * (n - 1))]
    shorter = replicas[second].outstanding < replicas[first].outstanding
    return second if shorter else first


def _inst_assign(replicas, index, draw, request, now_s, slo):
    """Most memory left by its own book, which is opened anew when it is used up."""
    engine = replicas[0].engine
    room = (engine.kv_blocks - 1) * engine.block_size
    tokens = request.prompt_count + request.predicted_count
    charged = [replica.charged for replica in replicas]
    best = charged.index(min(charged))
    if (room - charged[best]) * 0.9 < tokens:
        for replica in replicas:
            replica.charged = 0.0
        best = 0
    replicas[best].charged += tokens / 0.9
    return best


def _least_tokens(replicas, index, draw, request, now_s, slo):
    counts = [
        sum(each.prompt_count + each.predicted_count for each in replica.unfinished)
        for replica in replicas
    ]
    return counts.index(min(counts))


ROUTERS = {
    "least-tokens": _least_tokens,
    "round-robin": _round_robin,
    "jsq": _shortest_queue,
    "power-of-two": _power_of_two,
    "best-fit": best_fit,
    "inst-assign": _inst_assign,
    **REMEMBERING,
}


@dataclass
class Verdict:
    """What the judge found: the requests in order, and their replicas."""

    requests: list[Request]
    replica: list[int]
    replicas: list[Replica]


def judge(
    trace: Trace,
    tables: LatencyTables,
    engine: EngineSettings,
    replica_count: int,
    router: str,
    seed: int = 0,
    slo: RequestSlo | None = None,
    scheduler: str = "vllm-v1",
    kind: type[Replica] = Replica,
) -> Verdict:
    """Serve a trace step by step, on replicas of a kind."""
    draws = np.random.default_rng(seed).random((len(trace), 2))
    slo = slo or RequestSlo(ttft_s=np.inf, tpot_s=np.inf)
    replicas = [
        kind(tables, engine, scheduler, index, seed, slo)
        for index in range(replica_count)
    ]
    predicted = trace.predicted_output_tokens
    if predicted is None:
        predicted = trace.output_tokens
    requests, chosen = [], []
    policy = parse_router(router)
    own = policy.settings if policy.name in REMEMBERING else {}
    period_s = own.get("refresh", 0.0)
    looks = 0
    for row in range(len(trace)):
        assert trace.arrival_s is not None
        arrival_s = float(trace.arrival_s[row])
        now_s = arrival_s + tables.request_s
        while period_s and looks * period_s < now_s:
            for replica in replicas:
                replica.look(looks * period_s)
            looks += 1
        for replica in replicas:
            replica.advance(now_s)
            if not period_s:
                replica.look(now_s)
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
            predicted_count=int(predicted[row]),
            most_output_count=int(trace.most_output_tokens[row]),
            priority=int(trace.priority[row]),
            session=int(trace.session[row]),
            group=group,
            slo=Slo(slo).of_class(trace.class_names[trace.request_class[row]]),
        )
        choose = ROUTERS[policy.name]
        r = choose(replicas, row, draws[row], request, now_s, slo, **own)
        replicas[r].arrive(request, now_s)
        requests.append(request)
        chosen.append(r)
    for replica in replicas:
        replica.advance(np.inf)
    return Verdict(requests, chosen, replicas)


def judge_own(
    replicas: list, trace: Trace, groups: np.ndarray | None = None
) -> Verdict:
    """Serve a trace step by step on replicas of their own kind, by shortest queue.

    ``groups`` are the prefix groups where they are not those of the trace.
    """
    requests, chosen = [], []
    for row in range(len(trace)):
        assert trace.arrival_s is not None
        arrival_s = float(trace.arrival_s[row])
        now_s = arrival_s + replicas[0].tables.request_s
        for replica in replicas:
            replica.advance(now_s)
        prompt, group = int(trace.prompt_tokens[row]), int(trace.prefix_group[row])
        shared = int(trace.prefix_tokens[row]) if group >= 0 else 0
        own = group if groups is None else tuple(groups[row])
        tokens = [
            ("group", own, k) if k < shared else ("prompt", row, k)
            for k in range(prompt)
        ]
        request = Request(row, arrival_s, prompt, int(trace.output_tokens[row]), tokens)
        request.slo = RequestSlo(ttft_s=np.inf, tbt_s=np.inf)
        counts = [replica.outstanding for replica in replicas]
        r = counts.index(min(counts))
        replicas[r].arrive(request, now_s)
        requests.append(request)
        chosen.append(r)
    for replica in replicas:
        replica.advance(np.inf)
    return Verdict(requests, chosen, replicas)
