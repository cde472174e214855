"""Prefill and decode in pools of their own: a driver of two pools.

A prompt is a request of one token on a prefill replica; its blocks are held there until
a decode replica has read them. The next known event, a request, a hand-off or a
release, is delivered if no replica can make an earlier one: a prefill replica at its
next boundary, a decode replica at its next one while a request waits there for blocks.
"""

import heapq
import math

from tests.simulator.drivers.doors import Pool, Request

ARRIVAL, HAND_OFF, RELEASE = range(3)


def serve(prefill, decode, requests):
    """Return each request's (handed_s, first_token_s, finish_s). [s]

    ``requests`` are (arrival_s, prompt tokens, output tokens).
    """
    fleet = _Fleet(prefill, decode, requests)
    while fleet.has_work():
        fleet.go_on()
    return [tuple(row) for row in fleet.times]


class _Fleet:
    def __init__(self, prefill, decode, requests):
        self.requests = requests
        self.times = [[math.nan] * 3 for _ in requests]
        self.prefill, self.decode = Pool(prefill), Pool(decode)
        # The heap's key: time, kind, source replica, row.
        self.events = [(r[0], ARRIVAL, 0, row) for row, r in enumerate(requests)]
        heapq.heapify(self.events)
        self.held = [0] * len(self.prefill.replicas)
        self.blocked = [False] * len(self.prefill.replicas)
        self.source = {}  # slot of the decode pool: prefill replica and blocks

    def has_work(self):
        pools = (self.prefill, self.decode)
        return self.events or any(p.replicas["outstanding"].sum() for p in pools)

    def go_on(self):
        """Deliver the next event, or step the replica that may make an earlier one."""
        known_s = self.events[0][0] if self.events else math.inf
        wakes = [
            (self._wake_s(pool, r), pool is self.decode, r) for pool, r in self._all()
        ]
        wake_s, is_decode, r = min(wakes)
        if known_s <= wake_s < math.inf or (wake_s == math.inf and self.events):
            self._deliver(*heapq.heappop(self.events))
            return
        if wake_s == math.inf:  # nobody waits for anybody: the rest decodes
            is_decode, r = True, int(self.decode.replicas["outstanding"].argmax())
        others_s = min(
            (w[0] for w in wakes if w[1:] != (is_decode, r)), default=math.inf
        )
        self._step(
            self.decode if is_decode else self.prefill, r, min(known_s, others_s)
        )

    def _all(self):
        return [
            (p, r) for p in (self.prefill, self.decode) for r in range(len(p.replicas))
        ]

    def _wake_s(self, pool, r):
        if pool is self.prefill:
            return math.inf if self.blocked[r] else pool.next_s(r)
        waits = any(
            pool.state.request_memory[slot, 0] == 0.0
            for slot in self.source
            if pool.state.requests[slot].replica == r
        )
        return pool.next_s(r) if waits else math.inf

    def _deliver(self, now_s, kind, source, row):
        prompt, output = self.requests[row][1:]
        if kind == ARRIVAL:
            self._bring_up(self.prefill, now_s)
            self.prefill.arrive(Request(row, prompt, 1), now_s)
        elif kind == HAND_OFF:
            self._bring_up(self.decode, now_s)
            slot = self.decode.arrive(Request(row, prompt, output), now_s)
            self.source[slot] = source, self._blocks(prompt)
        else:
            blocks = self._blocks(prompt)
            replica = self.prefill.replicas[source]
            replica.free_blocks += blocks
            self.held[source] -= blocks
            if self.blocked[source]:
                replica.now_s = max(replica.now_s, now_s)
                self.blocked[source] = False

    def _bring_up(self, pool, now_s):
        for r in range(len(pool.replicas)):
            while pool.next_s(r) < now_s and not (
                pool is self.prefill and self.blocked[r]
            ):
                self._step(pool, r, now_s)

    def _step(self, pool, r, until_s):
        went, done = pool.step(r, until_s)
        if not went:  # blocks are held for others: it waits for a release
            assert pool is self.prefill
            assert self.held[r] > 0
            self.blocked[r] = True
        for result in done:
            row = int(result["row"])
            if pool is self.decode:
                self.times[row][1:] = result["first_token_s"], result["finish_s"]
                continue
            blocks = self._blocks(self.requests[row][1])
            pool.replicas[r].free_blocks -= blocks  # held until they have been read
            self.held[r] += blocks
            self.times[row][0] = float(result["finish_s"])
            heapq.heappush(self.events, (float(result["finish_s"]), HAND_OFF, r, row))
        if pool is self.decode:
            self._release_read()

    def _release_read(self):
        """Note when the blocks of requests that are being read are released."""
        memory, requests = self.decode.state.request_memory, self.decode.state.requests
        for slot in [slot for slot in self.source if memory[slot, 0] > 0.0]:
            source, _ = self.source.pop(slot)
            event = (float(memory[slot, 0]), RELEASE, source, int(requests[slot].row))
            heapq.heappush(self.events, event)

    def _blocks(self, tokens):
        return -(-tokens // int(self.prefill.state.engine[0].block_size))
