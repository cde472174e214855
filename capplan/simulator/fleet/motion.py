"""What happens between replicas: events whose time is known, requests on their way."""

import math
from typing import NamedTuple

import numpy as np
from numba import types

from capplan.simulator.by_pointer import by_pointer, pointer_to
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, STATE, State, records

HAND_OFF, READ, STAGE_END, JOIN = range(4)
"""Kinds of events; of one instant in this order, see README.md."""

EVENT = np.dtype(
    [
        ("time_s", np.float64),
        ("kind", np.int64),
        ("source", np.int64),  # replica that it comes from
        ("sequence", np.int64),  # in order of creation
        ("slot", np.int64),
    ]
)

MOVE = np.dtype(
    [
        ("slot", np.int64),  # of the request that is migrated; NONE: no migration
        ("destination", np.int64),
        ("admission", np.int64),  # another one where it was preempted in between
        ("row", np.int64),
        ("event", np.int64),  # sequence of its next one; what has another is over
        ("stage", np.int64),  # from 1
        ("known_tokens", np.int64),  # of the request, when it was last admitted
        ("last_token_s", np.float64),  # before those in flight when it left
        ("is_last", np.int64),  # 1: the request has left, its last blocks are copied
        ("sent_blocks", np.int64),  # taken at the destination
        ("began_s", np.float64),
        ("step", np.int64),  # iterations that the source had scheduled when it left
        ("left_s", np.float64),  # when it had its last token at the source
        ("source", np.int64),
        ("ended_s", np.float64),
        ("joined", np.int64),  # 1: it runs at the destination; 0: aborted
    ]
)
"""A migration, by its source while it goes on; those that ended stand in ``moved``."""

MOVED = 4096
"""Migrations that may end before they are taken from ``Motion.moved``."""


APART, ANSWERS = 1, 2
"""One pool hands over to another; users wait for answers, perhaps that too."""


@by_pointer
class Motion(NamedTuple):
    """What the driver knows of the time between replicas.

    Replicas are those of the first pool, then those of the second.
    """

    heap: np.ndarray  # int64, (events,): indices of ``events``, a heap, then free ones
    events: np.recarray  # EVENT, (events,)
    moves: np.recarray  # MOVE, (replicas of the first pool,)
    moved: np.recarray  # MOVE, (MOVED,)
    busy: np.ndarray  # int64, (replicas of the first pool,): 1: in a migration
    # int64, (replicas of the first pool, 3): source, destination, slot
    pairs: np.ndarray
    scratch: np.ndarray  # float64, (3, replicas of the first pool): of a rebalancer
    # int64, (3, replicas of the first pool): the first and the last prompt that has
    # been read and is not released, NONE: none; calls of the scheduler
    reading: np.ndarray
    wake_s: np.ndarray  # float64, (replicas,): before then nothing comes from it [s]
    beats: np.ndarray  # float64, (7, replicas of the first pool): see Beat
    placed: np.ndarray  # int64, (2, slots): requests of a beat, and their order
    past: np.ndarray  # float64, (2, n): past outputs in bins of prompts, and the mean
    # of each and those above it in its bin [tokens]
    past_ends: np.ndarray  # int64, (2, bins): longest prompt of each, end in ``past``
    settings: np.ndarray  # float64, of the rebalancer, then see Setting
    counts: np.ndarray  # int64, see Index


class _Index(NamedTuple):
    """Index of each counter in ``Motion.counts``; see ``state.Count``."""

    EVENTS: int = 0  # in the heap
    SEQUENCE: int = 1  # created so far
    MOVED: int = 2  # migrations that ended
    TICK: int = 3  # the next tick of the rebalancer, counted from 0
    HELD_FIRST: int = 4  # requests without a replica, in order: see Held
    HELD_LAST: int = 5
    BEAT: int = 6  # the next beat of the dispatcher, counted from 0
    NOTED: int = 7  # results of which the dispatcher knows
    GROUPED: int = 8  # replicas when it last placed requests


Index = _Index()


class _Beat(NamedTuple):
    """Row of ``Motion.beats``, which has a column for each replica; see _Count."""

    CREDIT: int = 0  # of each group, whose turn comes by it
    TOKENS: int = 1  # less than predicted, of requests finished since the last beat
    REQUESTS: int = 2  # and how many such requests, negative
    NORM: int = 3  # how full it is
    DISTANCE: int = 4  # of its error line, see rebalancing.py
    PER_TOKEN: int = 5
    PER_REQUEST: int = 6


Beat = _Beat()


class _Setting(NamedTuple):
    """Index of each setting of the driver in ``Motion.settings``; see _Index."""

    PERIOD_S: int = 0  # between two ticks of the rebalancer; 0: it has none
    HOP_S: int = 1  # from a prompt's last token to the queue of the decode replica
    HOP_TOKEN_S: int = 2  # and for each token of it
    COUPLES: int = 3  # APART or ANSWERS: replicas' work matters to others
    AT_ARRIVAL: int = 4  # 1: a hand-off chooses the decode replica at the arrival
    RECOMPUTES: int = 5  # 1: the first token is the decode replica's
    LAUNCHES: int = 6  # 1: replicas look for ended copies when an iteration starts
    BEAT_S: int = 7  # between two beats of the dispatcher; 0: there is none


