"""Counts of the finished requests in memory that does not grow.

By window of arrival and by bin of each time. The figures are those of a table,
percentiles within ``histogram.RELATIVE_ERROR``, and do not depend on the chunks.
"""

from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.simulator.records import RESULT
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.series import uses_of
from capplan.simulator.results.table import Finished
from capplan.simulator.results.times import Simulation, Totals
from capplan.simulator.results.windows import Windows
from capplan.workload.slo import LIMITS, Slo
from capplan.workload.trace import Trace

_BLOCK = 65_536


class Sketches:
    """Counts requests and forgets them.

    Attainment and latencies leave out the first ``warmup_s``. ``on_finished`` is called
    with the requests that have finished, in order of completion.
    """

    def __init__(
        self,
        slo: Slo | None = None,
        warmup_s: float = 0.0,
        on_finished: Finished | None = None,
    ) -> None:
        self._slo = slo
        self._warmup_s = warmup_s
        self._on_finished = on_finished
        self._windows: Windows | None = None
        self._class_names: tuple[str, ...] = ()
        self._last_finish_s = -np.inf
        # Counted by whole blocks, so that sums do not depend on the chunks.
        self._block = np.zeros(_BLOCK, RESULT)
        self._held = 0
        self._limits_s = np.full((len(LIMITS), 1), np.inf)

    def expect(self, chunk: Trace) -> None:
        """Learn the classes of a chunk."""
        names, known = chunk.class_names, len(self._class_names)
        if (
            names[:known] != self._class_names
            and self._class_names[: len(names)] != names
        ):
            raise InputError(
                f"classes are {names}, and were {self._class_names}; expected every "
                "chunk to number them alike"
            )
        if len(names) > known:
            self._class_names = names
            if self._slo is not None:
                columns = self._slo.columns(np.arange(len(names)), names)
                self._limits_s = np.array(columns)
            else:
                self._limits_s = np.full((len(LIMITS), len(names)), np.inf)

    def reach(self, moment_s: float) -> None:
        """Widen the windows as far as the fleet does its bins."""
        if self._windows is None:
            self._windows = Windows(moment_s, moment_s + self._warmup_s)
        self._windows.reach(moment_s)

    def put(self, done: np.ndarray) -> None:
        """Count finished requests."""
        if self._on_finished is not None and len(done):
            self._on_finished(done)
        first = 0
        while first < len(done):
            part = done[first : first + _BLOCK - self._held]
            self._block[self._held : self._held + len(part)] = part
            self._held += len(part)
            first += len(part)
            if self._held == _BLOCK:
                self._count_block()

    def _count_block(self) -> None:
        done, self._held = self._block[: self._held], 0
        if not len(done):
            return
        assert self._windows is not None
        times = RequestTimes.of(done)
        limits_s = tuple(limit_s[times.request_class] for limit_s in self._limits_s)
        self._windows.finish(times, limits_s)
        self._last_finish_s = max(self._last_finish_s, float(times.finish_s.max()))

    def simulation(self, fleet: Any, *, stopped: bool) -> Simulation:
        """Return the simulation with its counts; no table."""
        self._count_block()
        windows, last_arrival_s = self._windows, fleet.last_arrival_s
        assert windows is not None
        columns = windows.columns
        used = int(windows.index(last_arrival_s)) + 1
        duration_s = last_arrival_s - windows.start_s
        makespan_s = self._last_finish_s - windows.start_s
        if stopped:  # only windows all of whose requests have finished
            oldest_s = min(pool.oldest_arrival_s for pool in fleet.pools)
            until_s = min(oldest_s, last_arrival_s)
            used = int(max(0.0, until_s - windows.start_s) / windows.width_s)
            duration_s = makespan_s = used * windows.width_s
        total = {name: int(column[:used].sum()) for name, column in columns.items()}
        return Simulation(
            times=None,
            windows=windows,
            totals=Totals(
                request_count=total["completed"],
                duration_s=duration_s,
                makespan_s=makespan_s,
                prompt_tokens=total["prompt_tokens"],
                output_tokens=total["output_tokens"],
                cached_tokens=total["cached_tokens"],
                preemptions=int(columns["preemptions"].sum()),
            ),
            pools=uses_of(
                fleet.pools,
                windows.edges_s[:used],
                columns["preemptions"],
                None if stopped else self._last_finish_s,
            ),
            class_names=self._class_names,
            arrived_count=fleet.served,
            completed=total["completed"],
            moved=fleet.moved,
            lives=fleet.lives,
        )
