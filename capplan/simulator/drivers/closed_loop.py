"""Users who each wait for their answer, think, and ask again.

The next known event is delivered where it is not after any replica's ``wake_s``, the
time before which no answer can come from it; else the replica that may answer first
takes one step. Its jump is bounded by the others' ``wake_s`` and by its own pending
answer: with two iterations in flight, the one after next is scheduled at the instant at
which that answer may bring a request.

At one instant, an answer comes before the request that it brings, and that request
before the replica's next scheduling.
"""

import math
from typing import NamedTuple

import numba
import numpy as np
from numba import types

from capplan.simulator.drivers.open_loop import ARRIVALS, routed, take_slot
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.log import log_has_room
from capplan.simulator.looking import look_before, next_look_s
from capplan.simulator.prefix_memory import runs_are_short
from capplan.simulator.queues import give_slot
from capplan.simulator.replica import bring_up, enqueue, step
from capplan.simulator.state import NONE, ROUTE, SCHEDULE, STATE, Count, Needs
from capplan.simulator.wake import set_wake

ROOM, TIME, ANSWERED = range(3)
"""Why ``run`` stopped."""


class Users(NamedTuple):
    """Who will ask, and what is on its way through the front end."""

    ask_s: np.ndarray  # float64, (users,): a heap of when those who think ask [s]
    turn: np.ndarray  # int64, (users,): of those at one instant, the first answered
    # float64, (2, users), a ring: when each request in the front end was asked, and
    # when it reaches the router [s]
    passing_s: np.ndarray
    free_s: np.ndarray  # float64, (processes,): when each takes the next request [s]
    # float64: of a request in the front end, of a process for it, and of each token of
    # its prompt after the answer [s]
    front_s: np.ndarray
    counts: np.ndarray  # int64, see Index
    wake_s: np.ndarray  # float64, (replicas,): those of REPLICA, side by side [s]


class _Index(NamedTuple):
    """Index of each counter in ``Users.counts``; see ``state.Count``."""

    THINKING: int = 0  # users in the heap
    PLANNED: int = 1  # requests whose time of asking is known
    ASKED: int = 2  # requests that have reached the front end
    DELIVERED: int = 3  # and the router


Index = _Index()


def thinking(
    first_s: np.ndarray, replicas: int, processes: int, front_s: np.ndarray
) -> Users:
    """Return users who first ask at ``first_s``, shape (users,). [s]

    ``front_s`` is as in ``Users``; the API servers of all replicas have ``processes``.
    """
    order = np.argsort(first_s, kind="stable")
    counts = np.zeros(len(Index), np.int64)
    counts[[Index.THINKING, Index.PLANNED]] = len(first_s)
    return Users(
        ask_s=np.asarray(first_s, np.float64)[order],  # sorted, so a heap
        turn=np.arange(len(first_s)),
        passing_s=np.zeros((2, len(first_s))),
        free_s=np.full(processes, -np.inf),
        front_s=np.asarray(front_s, np.float64),
        counts=counts,
        wake_s=np.full(replicas, np.inf),
    )


def last_asked_s(users: Users) -> float:
    """Return when the newest request that a replica has was asked. [s]"""
    place = (users.counts[Index.DELIVERED] - 1) % users.passing_s.shape[1]
    return float(users.passing_s[0, place])


USERS = numba.typeof(thinking(np.zeros(1), 1, 1, np.zeros(3)))


@inlined()
def _before(users, a, b):
    """Return whether entry ``a`` of the heap is before entry ``b``."""
    if users.ask_s[a] != users.ask_s[b]:
        return users.ask_s[a] < users.ask_s[b]
    return users.turn[a] < users.turn[b]


@inlined()
def _swap(users, a, b):
    users.ask_s[a], users.ask_s[b] = users.ask_s[b], users.ask_s[a]
    users.turn[a], users.turn[b] = users.turn[b], users.turn[a]


