"""Replicas of a pool that come, close and die while it serves."""

from capplan.deployment.changes import Change
from capplan.simulator.fleet.lifecycle import Lifecycle
from capplan.simulator.fleet.motion import Beat, Index, Motion, grown
from capplan.simulator.fleet.rows import (
    is_idle,
    renew,
    rows_of,
    with_more_replicas,
    with_order,
)
from capplan.simulator.fleet.serving_pool import ServingPool
from capplan.simulator.memory.hash_ring import place_points
from capplan.simulator.memory.memory_rows import forget_replica
from capplan.simulator.state import NONE, Count


class Replicas:
    """Opens and closes the replicas of a pool, and notes their lives.

    It owns what is in motion between them, whose arrays have a row for each.
    """

    def __init__(
        self, pool: ServingPool, motion: Motion, changes: tuple[Change, ...]
    ) -> None:
        self._pool = pool
        self.motion = motion
        self.lives = Lifecycle(pool.replica_count, changes)
        self._came = pool.replica_count

    @property
    def held(self) -> int:
        """Requests that wait since no replica is open."""
        slot = self.motion.counts[Index.HELD_FIRST]
        count = 0
        while slot != NONE:
            count += 1
            slot = self._pool.state.requests[slot].next_in_list
        return count

    def make_room(self) -> None:
        """Let as many requests be in motion as the pool has slots for."""
        slots, replicas = len(self._pool.state.requests), len(self.motion.moves)
        if slots + 2 * replicas > len(self.motion.events):
            self.motion = grown(self.motion, slots, replicas)

    def open(self, ordered_s: float, now_s: float) -> None:
        """Let a new, empty replica take requests from now on."""
        self.end_drained()
        pool, lives, r = self._pool, self.lives, self.lives.open
        idle = [row for row in range(r, pool.replica_count) if is_idle(pool.state, row)]
        if not idle:
            count = pool.replica_count
            pool.state = with_more_replicas(pool.state, 1)
            slots = len(pool.state.requests)
            self.motion = grown(self.motion, slots, count + 1)
            lives.rows.append(None)
            idle = [count]
        if idle[0] != r:  # those that still drain stand behind
            order = list(range(pool.replica_count))
            order[r], order[idle[0]] = order[idle[0]], order[r]
            self._reorder(order)
        self._renew(r, now_s)
        pool.state.replicas[r].number = self._came
        self._came += 1
        if pool.state.counts[Count.POINTS]:
            place_points(pool.state)
        lives.begin(r, ordered_s, now_s)
        lives.open += 1
        pool.state.counts[Count.OPEN] = lives.open

    def close(self, now_s: float, kind: str, count: int) -> None:
        """Let the newest replicas take no more requests; to renew them, the oldest."""
        pool, lives = self._pool, self.lives
        if kind == "renew":
            order = [*range(count, lives.open), *range(count)]
            self._reorder([*order, *range(lives.open, pool.replica_count)])
        lives.open -= count
        pool.state.counts[Count.OPEN] = lives.open
        for r in range(lives.open, lives.open + count):
            lives.close(r, now_s)
            forget_replica(pool.state, r)
            if kind == "fail":
                from capplan.simulator.fleet.failing import fail

                fail(pool.state, self.motion, r, now_s)
                self._take_back(r, now_s)
                self._renew(r, now_s)
                lives.end(r, now_s)

    def _take_back(self, r: int, now_s: float) -> None:
        """Take back from the bins what a replica was to do after it died.

        Of a group what its ranks were to do, between dummies or before them.
        """
        state, bins = self._pool.state, self._pool.bins
        if state.engine[0].ranks == 0:
            bins.take_back(now_s, state.replicas[r].gpu_s)
            return
        for row in rows_of(state, [r]):
            rank = state.ranks[row]
            is_last = rank.dummy_s >= rank.decoded_s
            begins_s = now_s if is_last else max(now_s, rank.dummy_s)
            bins.take_back(begins_s, rank.decoded_s)

    def end_drained(self) -> None:
        """Let closed replicas be gone that have finished what they had."""
        state = self._pool.state
        for r in self.lives.draining():
            if is_idle(state, r):
                self.lives.end(r, float(state.replicas[r].now_s))

    def _renew(self, r: int, now_s: float) -> None:
        renew(self._pool.state, r, now_s)
        self.motion.beats[[Beat.TOKENS, Beat.REQUESTS], r] = 0.0

    def _reorder(self, order: list[int]) -> None:
        pool = self._pool
        pool.state = with_order(pool.state, self.motion, order)
        self.lives.reorder(order)
