"""A replica of a fleet in motion for the judge: it does one thing at a time.

It is the ``Replica`` of ``judge.py``, whose own work a clock outside calls for,
boundary by boundary. A replica that can run nothing, and has no iteration in flight,
sleeps until something reaches it or until a time that it knows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from judge import Replica, Request
from judge_best_fit import is_prefilling, known
from judge_request import Part
from judge_v1 import Batch


@dataclass(eq=False)
class FleetRequest(Request):
    """A request that may change its replica."""

    migrations: int = 0
    joined_with: int = -1  # tokens of KV when it joined its replica by a migration
    prefill: "FleetRequest | None" = None  # the same request on its prefill replica
    is_handed_over: bool = False  # it is, and will be read: its blocks stay held
    to_copy: bool = False  # its KV has to be copied to the decode replica
    is_copied: bool = False  # its KV was copied here, nothing is computed again
    home: Any = None  # the replica where it is or was last
    prefilled_s: float = math.nan
    handed_s: float = math.nan
    ready_s: float = math.nan  # its copy is there
    found_by: int = -1  # call of the scheduler from which that is known
    turn: int = 0  # when it came to its decode replica

    def forget(self) -> None:
        """Lose the KV and the results in flight; delivered tokens stay."""
        self.begin_again()
        self.drawn = self.given
        self.in_flight = self.stale = self.findable = 0
        self.blocks, self.bounded, self.states = [], [], []


class FleetReplica(Replica):
    """One engine of a fleet."""

    def __init__(self, tables, engine, scheduler, index, seed, slo=None) -> None:
        super().__init__(tables, engine, scheduler, index, seed, slo)
        self.schedule_next: Callable | None = None  # of the decodes of a hand-off
        self.is_dead = False
        self.waits_until_s: float | None = None  # asleep
        self.is_moving = False  # a request is on its way to it or from it
        self.coming: list[FleetRequest] = []  # on their way here, with a seat taken
        self.leaving: list[FleetRequest] = []  # on their way elsewhere, run no more
        self.promised: list[FleetRequest] = []  # will be handed to it
        self.holding: list[FleetRequest] = []  # have blocks for their copy
        self.held: list[FleetRequest] = []  # finished here, blocks not read yet
        self.finished: list[FleetRequest] = []  # not seen by the fleet yet
        self.copies: list[FleetRequest] = []  # begun, not seen by the fleet yet
        self.link_s = 0.0  # its link is free from then on
        self.copies_refused: set[FleetRequest] = set()  # at least once, for blocks
        self.preempted = 0
        self.calls = 0  # of the scheduler
        self.turns = 0  # requests that have come
        self.read: list[tuple[FleetRequest, int]] = []  # told at so many calls

    @property
    def unfinished(self) -> list[Request]:
        """What a router sees of it."""
        everyone = {*super().unfinished, *self.holding, *self.promised, *self.leaving}
        return [request for request in everyone if not request.done]

    @property
    def has_work(self) -> bool:
        # One that leaves has its last token here in flight, as one that finishes.
        leaves = bool(self.leaving and self.in_flight)
        return bool(super().unfinished or self.holding or leaves)

    @property
    def seats_left(self) -> int:
        return super().seats_left - len(self.coming)

    @property
    def running_count(self) -> int:
        return len(self.running) + len(self.coming)

    @property
    def next_s(self) -> float:
        """Time of its next own work."""
        if self.is_dead:
            return math.inf
        if len(self.in_flight) == self.depth:
            return self.in_flight[0].end_s
        if self.waits_until_s is not None:
            return self.waits_until_s
        if self.has_work:
            return self.now_s
        return self.in_flight[0].end_s if self.in_flight else math.inf

    @property
    def collects_next(self) -> bool:
        full = len(self.in_flight) == self.depth
        return full or (self.waits_until_s is None and not self.has_work)

    def work(self, now_s: float) -> None:
        """Do one thing: collect a result or schedule an iteration."""
        if self.collects_next:
            self.collect(self.in_flight.popleft())
        else:
            self.schedule(now_s)
        if self.next_s == math.inf:
            self.release_read()

    def schedule(self, now_s: float) -> None:
        """Start an iteration, or sleep."""
        self.touch(now_s)
        self.calls += 1
        while self.read and self.read[0][1] <= self.calls:
            self.release(self.read.pop(0)[0], now_s)
        parts, preempted = self.choose()
        if self.scheduler.startswith("vllm-v1"):
            assert self.seats_left >= 0
        is_busy = any(batch.parts for batch in self.in_flight)
        if parts:
            parts = self.started(parts)
            self.in_flight.append(Batch(parts, self.run(parts)))
        elif self.retry_s > self.now_s:
            self.waits_until_s = self.retry_s
        elif preempted or is_busy:
            self.in_flight.append(Batch([], self.now_s))
        else:
            later = [r.ready_s for r in self.holding if r.ready_s > self.now_s]
            self.waits_until_s = min(later, default=math.inf)

    def choose(self, throttled: bool = False) -> tuple[list, bool]:
        if self.schedule_next is None:
            return super().choose(throttled)
        self.begin()
        self.schedule_next(self)
        return self.parts, self.made_way

    def touch(self, now_s: float) -> None:
        """Wake up if asleep; the clock of a replica without work moves.

        What it computes in vain is waited for.
        """
        while self.in_flight and not self.has_work:
            self.collect(self.in_flight.popleft())
        if self.waits_until_s is not None or not self.has_work:
            self.now_s = max(self.now_s, now_s)
        self.waits_until_s = None

    def arrive(self, request: FleetRequest, now_s: float) -> None:
        self.touch(now_s)
        request.home = self
        self.turns += 1
        request.turn = self.turns
        self.waiting.append(request)

    def order(self, request: FleetRequest) -> tuple:
        """Requests reach a decode replica in another order than they arrived."""
        if self.schedule_next is None:
            return super().order(request)
        return request.priority, request.turn

    def look(self, moment_s: float) -> None:
        free = len(self.pool.free) / (self.engine.kv_blocks - 1)
        self.seen = len(self.waiting) + len(self.holding), 1.0 - free

    def decodes(self, part: Part) -> bool:
        """Also the last prompt token of a copy, which is computed again."""
        request, last = part.request, part.request.prompt_count - 1
        again = request.is_copied and part.before == last and part.new == 1
        return again or super().decodes(part)

    def run_before_prompts(self, request: FleetRequest) -> None:
        """Let one that decodes run behind all others, but for an unfinished prompt."""
        last = [each for each in self.running if is_prefilling(self, each)]
        at = self.running.index(last[0]) if last else len(self.running)
        self.running.insert(at, request)

    def preempt(self, request: FleetRequest) -> None:
        super().preempt(request)
        request.is_copied = False
        self.preempted += 1

    def finish(self, request: FleetRequest) -> None:
        """Let a request go; its blocks stay held where another replica reads them."""
        if request.is_handed_over:
            (self.running if request in self.running else self.waiting).remove(request)
            self.held.append(request)
        else:
            super().finish(request)
        self.finished.append(request)

    def release_read(self) -> None:
        """Free all blocks that were read: it has nothing to do and hears at once."""
        while self.read:
            self.release(self.read.pop(0)[0], self.now_s)

    def release(self, request: FleetRequest, now_s: float) -> None:
        """Free the blocks that were read."""
        self.touch(now_s)
        self.held.remove(request)
        self.pool.take_back(request)


def is_decoding(replica: FleetReplica, request: FleetRequest) -> bool:
    """Return whether all but its newest token have KV, and the last is not scheduled.

    Tokens in flight count as known, and their KV as there. One that computes its tokens
    again does so to the last of them.
    """
    tokens = known(replica, request)
    return (
        request.known_at_admission <= request.held == tokens - 1
        and request.prompt_count < tokens < request.prompt_count + request.output_count
    )
