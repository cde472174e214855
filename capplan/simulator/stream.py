"""Simulate a deployment that serves a trace of any length, chunk by chunk.

Requests are counted as they finish, by window of arrival and by bin of each time, in
memory that does not grow. The figures are those of ``simulate``, percentiles within
``histogram.RELATIVE_ERROR``, and do not depend on the chunks.
"""

from collections.abc import Callable, Iterable

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.simulator.checks import (
    check_engine,
    check_scheduler,
    policy_settings,
    refuse_oversized,
)
from capplan.simulator.fleet import Fleet, Progress, Stopped
from capplan.simulator.records import RESULT
from capplan.simulator.series import fleet_series
from capplan.simulator.times import RequestTimes, Simulation, Totals
from capplan.simulator.windows import Windows, joined
from capplan.workload.slo import LIMITS, Slo
from capplan.workload.trace import Trace

_BLOCK = 65_536

Finished = Callable[[np.ndarray], None]
"""Called with requests that have finished, records of dtype RESULT."""


def simulate_stream(
    chunks: Iterable[Trace],
    deployment: Deployment,
    *,
    slo: Slo | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
    on_finished: Finished | None = None,
    warmup_s: float = 0.0,
) -> Simulation:
    """Return the simulation of a deployment that serves a trace in chunks.

    Chunks are in order of arrival, with the same class indices; the rest is as in
    ``simulate``. ``on_finished`` is called with the requests that have finished, in
    order of completion; attainment and latencies leave out the first ``warmup_s``.
    """
    engine = deployment.pool.configuration.engine
    check_engine(engine)
    check_scheduler(engine)
    fleet = Fleet(
        deployment,
        settings=policy_settings(deployment.router, slo),
        slo=slo,
        seed=seed,
        bins=(0.0, 1.0),
    )
    count = _Count(fleet, slo, on_finished, warmup_s)
    for chunk in chunks:
        count.serve(chunk, engine, progress, stopped)
        if stopped is not None and stopped():
            break
    if count.windows is None:
        raise InputError("no requests; expected at least one")
    count.finish(stopped)
    return _simulation(count)


class _Count:
    """A simulation under way: the fleet, and what has been counted of it."""

    def __init__(
        self,
        fleet: Fleet,
        slo: Slo | None,
        on_finished: Finished | None,
        warmup_s: float,
    ) -> None:
        self.fleet = fleet
        self.slo = slo
        self.windows: Windows | None = None
        self.class_names: tuple[str, ...] = ()
        self.last_arrival_s = -np.inf
        self.last_finish_s = -np.inf
        self.interrupted = False
        self._on_finished = on_finished
        self._warmup_s = warmup_s
        # Counted by whole blocks, so that sums do not depend on the chunks.
        self._block = np.zeros(_BLOCK, RESULT)
        self._held = 0
        self._limits_s = np.full((len(LIMITS), 1), np.inf)

    def serve(
        self,
        chunk: Trace,
        engine: EngineSettings,
        progress: Progress | None,
        stopped: Stopped | None,
    ) -> None:
        """Let the requests of a chunk arrive, no further than the windows reach."""
        arrival_s = chunk.arrival_s
        if arrival_s is None:
            raise InputError(
                f"{chunk.source}: no arrival times; expected arrival_s to stream it"
            )
        if arrival_s[0] < self.last_arrival_s:
            raise InputError(
                f"{chunk.source}: a request arrives at {arrival_s[0]} s, after one at "
                f"{self.last_arrival_s} s; sort the trace to stream it"
            )
        refuse_oversized(chunk, engine, self.fleet.served)
        self._learn_classes(chunk.class_names)
        if self.windows is None:
            start_s = float(arrival_s[0])
            self.windows = Windows(start_s, start_s + self._warmup_s)
            self.fleet.set_bins(self.windows.start_s, self.windows.width_s)
        first = 0
        while first < len(chunk) and not (stopped is not None and stopped()):
            self._reach(float(arrival_s[first]))
            end = int(np.searchsorted(arrival_s, self.windows.end_s))
            before = self.fleet.served
            parts = self.fleet.serve_in_chunks(chunk, progress, stopped, first, end)
            for done in parts:
                self._finished(done)
            last = first + self.fleet.served - before
            if last > first:
                self.last_arrival_s = float(arrival_s[last - 1])
            first = last

    def finish(self, stopped: Stopped | None) -> None:
        """Let all that has arrived finish."""
        if stopped is None or not stopped():
            for done in self.fleet.finish(stopped):
                self._finished(done)
        self.interrupted = stopped is not None and stopped()
        self._count_block()

    def _learn_classes(self, names: tuple[str, ...]) -> None:
        known = len(self.class_names)
        if (
            names[:known] != self.class_names
            and self.class_names[: len(names)] != names
        ):
            raise InputError(
                f"classes are {names}, and were {self.class_names}; expected every "
                "chunk to number them alike"
            )
        if len(names) > known:
            self.class_names = names
            if self.slo is not None:
                columns = self.slo.columns(np.arange(len(names)), names)
                self._limits_s = np.array(columns)
            else:
                self._limits_s = np.full((len(LIMITS), len(names)), np.inf)

    def _reach(self, moment_s: float) -> None:
        """Widen the windows, and the bins of the fleet with them."""
        assert self.windows is not None
        factor = self.windows.reach(moment_s)
        if factor > 1:
            bins = self.fleet.state.bins
            for name in bins.dtype.names or ():
                bins[name] = joined(np.asarray(bins[name]), factor)
            self.fleet.set_bins(self.windows.start_s, self.windows.width_s)

    def _finished(self, done: np.ndarray) -> None:
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
        assert self.windows is not None
        times = RequestTimes.of(done)
        limits_s = tuple(limit_s[times.request_class] for limit_s in self._limits_s)
        self.windows.finish(times, limits_s)
        self.last_finish_s = max(self.last_finish_s, float(times.finish_s.max()))


def _simulation(count: _Count) -> Simulation:
    windows, fleet = count.windows, count.fleet
    assert windows is not None
    columns = windows.columns
    used = int(windows.index(count.last_arrival_s)) + 1
    duration_s = count.last_arrival_s - windows.start_s
    makespan_s = count.last_finish_s - windows.start_s
    busy_s = float(fleet.state.bins["busy_s"].sum())
    if count.interrupted:  # only windows all of whose requests have finished
        until_s = min(fleet.all_finished_before_s, count.last_arrival_s)
        used = int(max(0.0, until_s - windows.start_s) / windows.width_s)
        duration_s = makespan_s = used * windows.width_s
        busy_s = float(fleet.state.bins["busy_s"][:used].sum())

    def total(name: str) -> int:
        return int(columns[name][:used].sum())

    return Simulation(
        times=None,
        windows=windows,
        totals=Totals(
            request_count=total("completed"),
            duration_s=duration_s,
            makespan_s=makespan_s,
            prompt_tokens=total("prompt_tokens"),
            output_tokens=total("output_tokens"),
            cached_tokens=total("cached_tokens"),
            preemptions=int(columns["preemptions"].sum()),
        ),
        series=fleet_series(
            fleet,
            windows.edges_s[:used],
            columns["preemptions"],
            None if count.interrupted else count.last_finish_s,
        ),
        class_names=count.class_names,
        replica_count=len(fleet.state.replicas),
        iteration_count=fleet.iteration_count,
        busy_s=busy_s,
        arrived_count=fleet.served,
        completed=total("completed"),
    )
