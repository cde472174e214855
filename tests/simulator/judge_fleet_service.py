"""A fleet in motion for the judge: who asks, who is routed where, what changes."""

import math
from collections import Counter

import judge_hand_off
import numpy as np
from judge_aladdin import Dispatcher
from judge_fleet_clock import Clock, Order, Tick
from judge_fleet_pool import FleetPool
from judge_fleet_replica import FleetReplica, FleetRequest
from judge_llumnix import Move, rebalance, source_dies, target_dies
from judge_request import request_of
from judge_routers import discharge

from capplan.workload.slo import RequestSlo


class Fleet:
    """All replicas, and what happens between them."""

    def __init__(
        self, trace, pools, events, dispatcher, rebalancer, hand_off, seed, slo
    ) -> None:
        self.trace, self.hand_off = trace, hand_off
        self.slo = slo or RequestSlo(ttft_s=np.inf, tpot_s=np.inf)
        draws = np.random.default_rng(seed).random((len(trace), 2))
        self.pools = [FleetPool(pool, seed, self.slo, draws) for pool in pools]
        self.request_s = pools[0][0].request_s
        self.decode_request_s = pools[-1][0].request_s  # of its API server
        self.requests: list[FleetRequest] = []
        self.held: list[FleetRequest] = []  # no replica is open
        self.failures = 0
        self.moves: list[Move] = []
        self.thoughts = 0  # begun by users
        self.counted: Counter = Counter()
        self.clock = Clock(lambda: [r for pool in self.pools for r in pool.replicas])
        self.dispatcher = None
        if dispatcher:
            self.dispatcher = Dispatcher(dispatcher, trace, self.slo)
            self.clock.ticks.append(Tick(dispatcher.beat_s, self.beat))
            self.clock.waits = lambda: bool(self.held and self.pools[0].open)
        if rebalancer:
            self.clock.ticks.append(
                Tick(rebalancer.period_s, lambda t: rebalance(self, rebalancer, t))
            )
        for pool in self.pools:
            if pool.looks_every_s:
                self.clock.ticks.append(Tick(pool.looks_every_s, pool.look))
        if hand_off:
            judge_hand_off.prepare(hand_off, self.pools[1].replicas)
        act = {"up": self.come_up, "close": self.close, "fail": self.fail}
        for event in events:
            self.clock.at(
                event.time_s,
                Order.FLEET,
                (),
                lambda t, event=event: act[event.kind](event.count, t),
            )
        if trace.users:
            for _ in range(trace.users):
                self.think(0.0)
        else:
            for row in range(len(trace)):
                self.ask(float(trace.arrival_s[row]), row)

    def run(self) -> None:
        """Serve all requests."""
        self.clock.run(self.after_work)
        if not all(self.final(request).done for request in self.requests):
            raise RuntimeError("nothing can ever be scheduled")

    def think(self, from_s: float) -> None:
        """Let a user think and ask, if there is something left to ask."""
        if self.thoughts == len(self.trace):
            return
        asked_s = from_s + float(self.trace.think_s[self.thoughts])
        self.thoughts += 1
        if asked_s < self.trace.asked_until_s:
            self.ask(asked_s, self.thoughts)

    def ask(self, asked_s: float, place: int) -> None:
        self.clock.at(
            asked_s + self.request_s,
            Order.ARRIVAL,
            (2, place),
            lambda t: self.route(self.request(asked_s), t),
        )

    def request(self, asked_s: float) -> FleetRequest:
        """Return the next request of the trace."""
        row = len(self.requests)
        request = request_of(self.trace, row, self.slo, FleetRequest, asked_s)
        self.requests.append(request)
        return request

    def route(self, request: FleetRequest, now_s: float) -> None:
        if self.hand_off:
            judge_hand_off.arrive(self, self.hand_off, request, now_s)
        elif self.pools[0].open and not self.dispatcher:
            self.pools[0].choose(request, now_s).arrive(request, now_s)
        else:
            self.held.append(request)
            self.counted["held"] += not self.pools[0].open

    def beat(self, now_s: float) -> None:
        """Let the dispatcher place those that are held."""
        if self.dispatcher and self.pools[0].open:
            chosen = self.dispatcher.place(self.held, self.pools[0].open, now_s)
            for request, replica in zip(self.held, chosen, strict=True):
                replica.arrive(request, now_s)
            self.counted["placed together"] += len(self.held) > 1
            self.held = []
            self.counted["re-balanced"] = self.dispatcher.moved

    def after_work(self, replica: FleetReplica) -> None:
        """See what a replica's own work brought: hand-offs, answers, copies."""
        for done in replica.finished:
            request = self.requests[done.row]
            if self.dispatcher:
                self.dispatcher.finished(replica, done)
            if done.is_handed_over:
                request.prefilled_s = done.token_s[-1]
                self.clock.at(
                    request.prefilled_s + self.hand_off.hop_s + self.decode_request_s,
                    Order.HAND_OFF,
                    (replica.index,),
                    lambda t, request=request: judge_hand_off.hand_over(
                        self, self.hand_off, request, t
                    ),
                )
            elif self.trace.users:
                self.think(done.token_s[-1])
        for copy in replica.copies:
            first = copy.prefill
            self.clock.at(
                copy.ready_s,
                Order.HAND_OFF,
                (first.home.index,),
                lambda t, first=first: self.release(first, t),
            )
        replica.finished, replica.copies = [], []

    def release(self, first: FleetRequest, now_s: float) -> None:
        """Let the prefill replica free blocks that were read."""
        home = first.home
        asleep = home.waits_until_s is not None and home.has_work
        self.counted["releases to a blocked prefill replica"] += asleep
        if self.hand_off.report == "end":
            home.release(first, now_s)
        else:  # its workers find it and tell
            home.read.append((first, home.calls + 1 + home.depth))
            if home.next_s == math.inf:
                home.touch(now_s)
                home.release_read()

    def come_up(self, count: int, now_s: float) -> None:
        self.pools[0].bring_up(count)
        if self.dispatcher:
            return
        for place, request in enumerate(self.held):
            self.reach(request, (0, place), now_s)
        self.held = []

    def reach(self, request: FleetRequest, within: tuple, now_s: float) -> None:
        """Let a request reach the router again, before those that arrive now."""
        self.clock.at(now_s, Order.ARRIVAL, within, lambda t: self.route(request, t))

    def close(self, count: int, now_s: float) -> list[FleetReplica]:
        """Take the last replicas from the router; return them."""
        everyone = self.pools[0].open
        kept = max(0, len(everyone) - count)
        gone = everyone[kept:]
        del everyone[kept:]
        return gone

    def fail(self, count: int, now_s: float) -> None:
        """Lose the last replicas; their requests reach the router again."""
        self.failures += 1
        dying = self.close(count, now_s)
        left = {dead: source_dies(self.moves, dead, now_s) for dead in dying}
        for dead in dying:
            self.counted.update(target_dies(self.moves, dead, now_s))
            dead.is_dead = True
            ran = [*dead.running, *left[dead]]
            for request in [*ran, *dead.waiting]:
                request.preemptions += request in ran
                request.forget()
                discharge(dead.sent, request)
                self.reach(request, (1, self.failures, dead.index, request.row), now_s)
                self.counted["routed again"] += 1

    def final(self, request: FleetRequest) -> FleetRequest:
        """Return the one that finishes: on the prefill replica if it never left."""
        first = request.prefill
        return first if first and not first.is_handed_over else request
