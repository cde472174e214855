"""Changes of a fleet that are known beforehand: replicas come, leave or die."""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from capplan.errors import InputError
from capplan.units import parse_duration_s

Kind = Literal["up", "close", "renew", "fail"]
"""What happens to replicas: they take requests from then on; the newest take no more
and finish what they have; the oldest do so; the newest die with all they have."""

MONTH_S = 730 * 3600.0
"""A month, as it is billed. [s]"""


@dataclass(frozen=True)
class Change:
    """Some replicas come up, close or die at a moment."""

    at_s: float  # in the time of the trace [s]
    kind: Kind
    count: int = 1
    ordered_s: float | None = None  # of those that come up; None: at that moment [s]
    of: int = 0  # only where so many are there

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(
                f"a change of {self.count} replicas at {self.at_s:g} s; expected >= 1"
            )


@dataclass(frozen=True)
class Absence:
    """Some replicas are away for a time, or all replicas of some nodes."""

    count: int
    since_s: float | None  # after the first arrival; None: the busiest such time [s]
    duration_s: float
    is_of_nodes: bool = False

    def begins_s(self, arrival_s: np.ndarray) -> float:
        """Return when it begins, in the time of the arrivals. [s]"""
        if self.since_s is not None:
            return float(arrival_s[0] + self.since_s)
        return busiest_s(arrival_s, self.duration_s)


def busiest_s(arrival_s: np.ndarray, duration_s: float) -> float:
    """Return the arrival after which most arrive within a duration. [s]

    Examples
    --------
    >>> busiest_s(np.array([0.0, 5.0, 6.0, 6.5, 20.0]), 2.0)
    5.0
    """
    return float(arrival_s[int(np.argmax(arrivals_within(arrival_s, duration_s)))])


def arrivals_within(arrival_s: np.ndarray, duration_s: float) -> np.ndarray:
    """Return how many arrive from each arrival on within a duration."""
    within = np.searchsorted(arrival_s, arrival_s + duration_s)
    return within - np.arange(len(arrival_s))


def parse_absence(text: str) -> Absence:
    """Return the absence of ``N@peak:DURATION`` or ``N@TIME:DURATION``.

    ``Nnode@`` takes nodes. Without ``N@``, one replica; without a time, at the peak.
    """
    expected = (
        "expected N@peak:TIME as in 1@peak:4h, or N@TIME:TIME as in 2@8h:30min; of "
        "nodes 1node@peak:4h"
    )
    found = re.fullmatch(r"(?:(\d+)(nodes?)?@)?(?:([^:@]+):)?([^:@]+)", text.strip())
    if found is None:
        raise InputError(f"{text!r}: {expected}")
    count, nodes, when, lasting = found.groups()
    try:
        since_s = None if when in (None, "peak") else parse_duration_s(when)
        duration_s = parse_duration_s(lasting)
    except InputError as error:
        raise InputError(f"{text!r}: {error}; {expected}") from None
    if (since_s or 0) < 0 or not duration_s > 0:
        raise InputError(f"{text!r}: its times are not positive; {expected}")
    if count is not None and int(count) < 1:
        raise InputError(f"{text!r} takes no replica; {expected}")
    return Absence(int(count or 1), since_s, duration_s, bool(nodes))


def parse_loss_per_month(text: str) -> float:
    """Return the share of ``15%/month``: interruptions of a replica in a month."""
    found = re.fullmatch(r"([0-9.]+) ?%/month", text.strip())
    share = float(found[1]) / 100 if found and found[1].count(".") < 2 else -1.0
    if not 0 < share <= 100:
        raise InputError(f"{text!r}: expected a share a month, as in 15%/month")
    return share


def outage(
    absence: Absence, arrival_s: np.ndarray, *, comes_back: bool
) -> tuple[Change, ...]:
    """Return that the newest replicas die and, where so, others come later."""
    at_s = absence.begins_s(arrival_s)
    died = Change(at_s, "fail", absence.count)
    if not comes_back:
        return (died,)
    return died, Change(at_s + absence.duration_s, "up", absence.count)


def rolling_update(
    absence: Absence, arrival_s: np.ndarray, replica_count: int
) -> tuple[Change, ...]:
    """Return that all replicas close and come back new, some at a time.

    The first of them close when the absence begins, each next ones when those are back.
    """
    at_s, changes = absence.begins_s(arrival_s), []
    for first in range(0, replica_count, absence.count):
        count = min(absence.count, replica_count - first)
        back_s = at_s + absence.duration_s
        changes += [Change(at_s, "renew", count), Change(back_s, "up", count)]
        at_s = back_s
    return tuple(changes)


def interruptions(
    loss_per_month: float,
    arrival_s: np.ndarray,
    replica_count: int,
    back_after_s: float | None,
    rng: np.random.Generator,
) -> tuple[Change, ...]:
    """Return interruptions of single replicas, a Poisson process of each that is there.

    Another one comes after ``back_after_s``. Where that is None, others decide how many
    there are, up to ``replica_count``.
    """
    changes: list[Change] = []
    now_s, end_s = float(arrival_s[0]), float(arrival_s[-1])
    back_s: list[float] = []
    while True:
        now_s += rng.standard_exponential() * MONTH_S / (loss_per_month * replica_count)
        which = int(rng.integers(replica_count)) + 1
        if now_s >= end_s:
            return tuple(changes)
        if back_after_s is None:
            changes.append(Change(now_s, "fail", of=which))
            continue
        back_s = [moment_s for moment_s in back_s if moment_s > now_s]
        if which <= replica_count - len(back_s):
            back_s.append(now_s + back_after_s)
            changes.append(Change(now_s, "fail"))
            changes.append(Change(back_s[-1], "up", ordered_s=now_s))
