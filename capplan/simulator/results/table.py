"""A table of the finished requests, one row each."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numba
import numpy as np
from numba import types

from capplan.simulator.jit import compiled
from capplan.simulator.records import RESULT
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.series import uses_of
from capplan.simulator.results.times import PoolUse, Simulation, totals
from capplan.simulator.results.turns import Turns, turns_of
from capplan.workload.trace import Trace

Finished = Callable[[np.ndarray], None]
"""Called with requests that have finished, records of dtype RESULT."""

_TIMES = ("arrival_s", "scheduled_s", "first_token_s", "finish_s")
"""Columns that are NaN for a request that did not finish."""
_ASKED = ("prompt_tokens", "output_tokens", "request_class")
"""Columns of the trace that no simulation changes."""
_NAMES = [field.name for field in fields(RequestTimes)]
_Columns: Any = namedtuple("_Columns", _NAMES)  # type: ignore[misc]
_EMPTY: Any = _Columns(*(np.zeros(0, RESULT[name]) for name in _NAMES))


@compiled(types.void(numba.typeof(np.zeros(0, RESULT)), numba.typeof(_EMPTY)))
def _scatter(done, columns):
    """Write finished requests to their rows, while they are in the cache."""
    for k in range(done.shape[0]):
        result = done[k]
        row = result.row
        columns.arrival_s[row] = result.arrival_s
        columns.scheduled_s[row] = result.scheduled_s
        columns.first_token_s[row] = result.first_token_s
        columns.finish_s[row] = result.finish_s
        columns.longest_gap_s[row] = result.longest_gap_s
        columns.replica[row] = result.replica
        # Mostly 0, as the table is before: what is not written need not be fetched.
        if result.late_gaps != 0:
            columns.late_gaps[row] = result.late_gaps
        if result.preemptions != 0:
            columns.preemptions[row] = result.preemptions
        if result.cached_tokens != 0:
            columns.cached_tokens[row] = result.cached_tokens
        if result.swaps != 0:
            columns.swaps[row] = result.swaps
        if result.paused_s != 0:
            columns.paused_s[row] = result.paused_s
        if result.migrations != 0:
            columns.migrations[row] = result.migrations
        if result.handed_s != 0:
            columns.handed_s[row] = result.handed_s
        if result.tier_tokens != 0:
            columns.tier_tokens[row] = result.tier_tokens


class Table:
    """Keeps every request; ``on_finished`` gets them as they come."""

    def __init__(self, on_finished: Finished | None = None) -> None:
        self._on_finished = on_finished
        self._columns: Any = _EMPTY
        self._class_names: tuple[str, ...] = ()
        self._asked_until_s: float | None = None
        self._turns: Turns | None = None

    def expect(self, chunk: Trace) -> None:
        """Make room for the requests of a chunk."""
        self._class_names = max(self._class_names, chunk.class_names, key=len)
        if chunk.users or chunk.asked_until_s < np.inf:
            self._asked_until_s = chunk.asked_until_s
        if chunk.has_waits:
            self._turns = turns_of(chunk)
        longer = []
        for name, column in self._columns._asdict().items():
            room = np.zeros(len(column) + len(chunk), column.dtype)
            room[: len(column)] = column
            if name in _ASKED:  # known beforehand: no need to wait for the result
                room[len(column) :] = getattr(chunk, name)
            longer.append(room)
        self._columns = _Columns(*longer)

    def reach(self, moment_s: float) -> None:
        """Nothing: the table has no bins."""

    def put(self, done: np.ndarray) -> None:
        """Keep finished requests."""
        if self._on_finished is not None and len(done):
            self._on_finished(done)
        _scatter(done, self._columns)

    def simulation(self, fleet: Any, *, stopped: bool) -> Simulation:
        """Return the simulation with the table."""
        columns = self._columns._asdict()
        until_s, room = self._asked_until_s, len(columns["finish_s"])
        turns, fewer = self._turns, until_s is not None and until_s < np.inf
        if fewer and turns is not None:
            asked = np.flatnonzero(columns["finish_s"])
            columns = {name: rows[asked] for name, rows in columns.items()}
            turns = turns.select(asked)
        elif fewer:  # then there may be fewer
            columns = {name: rows[: fleet.served] for name, rows in columns.items()}
        if until_s is not None and fleet.served == room:  # all were asked
            until_s = float(columns["finish_s"].max())
        completed = fleet.served - fleet.outstanding
        if completed < len(columns["finish_s"]):
            missing = columns["finish_s"] == 0.0
            for name in _TIMES:
                columns[name][missing] = np.nan
        times = RequestTimes(**columns)
        start_s = fleet.bins.starts_s
        index = (times.finish_s - start_s[0]) / fleet.bins.width_s
        index = np.nan_to_num(np.clip(index, 0, len(start_s) - 1)).astype(np.int64)
        end_s = float(np.nanmax(times.finish_s, initial=start_s[-1]))
        preemptions = np.bincount(index, times.preemptions, len(start_s))
        return Simulation(
            times=times,
            totals=totals(times),
            pools=uses_of(fleet.pools, start_s, preemptions, end_s),
            class_names=self._class_names,
            arrived_count=fleet.served if fewer else len(times),
            completed=completed,
            moved=fleet.moved,
            lives=fleet.lives,
            asked_until_s=until_s,
            turns=turns,
        )


def finished_part(simulation: Simulation) -> Simulation:
    """Return the simulation of the requests before the first that did not finish.

    Their times are those of the whole simulation. Later requests that had finished
    are left out, since those still running would be missing beside them. Raises
    KeyboardInterrupt when there are none; one that ran to its end is returned as is.
    """
    unfinished = np.isnan(simulation.table.finish_s)
    if not unfinished.any():
        return simulation
    count = int(np.argmax(unfinished))
    if count == 0:
        raise KeyboardInterrupt
    kept_rows = slice(0, count)
    times = simulation.table.select(kept_rows)
    kept = totals(times)

    def part(pool: PoolUse) -> PoolUse:
        series = pool.series.until(float(times.arrival_s[-1]))
        busy_s = float(series.busy_share.mean()) * kept.makespan_s * pool.replica_count
        return replace(pool, series=series, busy_s=busy_s)

    return replace(
        simulation,
        times=times,
        totals=kept,
        turns=None if simulation.turns is None else simulation.turns.select(kept_rows),
        asked_until_s=None
        if simulation.asked_until_s is None
        else float(times.arrival_s[-1]),
        pools=tuple(map(part, simulation.pools)),
        completed=count,
    )
