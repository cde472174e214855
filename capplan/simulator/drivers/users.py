"""Who asks next: requests in order of arrival, or users who wait for their answers.

A user asks, waits for the answer, thinks, and asks again. In conversations it is known
which request comes after which answers. Those begin at times of their own, or so many
at once, the next when one has ended. Users who think in turn, each
after the one before, are a Poisson process of requests where they think exponential
times, of which those are refused that find all users waiting: no one asks them.
"""

import math
from typing import NamedTuple

import numpy as np

from capplan.simulator.by_pointer import by_pointer, pointer_to
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Count, State
from capplan.workload.forest import followers, session_of
from capplan.workload.trace import Trace


@by_pointer
class Users(NamedTuple):
    """Who will ask, and what is on its way through the front end.

    No user: requests arrive whatever becomes of the others.
    """

    ask_s: np.ndarray  # float64, (users,): a heap of when those who think ask [s]
    turn: np.ndarray  # int64, (users,): of those at one instant, the first answered
    # float64, (2, users), a ring: when each request in the front end was asked, and
    # when it reaches the router [s]
    passing_s: np.ndarray
    free_s: np.ndarray  # float64, (processes,): when each takes the next request [s]
    # float64, (1,): when the last of those who think in turn asks; (0,) where each
    # thinks by itself [s]
    turns_s: np.ndarray
    # float64: of a request in the front end, of a process for it, and of each token of
    # its prompt after the answer [s]
    front_s: np.ndarray
    counts: np.ndarray  # int64, see Index
    # Of conversations, int64, else (0,):
    row: np.ndarray  # of those in the heap
    passing_row: np.ndarray  # of those in the ring
    first_child: np.ndarray  # (rows + sessions + 1,): where in ``children`` those begin
    children: np.ndarray  # rows that wait for a row, or for a session to begin
    pending: np.ndarray  # (rows,): for how much each waits
    session: np.ndarray  # (rows,): NONE does not hold it back from its end
    unanswered: np.ndarray  # (sessions,): rows that do; (0,): sessions begin by times


class _Index(NamedTuple):
    """Index of each counter in ``Users.counts``; see ``state.Count``."""

    THINKING: int = 0  # users in the heap
    PLANNED: int = 1  # requests whose time of asking is known
    ASKED: int = 2  # requests that have reached the front end
    DELIVERED: int = 3  # and the router
    FIRST: int = 4  # row of the first request of the chunk, where there is no user
    BEGUN: int = 5  # sessions that have begun, where one begins when another ends


Index = _Index()
_OF_CONVERSATIONS = Users._fields[Users._fields.index("row") :]


def thinking(
    first_s: np.ndarray, processes: int, front_s: np.ndarray, in_turn: bool = False
) -> Users:
    """Return users who first ask at ``first_s``, shape (users,). [s]

    Users ``in_turn`` think so long each, one after the other. ``front_s`` is as in
    ``Users``; the API servers of all replicas have ``processes``.
    """
    first_s = np.cumsum(first_s) if in_turn else first_s
    order = np.argsort(first_s, kind="stable")
    counts = np.zeros(len(Index), np.int64)
    counts[[Index.THINKING, Index.PLANNED]] = len(first_s)
    return Users(
        ask_s=np.asarray(first_s, np.float64)[order],  # sorted, so a heap
        turn=np.arange(len(first_s)),
        passing_s=np.zeros((2, len(first_s))),
        free_s=np.full(processes, -np.inf),
        turns_s=np.array(first_s[-1:]) if in_turn else np.zeros(0),
        front_s=np.asarray(front_s, np.float64),
        counts=counts,
        **dict.fromkeys(_OF_CONVERSATIONS, np.zeros(0, np.int64)),
    )


def conversing(trace: Trace, processes: int, front_s: np.ndarray) -> Users:
    """Return the users of a trace of which requests come after answers.

    So many sessions as there are ``trace.users`` begin at time 0, and another when one
    of them ends; without users what does not come ``after`` arrives at its time.
    """
    n = len(trace)
    first_child, children, pending = followers(trace)
    rows = np.flatnonzero(pending == 0)
    label = session_of(trace)
    session, unanswered = np.full(n, NONE), np.zeros(0, np.int64)
    first_s = trace.arrival_s
    if trace.users:
        # Rows that come after no answer wait for their session, as children of it.
        by = rows[np.argsort(label[rows], kind="stable")]
        ends = len(children) + np.cumsum(np.bincount(label[by]))
        first_child = np.concatenate([first_child, ends])
        children = np.concatenate([children, by])
        pending[by] = 1
        session = np.where(trace.agent < 0, NONE, label)
        unanswered = np.bincount(session[session >= 0], minlength=int(label.max()) + 1)
        rows = rows[label[rows] < trace.users]
        first_s = trace.think_s
    assert first_s is not None
    users = thinking(first_s[rows], processes, front_s)
    heap = np.full(n, np.inf)
    heap[: len(rows)] = users.ask_s
    row = np.zeros(n, np.int64)
    row[: len(rows)] = rows[np.argsort(first_s[rows], kind="stable")]
    users.counts[Index.BEGUN] = trace.users
    return users._replace(
        ask_s=heap,
        turn=np.arange(n),
        passing_s=np.zeros((2, n)),
        row=row,
        passing_row=np.zeros(n, np.int64),
        first_child=first_child,
        children=children,
        pending=pending,
        session=session,
        unanswered=unanswered,
    )


