"""A table of the finished requests, one row each."""

from dataclasses import fields, replace

import numpy as np

from capplan.simulator.fleet import Fleet
from capplan.simulator.records import RESULT
from capplan.simulator.request_times import RequestTimes
from capplan.simulator.series import fleet_series
from capplan.simulator.times import Simulation, totals
from capplan.workload.trace import Trace

_TIMES = ("arrival_s", "scheduled_s", "first_token_s", "finish_s")
"""Columns that are NaN for a request that did not finish."""


class Table:
    """Keeps every request."""

    def __init__(self) -> None:
        self._columns: dict[str, np.ndarray] = {}
        self._expected = 0
        self._class_names: tuple[str, ...] = ()

    def expect(self, chunk: Trace, fleet: Fleet) -> None:
        """Make room for the requests of a chunk."""
        self._class_names = max(self._class_names, chunk.class_names, key=len)
        self._expected += len(chunk)
        for field in fields(RequestTimes):
            empty = np.nan if field.name in _TIMES else 0
            more = np.full(len(chunk), empty, RESULT[field.name])
            known = self._columns.get(field.name)
            self._columns[field.name] = (
                more if known is None else np.concatenate([known, more])
            )

    def reach(self, moment_s: float) -> None:
        """Nothing: the table has no bins."""

    def put(self, done: np.ndarray, fleet: Fleet) -> None:
        """Write finished requests to their rows, while they are in the cache.

        Columns that the fleet does not use stay zero.
        """
        rows = done["row"]
        unused = fleet.unused
        for name, column in self._columns.items():
            if name not in unused:
                column[rows] = done[name]

    def simulation(self, fleet: Fleet, *, stopped: bool) -> Simulation:
        """Return the simulation with the table."""
        times = RequestTimes(**self._columns)
        start_s = fleet.bin_starts_s
        index = (times.finish_s - start_s[0]) / fleet.bin_width_s
        index = np.nan_to_num(np.clip(index, 0, len(start_s) - 1)).astype(np.int64)
        return Simulation(
            times=times,
            totals=totals(times),
            series=fleet_series(
                fleet,
                start_s,
                np.bincount(index, times.preemptions, len(start_s)),
                float(np.nanmax(times.finish_s, initial=start_s[-1])),
            ),
            class_names=self._class_names,
            replica_count=len(fleet.state.replicas),
            iteration_count=fleet.iteration_count,
            busy_s=float(fleet.state.bins["busy_s"].sum()),
            arrived_count=self._expected,
            completed=int(np.isfinite(times.finish_s).sum()),
            iterations=fleet.iterations() if fleet.state.engine[0].recording else None,
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
    times = simulation.table.select(slice(0, count))
    series = simulation.series.until(float(times.arrival_s[-1]))
    kept = totals(times)
    busy_share = float(series.busy_share.mean())
    return replace(
        simulation,
        times=times,
        totals=kept,
        series=series,
        busy_s=busy_share * kept.makespan_s * simulation.replica_count,
        completed=count,
    )