@compiled()
def _think(users, until_s):
    """Let a user think until a moment."""
    at = users.counts[Index.THINKING]
    users.ask_s[at] = until_s
    users.turn[at] = users.counts[Index.PLANNED]
    users.counts[Index.THINKING] += 1
    users.counts[Index.PLANNED] += 1
    while at > 0 and _before(users, at, (at - 1) // 2):
        _swap(users, at, (at - 1) // 2)
        at = (at - 1) // 2


@compiled()
def _ask(users):
    """Let the first user ask: its request enters the front end."""
    asked_s = users.ask_s[0]
    left = users.counts[Index.THINKING] - 1
    users.counts[Index.THINKING] = left
    _swap(users, 0, left)
    at = 0
    while True:
        first = at
        for below in range(2 * at + 1, 2 * at + 3):
            if below < left and _before(users, below, first):
                first = below
        if first == at:
            break
        _swap(users, at, first)
        at = first
    row = users.counts[Index.ASKED]
    users.counts[Index.ASKED] += 1
    process = row % users.free_s.shape[0]
    begins_s = max(asked_s, users.free_s[process])
    users.free_s[process] = begins_s + users.front_s[1]
    place = row % users.passing_s.shape[1]
    users.passing_s[0, place] = asked_s
    users.passing_s[1, place] = begins_s + users.front_s[0]


@inlined()
def _next_known_s(users, asked_until_s):
    """Return when the next user asks, and when the next request reaches the router."""
    asks_s = math.inf
    if users.counts[Index.THINKING] > 0 and users.ask_s[0] < asked_until_s:
        asks_s = users.ask_s[0]
    reaches_s = math.inf
    delivered = users.counts[Index.DELIVERED]
    if delivered < users.counts[Index.ASKED]:
        reaches_s = users.passing_s[1, delivered % users.passing_s.shape[1]]
    return asks_s, reaches_s


@inlined()
def _note_wakes(state, users):
    for r in range(state.replicas.shape[0]):
        users.wake_s[r] = state.replicas[r].wake_s


@compiled()
def _deliver(state, users, requests, now_s, needs, route, schedule):
    """Bring the next request to a replica, if the log has room."""
    if needs == Needs.ALL:
        bring_up(state, now_s, schedule)
    elif needs == Needs.SEEN:
        look_before(state, now_s, schedule)
    if not log_has_room(state):
        return
    row = users.counts[Index.DELIVERED]
    slot = take_slot(state, requests, row, 0)
    state.requests[slot].arrival_s = users.passing_s[0, row % users.passing_s.shape[1]]
    state.counts[Count.DRAW] = row
    r = routed(state, slot, now_s, route, schedule)
    if not log_has_room(state):
        give_slot(state, slot)
        return
    enqueue(state, r, slot, now_s)
    state.counts[Count.ROUTED] += 1
    users.counts[Index.DELIVERED] += 1
    _note_wakes(state, users)  # the router may have advanced others


@compiled()
def _step(state, users, r, until_s, schedule):
    """Let a replica do one thing; its own pending answer bounds its jump."""
    replica = state.replicas[r]
    if replica.oldest_finishing != NONE:
        until_s = min(until_s, replica.oldest_end_s)
    elif replica.newest_finishing != NONE:
        until_s = min(until_s, replica.newest_end_s)
    before_s = replica.now_s
    step(state, r, until_s, schedule)
    set_wake(state, r)
    idles = replica.in_flight == 0 and replica.now_s == before_s
    if idles and replica.idle_until_s > replica.now_s:
        replica.wake_s = replica.idle_until_s  # nothing comes from it before
    users.wake_s[r] = replica.wake_s


@compiled()
def _note_answers(state, users, think_s, first):
    """Let users whose answers are the results from ``first`` on think."""
    for k in range(first, state.counts[Count.RESULTS]):
        planned = users.counts[Index.PLANNED]
        if planned < think_s.shape[0]:
            result = state.results[k]
            answer_s = result.finish_s + users.front_s[2] * result.prompt_tokens
            _think(users, answer_s + think_s[planned])


@compiled(
    types.int64(
        STATE,
        USERS,
        ARRIVALS,
        types.Array(types.float64, 1, "C", readonly=True),
        types.float64,
        types.int64,
        types.float64,
        types.int64,
        types.FunctionType(ROUTE),
        types.FunctionType(SCHEDULE),
    )
)
def run(
    state,
    users,
    requests,
    think_s,
    asked_until_s,
    until_row,
    until_s,
    needs,
    route,
    schedule,
):
    """Let users ask and be answered; return why it stopped.

    ``requests`` are in the order in which they are asked; the k-th time that a user
    starts to think takes ``think_s[k]``. ANSWERED: nothing is left to do. TIME: all
    before ``until_s`` has happened. ROOM: row ``until_row`` is next, or the caller must
    make room for requests, results or the log.
    """
    replicas = state.replicas
    while state.counts[Count.STUCK] == 0:
        if (
            users.counts[Index.DELIVERED] == until_row
            or state.counts[Count.FREE] == NONE
            or state.counts[Count.RESULTS] + replicas.shape[0]
            > state.results.shape[0] - state.requests.shape[0]
            or not log_has_room(state)
            or runs_are_short(state)
        ):
            return ROOM
        asks_s, reaches_s = _next_known_s(users, asked_until_s)
        known_s = min(asks_s, reaches_s)
        first = 0
        wake_s = users.wake_s[0]
        others_s = math.inf
        for r in range(1, replicas.shape[0]):
            if users.wake_s[r] < wake_s:
                others_s = wake_s
                wake_s = users.wake_s[r]
                first = r
            elif users.wake_s[r] < others_s:
                others_s = users.wake_s[r]
        if min(known_s, wake_s) == math.inf:
            return ANSWERED
        if min(known_s, wake_s) >= until_s:
            return TIME
        look_s = next_look_s(state) if needs == Needs.SEEN else math.inf
        if look_s < known_s and look_s <= wake_s:
            after_s = math.nextafter(wake_s, math.inf)
            look_before(state, min(known_s, after_s), schedule)
            _note_wakes(state, users)
            continue
        if known_s > wake_s:
            done = state.counts[Count.RESULTS]
            until_step_s = min(known_s, others_s, look_s)
            _step(state, users, first, until_step_s, schedule)
            _note_answers(state, users, think_s, done)
            continue
        if asks_s < reaches_s:
            _ask(users)
            asks_s, reaches_s = _next_known_s(users, asked_until_s)
        if reaches_s <= min(asks_s, wake_s):
            _deliver(state, users, requests, reaches_s, needs, route, schedule)
    return ANSWERED