def nobody() -> Users:
    """Return no users: requests arrive whatever becomes of the others."""
    return thinking(np.zeros(0), 1, np.zeros(3))


def last_asked_s(users: Users) -> float:
    """Return when the newest request that a replica has was asked. [s]"""
    place = (users.counts[Index.DELIVERED] - 1) % users.passing_s.shape[1]
    return float(users.passing_s[0, place])


USERS = pointer_to(nobody())


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
    if users.row.shape[0] > 0:
        users.row[a], users.row[b] = users.row[b], users.row[a]


@compiled()
def _think(users, until_s, row=NONE):
    """Let a user think until a moment; in a conversation it is known what it asks."""
    at = users.counts[Index.THINKING]
    users.ask_s[at] = until_s
    if row != NONE:
        users.row[at] = row
    users.turn[at] = users.counts[Index.PLANNED]
    users.counts[Index.THINKING] += 1
    users.counts[Index.PLANNED] += 1
    while at > 0 and _before(users, at, (at - 1) // 2):
        _swap(users, at, (at - 1) // 2)
        at = (at - 1) // 2


@compiled()
def ask(users):
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
    if users.row.shape[0] > 0:
        users.passing_row[place] = users.row[left]


@inlined()
def delivered_row(users):
    """Return the next request that reaches the router, its row in the chunk."""
    delivered = users.counts[Index.DELIVERED]
    if users.row.shape[0] > 0:
        return users.passing_row[delivered % users.passing_row.shape[0]]
    return delivered - users.counts[Index.FIRST]


@inlined()
def next_asked_s(users, requests, asked_until_s):
    """Return when the next user asks, and when the next request reaches the router."""
    asks_s = math.inf
    reaches_s = math.inf
    delivered = users.counts[Index.DELIVERED]
    if users.ask_s.shape[0] == 0:
        row = delivered - users.counts[Index.FIRST]
        if row < requests.reaches_s.shape[0]:
            reaches_s = requests.reaches_s[row]
        return asks_s, reaches_s
    if users.counts[Index.THINKING] > 0 and users.ask_s[0] < asked_until_s:
        asks_s = users.ask_s[0]
    if delivered < users.counts[Index.ASKED]:
        reaches_s = users.passing_s[1, delivered % users.passing_s.shape[1]]
    return asks_s, reaches_s


@inlined()
def asked_s(users, requests):
    """Return when the next request that reaches the router was asked. [s]"""
    delivered = users.counts[Index.DELIVERED]
    if users.ask_s.shape[0] == 0:
        return requests.arrival_s[delivered - users.counts[Index.FIRST]]
    return users.passing_s[0, delivered % users.passing_s.shape[1]]


@compiled()
def _let_ask(users, think_s, node, from_s):
    """Let those think who waited for a row's answer, or for a session to begin."""
    for k in range(users.first_child[node], users.first_child[node + 1]):
        row = users.children[k]
        users.pending[row] -= 1
        if users.pending[row] == 0:
            _think(users, from_s + think_s[row], row)


@compiled()
def _go_on(users, think_s, row, answer_s):
    """Go on with a conversation; where it has ended another session begins."""
    _let_ask(users, think_s, row, answer_s)
    session = users.session[row]
    if session == NONE:
        return
    users.unanswered[session] -= 1
    begun = users.counts[Index.BEGUN]
    if users.unanswered[session] == 0 and begun < users.unanswered.shape[0]:
        users.counts[Index.BEGUN] += 1
        _let_ask(users, think_s, users.session.shape[0] + begun, answer_s)


@compiled()
def note_answers(state: State, users, think_s, first):
    """Let users whose answers are the results from ``first`` on think."""
    if users.ask_s.shape[0] == 0:
        return
    for k in range(first, state.counts[Count.RESULTS]):
        planned = users.counts[Index.PLANNED]
        result = state.results[k]
        answer_s = result.finish_s + users.front_s[2] * result.prompt_tokens
        if users.row.shape[0] > 0:
            _go_on(users, think_s, result.row, answer_s)
        elif planned < think_s.shape[0]:
            if users.turns_s.shape[0] > 0:
                answer_s = max(answer_s, users.turns_s[0])
                users.turns_s[0] = answer_s + think_s[planned]
            _think(users, answer_s + think_s[planned])
