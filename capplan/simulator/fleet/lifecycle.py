"""When replicas are ordered, take requests, close and are gone."""

import math
from dataclasses import astuple, dataclass, fields
from heapq import heapify, heappop, heappush

import numpy as np

from capplan.deployment.changes import Change
from capplan.errors import InputError


@dataclass
class Life:
    """A replica's time in a fleet."""

    ordered_s: float  # paid from then on [s]
    ready_s: float  # takes requests from then on [s]
    closed_s: float = math.inf  # takes none from then on; infinite: it does [s]
    gone_s: float = math.inf  # paid until then; infinite: it is there [s]


LIFE = np.dtype([(field.name, np.float64) for field in fields(Life)])


class Lifecycle:
    """Lives of the replicas of a pool, by their rows, and the changes to come.

    The open replicas are the first rows, the newest last; closed ones, which finish
    what they have, may stand anywhere behind.
    """

    def __init__(self, count: int, changes: tuple[Change, ...]) -> None:
        self.rows: list[Life | None] = [
            Life(-math.inf, -math.inf) for _ in range(count)
        ]
        self.open = count
        self._past: list[Life] = []
        self._changes: list[tuple[float, int, Change]] = []
        self._noted = 0
        self.starting = 0  # replicas ordered that are not up yet
        for change in sorted(changes, key=lambda change: change.at_s):
            self.note(change)

    def note(self, change: Change) -> None:
        """Note a change to come; of one moment the first noted comes first."""
        heappush(self._changes, (change.at_s, self._noted, change))
        self._noted += 1
        if change.kind == "up":
            self.starting += change.count

    @property
    def next_s(self) -> float:
        """When the next change comes; infinite when none does. [s]"""
        return self._changes[0][0] if self._changes else math.inf

    def take(self) -> Change:
        """Return the next change; it is done."""
        change = heappop(self._changes)[2]
        if change.kind == "up":
            self.starting -= change.count
        elif change.of <= self.open < change.count:
            raise InputError(
                f"{change.count} replicas leave at {change.at_s:g} s; expected at most "
                f"the {self.open} that are there"
            )
        return change

    def cancel(self, count: int, now_s: float) -> int:
        """Take back the newest orders; return how many there were."""
        left = count
        for entry in sorted(self._changes, reverse=True):
            change = entry[2]
            if change.kind != "up" or left == 0:
                continue
            taken = min(left, change.count)
            left -= taken
            self._changes.remove(entry)
            self.starting -= change.count
            ordered_s = change.at_s if change.ordered_s is None else change.ordered_s
            for _ in range(taken):
                self._past.append(Life(ordered_s, math.inf, math.inf, now_s))
            if change.count > taken:
                kept = Change(change.at_s, "up", change.count - taken, ordered_s)
                self.note(kept)
        heapify(self._changes)
        return count - left

    def begin(self, r: int, ordered_s: float, ready_s: float) -> None:
        """Let the replica of a row live."""
        self.end(r, ready_s)
        self.rows[r] = Life(ordered_s, ready_s)

    def close(self, r: int, now_s: float) -> None:
        """Let the replica of a row take no more requests."""
        life = self.rows[r]
        assert life is not None
        life.closed_s = now_s

    def end(self, r: int, now_s: float) -> None:
        """Let the replica of a row be gone, where there is one."""
        life = self.rows[r]
        if life is not None:
            life.gone_s = max(now_s, life.closed_s)
            self._past.append(life)
            self.rows[r] = None

    def draining(self) -> list[int]:
        """Return the rows of replicas that finish what they have."""
        return [r for r in range(self.open, len(self.rows)) if self.rows[r] is not None]

    def reorder(self, order: list[int]) -> None:
        """Put the rows in another order; ``order`` has old rows."""
        self.rows = [self.rows[r] for r in order]

    def lives(self) -> np.ndarray:
        """Return all lives, records of dtype LIFE."""
        alive = [life for life in self.rows if life is not None]
        return np.array([astuple(life) for life in (*self._past, *alive)], LIFE)
