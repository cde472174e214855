"""The clock of a fleet in motion: what happens when, and in which order.

It does the earliest thing, all things of one instant in their order (``Order``), and
the replicas' own work last, one result or one scheduling at a time.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from enum import IntEnum

from judge_fleet_replica import FleetReplica


class Order(IntEnum):
    """What comes first at one instant; ticks come after these, own work last."""

    FLEET = 0
    ARRIVAL = 1
    HAND_OFF = 2
    STAGE_END = 3
    JOIN = 4


class Tick:
    """Something at every multiple of a period."""

    def __init__(self, period_s: float, act: Callable[[float], None]) -> None:
        self.period_s, self.act, self.count = period_s, act, 0

    @property
    def next_s(self) -> float:
        return self.count * self.period_s


class Clock:
    """What is known to happen, and what the replicas do."""

    def __init__(self, replicas: Callable[[], Sequence[FleetReplica]]) -> None:
        self.replicas = replicas  # those there are by now, in order of their work
        self.heap: list[tuple] = []
        self.sequence = itertools.count()
        self.ticks: list[Tick] = []
        self.waits: Callable[[], bool] = lambda: False  # something waits for a tick

    def at(self, time_s: float, order: int, within: tuple, act: Callable) -> None:
        """Let something happen; ``within`` orders things of one kind at one time."""
        item = (time_s, order, within, next(self.sequence), act)
        heapq.heappush(self.heap, item)

    def run(self, after: Callable[[FleetReplica], None]) -> None:
        """Do the earliest thing, and all of that instant, until nothing is left.

        ``after`` sees what own work of a replica brought.
        """
        while (now_s := self.next_s()) < math.inf:
            self.deliver(now_s)
            for replica in self.replicas():
                while replica.next_s <= now_s:
                    replica.work(now_s)
                    after(replica)
                    self.deliver(now_s)

    def next_s(self) -> float:
        """Time of the earliest thing; ticks alone are none."""
        known_s = [self.heap[0][0]] if self.heap else []
        own_s = [replica.next_s for replica in self.replicas()]
        first_s = min([*known_s, *own_s], default=math.inf)
        if first_s == math.inf and not self.waits():
            return first_s
        return min([first_s, *[tick.next_s for tick in self.ticks]])

    def deliver(self, now_s: float) -> None:
        """Let happen what is due, in order; ticks last."""
        while True:
            due = [tick for tick in self.ticks if tick.next_s <= now_s]
            if self.heap and self.heap[0][0] <= now_s:
                heapq.heappop(self.heap)[-1](now_s)
            elif due:
                due[0].act(now_s)
                due[0].count += 1
            else:
                return
