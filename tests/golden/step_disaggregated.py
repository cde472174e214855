"""Disaggregated serving, step by step: the rules that the recordings confirm.

Plain lists and one object per KV block, as in ``tests/simulator/judge.py``, whose
requests and block pool it uses.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from judge import Request
from judge_kv import Pool
from recorded_disaggregated import Iteration, Part, Recording


@dataclass(eq=False)
class Job(Request):
    """A request on one engine."""

    pulled: bool = False  # its prompt comes from a prefill engine
    ready_s: float = math.nan  # when it is there
    hits: int = 0  # blocks found when it was admitted, or made room for
    newest: int = 0  # number of the last iteration it was scheduled in
    copied: int = 0


@dataclass
class Batch:
    """One iteration in flight."""

    parts: list[tuple[Job, int, bool]]  # job, new tokens, gives a token
    end_s: float
    sched_s: float


@dataclass
class Engine:
    """One engine, prefill or decode."""

    name: str
    recording: Recording
    steps: list[Iteration]
    start_copy: Any
    hand_off: Any
    waiting: deque[Job] = field(default_factory=deque)
    holding: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    held: dict[int, Job] = field(default_factory=dict)
    untold: list[tuple[float, int]] = field(default_factory=list)
    told: dict[int, float] = field(default_factory=dict)
    in_flight: deque[Batch] = field(default_factory=deque)
    now_s: float = 0.0
    gpu_s: float = 0.0
    idle: bool = False
    scheduled: int = 0  # iterations
    collected: int = 0

    def __post_init__(self) -> None:
        self.engine = self.recording.engine
        self.pool = Pool(self.engine)
        self.depth = 2 if self.engine.async_scheduling else 1
        self.by_end = self.recording.given["report"] == "end"
        # A copy could overwrite what an iteration in flight still writes.
        self.defers = self.name[0] == "d" and self.depth == 2

    @property
    def work(self) -> bool:
        return bool(self.waiting or self.holding or self.running or self.held)

    @property
    def next_s(self) -> float:
        if len(self.in_flight) == self.depth:
            return max(self.now_s, self.in_flight[0].end_s)
        if self.work and not self.idle:
            return self.now_s
        return self.in_flight[0].end_s if self.in_flight else math.inf

    def step(self) -> None:
        """Schedule an iteration or collect one."""
        if len(self.in_flight) == self.depth or not self.work:
            self.collect(self.in_flight.popleft())
            return
        parts, preempted = self.schedule()
        told = len(self.told)
        end_s = self.run(parts, preempted) if parts else self.now_s
        self.in_flight.append(Batch(self.started(parts), end_s, self.now_s))
        if not any(batch.parts for batch in self.in_flight):
            while self.in_flight:
                self.collect(self.in_flight.popleft())
            self.idle = not preempted and len(self.told) == told

    def wake(self, moment_s: float) -> None:
        if self.next_s == math.inf:
            self.now_s = max(self.now_s, moment_s)
            self.idle = False
            self.hear(self.now_s)

    def hear(self, looked_s: float) -> None:
        """Hear of the copies that ended by the last look at them."""
        rows = [row for end_s, row in self.untold if end_s <= looked_s]
        self.untold = [one for one in self.untold if one[1] not in rows]
        for row in rows:
            self.told[row] = self.now_s
            if self.name[0] == "p":
                self.pool.take_back(self.held.pop(row))

    def schedule(self) -> tuple[list[tuple[Job, int, int]], int]:
        """Running requests, then those whose prompt is there, then the queue."""
        pool, seats = self.pool, self.engine.max_num_seqs
        budget = self.engine.max_num_batched_tokens
        parts, preempted = [], 0
        for job in list(self.running):
            if job not in self.running:
                break
            last_in_flight = job.placeholders and (
                job.computed + 2 - job.placeholders
                >= job.prompt_count + job.output_count
            )
            wanted = len(job.tokens) + job.placeholders - job.computed
            new = min(wanted, budget)
            if last_in_flight or new == 0:
                continue
            tokens = job.computed + new
            victims, found = self.make_room(job, tokens)
            preempted += victims
            if not found:
                break
            pool.give(job, tokens, [])
            pool.enter(job, min(tokens, len(job.tokens)))
            parts.append((job, job.computed, new))
            budget -= new
        if preempted:
            return parts, preempted

        for job in list(self.holding):
            if budget == 0 or len(self.running) == seats:
                break
            if job.row not in self.told:
                continue
            self.holding.remove(job)
            pool.enter(job, job.prompt_count)
            self.running.append(job)
            parts.append((job, job.prompt_count - 1, 1))
            budget -= 1
        aside = []
        while self.waiting and budget and len(self.running) < seats:
            job = self.waiting[0]
            if job.stale:
                aside.append(self.waiting.popleft())
                continue
            pulls = job.pulled and not job.preemptions
            hits = pool.hits(job)
            everything = pool.missing(job, len(job.tokens), hits)
            if everything + (self.reserved() if pulls else 0) > len(pool.free):
                break
            self.waiting.popleft()
            start = len(hits) * self.engine.block_size
            if not job.preemptions:
                job.hits = len(hits)
            if pulls:
                pool.give(job, job.prompt_count, hits)
                job.copied = len(job.blocks) - len(hits)
                self.holding.append(job)
                self.start_copy(self, job)
                continue
            new = min(len(job.tokens) - start, budget)
            pool.give(job, start + new, hits)
            pool.enter(job, start + new)
            self.running.append(job)
            parts.append((job, start, new))
            budget -= new
        self.waiting.extendleft(reversed(aside))
        return parts, preempted

    def make_room(self, job: Job, tokens: int) -> tuple[int, bool]:
        """Preempt for a job; return how many, and whether it has room now.

        With a result in flight for the victim, nothing is preempted and those behind
        the job sit out too, but others are admitted.
        """
        victims = 0
        while self.pool.missing(job, tokens, []) > len(self.pool.free):
            victim = self.running[-1]
            if self.defers and victim.newest > self.collected:
                return victims, False
            self.preempt(self.running.pop())
            victims += 1
            if victim is job:
                return victims, False
        return victims, True

    def reserved(self) -> int:
        """Blocks that unfinished prompts still need for all they know."""
        return sum(
            self.pool.missing(job, len(job.tokens), [])
            for job in self.running
            if job.computed < len(job.tokens) + job.placeholders
        )

    def started(self, parts: list[tuple[Job, int, int]]) -> list[Any]:
        result = []
        self.scheduled += bool(parts)
        for job, before, new in parts:
            job.newest = self.scheduled
            job.computed = before + new
            job.in_flight += new
            gives = job.computed >= len(job.tokens) + job.placeholders
            job.placeholders += gives and self.engine.async_scheduling
            result.append((job, new, gives))
        return result

    def preempt(self, job: Job) -> None:
        self.pool.take_back(job)
        job.computed = job.placeholders = 0
        job.stale = job.in_flight
        job.preemptions += 1
        self.waiting.appendleft(job)

    def run(self, parts: list[tuple[Job, int, int]], preempted: int) -> float:
        """Write an iteration down and return its end. [s]"""
        contexts, chunks = [], []
        for job, before, new in parts:
            if job.scheduled_s is None:
                job.scheduled_s = self.now_s
            pulled = job.pulled and not job.preemptions
            if new == 1 and before >= job.prompt_count - pulled:
                contexts.append(before + 1)
            else:
                chunks.append((before, new))
        c0, ca, cq, cd, ce = (
            float(ms) / 1e3 for ms in self.recording.given["coef"].split(",")
        )
        new_tokens = sum(new for _, new in chunks)
        start_s = max(self.now_s, self.gpu_s)
        self.gpu_s = start_s + (
            c0
            + ca * new_tokens
            + cq * sum(new * (before + (new + 1) / 2) for before, new in chunks)
            + cd * len(contexts)
            + ce * sum(contexts)
        )
        self.steps.append(
            Iteration(
                self.name,
                self.now_s,
                start_s,
                self.gpu_s,
                len(chunks),
                new_tokens,
                len(contexts),
                sum(contexts),
                len(self.running),
                len(self.waiting),
                len(self.pool.free),
                preempted,
                len(self.holding),
                len(self.held),
                tuple(Part(job.row, before, new) for job, before, new in parts),
            )
        )
        return self.gpu_s

    def collect(self, batch: Batch) -> None:
        self.now_s = max(self.now_s, batch.end_s)
        self.collected += bool(batch.parts)
        for job, new, gives in batch.parts:
            job.in_flight -= new
            stale = job.stale > 0
            if stale:
                job.stale -= new
            if not gives:
                continue
            job.tokens.append(("output", job.row, len(job.tokens)))
            job.token_s.append(self.now_s)
            if not stale and self.engine.async_scheduling:
                job.placeholders -= 1
                self.pool.enter(job, job.computed - job.placeholders)
            if job.done:
                (self.running if job in self.running else self.waiting).remove(job)
                if self.name[0] == "p":
                    self.held[job.row] = job
                    self.hand_off(self, job)
                else:
                    self.pool.take_back(job)
        self.hear(self.now_s if self.by_end else batch.sched_s)


class Deployment:
    """All engines of a recording, run again by these rules."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.given = recording, recording.given
        self.now_s = 0.0
        self.made = 0
        self.steps: list[Iteration] = []
        self.copies: dict[int, dict[str, float]] = {}
        self.jobs: dict[str, dict[int, Job]] = {name: {} for name in recording.engines}
        self.engines = {
            name: Engine(
                name, recording, self.steps, self.start_copy, self.prompt_is_done
            )
            for name in recording.engines
        }
        self.free_s: dict[str, float] = {}
        self.events: list[tuple[float, int, str, int, int]] = []
        for row, request in enumerate(recording.requests):
            self.at(float(request["arrival_s"]), "1 arrival", "", row)

    def at(self, when_s: float, kind: str, source: str, row: int) -> None:
        self.made += 1
        heapq.heappush(self.events, (when_s, kind, source, self.made, row))

    def ends(self, row: int) -> tuple[str, str]:
        request = self.recording.requests[row]
        return (
            f"p{max(0, int(request['prefill']))}",
            f"d{max(0, int(request['decode']))}",
        )

    def receive(self, name: str, row: int, output: int, pulled: bool) -> None:
        trace = self.recording.trace
        group = int(trace.prefix_group[row])
        shared = int(trace.prefix_tokens[row]) if group >= 0 else 0
        prompt = int(trace.prompt_tokens[row])
        tokens = [
            ("group", group, k) if k < shared else ("prompt", row, k)
            for k in range(prompt)
        ]
        job = Job(row, self.now_s, prompt, output, tokens, pulled=pulled)
        self.jobs[name][row] = job
        self.engines[name].wake(self.now_s)
        self.engines[name].waiting.append(job)

    def prompt_is_done(self, engine: Engine, job: Job) -> None:
        when_s = engine.now_s + self.given["hop_s"]
        self.at(when_s, "2 handed", engine.name, job.row)

    def start_copy(self, engine: Engine | None, job: Job) -> None:
        self.copy(job.row, job.copied, engine.now_s)

    def copy(self, row: int, blocks: int, now_s: float) -> None:
        ends = self.ends(row)
        start_s = max(now_s, *(self.free_s.get(end, 0.0) for end in ends))
        ready_s = start_s + (self.given["handshake_s"] + blocks * self.given["block_s"])
        self.free_s |= dict.fromkeys(ends, ready_s)
        self.copies[row] = {
            "taken_s": now_s,
            "copy_s": start_s,
            "ready_s": ready_s,
            "copied_blocks": blocks,
        }
        self.at(ready_s, "2 read", ends[0], row)

    def happen(self, kind: str, row: int) -> None:
        request = self.recording.requests[row]
        source, sink = self.ends(row)
        output, remote = int(request["output_len"]), request["remote"] == "1"
        if kind == "1 arrival" and remote and source in self.engines:
            self.receive(source, row, 1, False)
        elif kind == "1 arrival":
            self.receive(sink, row, output, remote)
        elif kind == "2 handed" and sink in self.engines:
            self.receive(sink, row, output, True)
        elif kind == "2 handed":
            blocks = -(-int(request["prompt_len"]) // self.given["block_size"])
            self.copy(row, blocks, self.now_s)
        else:
            for name in (source, sink):
                if name in self.engines:
                    self.engines[name].untold.append((self.now_s, row))
                    self.engines[name].wake(self.now_s)

    def run(self) -> None:
        """Serve all requests."""
        while True:
            engine = min(self.engines.values(), key=lambda engine: engine.next_s)
            if self.events and self.events[0][0] <= engine.next_s:
                self.now_s, kind, _, _, row = heapq.heappop(self.events)
                self.happen(kind, row)
            elif engine.next_s < math.inf:
                engine.step()
            else:
                return

    def outcome(self, row: int) -> dict[str, float]:
        """Return a request's times and counts under the names of its recording."""
        found: dict[str, float] = dict(self.copies.get(row, {}))
        for name, engine in self.engines.items():
            job = self.jobs[name].get(row)
            if job is not None:
                own = {
                    "first_sched_s": job.scheduled_s,
                    "first_token_s": job.token_s[0],
                    "finish_s": job.token_s[-1],
                    "preemptions": job.preemptions,
                    "cached_tokens": job.hits * self.recording.engine.block_size,
                }
                if row in engine.told:
                    own["told_s"] = engine.told[row]
                prefix = "prefill_" if name[0] == "p" else ""
                found |= {prefix + key: value for key, value in own.items()}
        return found