_OWN_SETTINGS = 16
Setting = _Setting(*range(_OWN_SETTINGS, _OWN_SETTINGS + len(_Setting())))
DISPATCHER_SETTINGS = _OWN_SETTINGS + len(Setting)
"""Index of the dispatcher's first own setting."""
_MOST_DISPATCHER_SETTINGS = 8


def motion(slots: int, replicas: int, others: int = 0) -> Motion:
    """Return nothing in motion between replicas, and ``others`` of a second pool.

    Each of ``slots`` requests may have one event, each replica two.
    """
    events = slots + 2 * replicas
    moves = records(replicas, MOVE)
    moves["slot"] = NONE
    reading = np.zeros((3, replicas), np.int64)
    reading[:2] = NONE
    counts = np.zeros(len(Index), np.int64)
    counts[[Index.TICK, Index.BEAT, Index.HELD_FIRST, Index.HELD_LAST]] = NONE
    return Motion(
        heap=np.arange(events),
        events=records(events, EVENT),
        moves=moves,
        moved=records(MOVED, MOVE),
        busy=np.zeros(replicas, np.int64),
        pairs=np.zeros((replicas, 3), np.int64),
        scratch=np.zeros((3, replicas)),
        reading=reading,
        wake_s=np.full(replicas + others, np.inf),
        beats=np.zeros((len(Beat), replicas)),
        placed=np.zeros((2, slots), np.int64),
        past=np.zeros((2, 0)),
        past_ends=np.zeros((2, 1), np.int64),
        settings=np.zeros(DISPATCHER_SETTINGS + _MOST_DISPATCHER_SETTINGS),
        counts=counts,
    )


def grown(before: Motion, slots: int, replicas: int) -> Motion:
    """Return the same with room for more requests, or more replicas of one pool."""
    others = len(before.wake_s) - len(before.moves)
    after = motion(slots, replicas, others)
    passing = ("pairs", "scratch", "placed")  # of one tick or beat
    for name, array in before._asdict().items():
        if name not in (*passing, "reading", "beats", "past", "past_ends"):
            getattr(after, name)[: len(array)] = array
    after.reading[:, : before.reading.shape[1]] = before.reading
    after.beats[:, : before.beats.shape[1]] = before.beats
    return after._replace(past=before.past, past_ends=before.past_ends)


MOTION = pointer_to(motion(1, 1))
REBALANCE = types.int64(STATE, MOTION, types.float64)
"""``rebalance(state, motion, now_s) -> pairs``: see rebalancers/__init__.py."""


@inlined()
def _before(motion, a, b):
    """Return whether entry ``a`` of the heap is before entry ``b``."""
    first, second = motion.events[motion.heap[a]], motion.events[motion.heap[b]]
    if first.time_s != second.time_s:
        return first.time_s < second.time_s
    kind, other = max(first.kind, READ), max(second.kind, READ)
    if kind != other:
        return kind < other
    if first.source != second.source:
        return first.source < second.source
    return first.sequence < second.sequence


@inlined()
def _swap(heap, a, b):
    heap[a], heap[b] = heap[b], heap[a]


@compiled()
def push_event(motion, time_s, kind, source, slot):
    """Note that something will happen; return its number."""
    at = motion.counts[Index.EVENTS]
    sequence = motion.counts[Index.SEQUENCE]
    motion.counts[Index.EVENTS] += 1
    event = motion.events[motion.heap[at]]
    event.time_s = time_s
    event.kind = kind
    event.source = source
    event.sequence = sequence
    event.slot = slot
    motion.counts[Index.SEQUENCE] += 1
    while at > 0 and _before(motion, at, (at - 1) // 2):
        _swap(motion.heap, at, (at - 1) // 2)
        at = (at - 1) // 2
    return sequence


@inlined()
def next_event_s(motion):
    """Return when the next event happens; infinite when none is known. [s]"""
    if motion.counts[Index.EVENTS] == 0:
        return math.inf
    return motion.events[motion.heap[0]].time_s


@compiled()
def drop_event(motion):
    """Take the next event out."""
    left = motion.counts[Index.EVENTS] - 1
    motion.counts[Index.EVENTS] = left
    _swap(motion.heap, 0, left)
    at = 0
    while True:
        first = at
        for below in range(2 * at + 1, 2 * at + 3):
            if below < left and _before(motion, below, first):
                first = below
        if first == at:
            return
        _swap(motion.heap, at, first)
        at = first


@compiled(REBALANCE)
def never(state: State, motion, now_s):
    """Move or place no request."""
    return 0
