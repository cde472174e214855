"""Of which session, and of which request of its user, the rows of a table are."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from capplan.simulator.results.request_times import RequestTimes
from capplan.workload.forest import session_of
from capplan.workload.slo import SCOPES
from capplan.workload.trace import Trace

if TYPE_CHECKING:
    from capplan.simulator.results.times import Simulation


@dataclass(frozen=True, eq=False)
class Turns:
    """One row per turn, all shape (n,)."""

    session: np.ndarray  # from 0 in order of the rows
    # what the user asked; tools and sub-agents that answer it are of the same
    request: np.ndarray
    agent: np.ndarray  # 0 the main one, below 0 one that nobody waits for
    shared_tokens: np.ndarray  # with earlier turns and texts [tokens]

    @property
    def is_waited_for(self) -> np.ndarray:
        """Whether each is not in the background, shape (n,)."""
        return self.agent >= 0

    def select(self, rows: slice | np.ndarray) -> "Turns":
        """Return the turns at ``rows``."""
        return Turns(
            **{field.name: getattr(self, field.name)[rows] for field in fields(self)}
        )


def turns_of(trace: Trace) -> Turns:
    """Return whose turns the rows of a trace are.

    A user asks at ``step`` 0 of the main agent.
    """
    session = session_of(trace)
    order = np.argsort(session, kind="stable")
    is_first = np.zeros(len(trace), bool)
    is_first[order] = np.diff(session[order], prepend=-1) > 0
    asks = is_first | ((trace.step == 0) & (trace.agent == 0))
    request = np.empty(len(trace), np.int64)
    request[order] = np.cumsum(asks[order])
    return Turns(session, request, trace.agent, trace.prefix_tokens)


class OneSession(NamedTuple):
    """Turns in a row of one session, by arrival."""

    times: RequestTimes
    turns: Turns


def one_session(
    times: RequestTimes,
    turns: Turns,
    from_s: float,
    most: int = 12,
    most_agents: int = 5,
) -> OneSession | None:
    """Return turns of a session that stands for others; None where none counts.

    Of the sessions with most agents that whose turns since ``from_s`` are nearest to
    the median; of its turns those in the middle.
    """
    since_s = times.arrival_s - times.arrival_s.min()
    rows = np.flatnonzero((since_s >= from_s) & np.isfinite(times.finish_s))
    if not len(rows):
        return None
    session, agent = turns.session[rows], turns.agent[rows]
    count = np.bincount(session)
    pairs = np.unique(np.stack([session, agent]), axis=1)
    agents = np.bincount(pairs[0], minlength=len(count))
    far = np.abs(count - np.median(count[count > 0]))
    rows = rows[session == np.lexsort((far, -agents))[0]]
    rows = rows[np.argsort(times.arrival_s[rows], kind="stable")]
    rows = rows[max(0, (len(rows) - most) // 2) :][:most]
    _, first = np.unique(turns.agent[rows], return_index=True)
    shown = turns.agent[rows][np.sort(first)[:most_agents]]
    rows = rows[np.isin(turns.agent[rows], shown)]
    return OneSession(times.select(rows), turns.select(rows))


def with_scopes(simulation: "Simulation", scopes: tuple[str, ...]) -> "Simulation":
    """Return a simulation with a class, and a row each, of what else has limits.

    Of what users asked, and of sessions: from the first arrival to the last answer of
    those that somebody waits for.
    """
    turns, times = simulation.turns, simulation.table
    if not scopes or turns is None:
        return simulation
    names, parts = simulation.class_names, [(times, turns)]
    for name in scopes:
        number = len(names)
        names = (*names, name)
        parts.append(_of_scope(times, turns, name, number))
    tables, of = zip(*parts, strict=True)
    return replace(
        simulation,
        class_names=names,
        times=RequestTimes(**_columns(tables)),
        turns=Turns(**_columns(of)),
    )


def _of_scope(
    times: RequestTimes, turns: Turns, scope: str, number: int
) -> tuple[RequestTimes, Turns]:
    of = np.full(len(times), number, times.request_class.dtype)
    label = turns.request if scope == SCOPES[0] else turns.session
    waited = np.flatnonzero(turns.is_waited_for)
    at = waited[np.argsort(times.arrival_s[waited], kind="stable")]
    _, first, same = np.unique(label[at], return_index=True, return_inverse=True)
    finish_s = np.full(len(first), -np.inf)
    np.maximum.at(finish_s, same, times.finish_s[at])
    rows = at[first]
    whole = replace(times, request_class=of).select(rows)
    return replace(whole, finish_s=finish_s), turns.select(rows)


def _columns(parts: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return the columns of tables one behind the other."""
    return {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(parts[0])
    }
