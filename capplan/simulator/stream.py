"""Serve a trace of any length chunk by chunk, in memory that does not grow.

Requests are counted as they finish, by window of arrival and by bin of each
time; when the last has finished, the warm-up is found and left out. The answer
is that of ``simulate`` on the same requests, percentiles within
``histogram.RELATIVE_ERROR``, and does not depend on the chunks.
"""

from collections.abc import Callable, Iterable

import numpy as np

from capplan.deployment import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import LatencyTables
from capplan.simulator.fleet import Fleet, Progress, Stopped
from capplan.simulator.histogram import Histogram
from capplan.simulator.metrics import is_level, mser_end_s, windowed_interval
from capplan.simulator.simulate import (
    check_engine,
    policy_settings,
    refuse_oversized,
)
from capplan.simulator.state import RESULT
from capplan.simulator.stream_summary import StreamAttainment, StreamSummary
from capplan.simulator.times import RequestTimes, Series
from capplan.simulator.windows import LIMITS, METRICS, WINDOWS, Windows, joined
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

_BLOCK = 65_536
_TIMES = tuple(RequestTimes.__dataclass_fields__)

Finished = Callable[[np.ndarray], None]
"""Called with requests that have finished, records of dtype RESULT."""


def simulate_stream(
    chunks: Iterable[Trace],
    tables: LatencyTables,
    engine: EngineSettings,
    replica_count: int,
    *,
    router: str = "jsq",
    scheduler: str = "vllm-v1",
    slo: Slo | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
    on_finished: Finished | None = None,
) -> StreamSummary:
    """Return what happens to the requests of a trace that comes in chunks.

    Parameters
    ----------
    chunks
        The requests in order of arrival; class indices mean the same in all.
    tables, engine, replica_count, router, scheduler, seed
        As ``simulate`` takes them.
    slo
        Limits by class; a policy that looks at SLOs keeps the strictest of them.
    progress
        Called with the number of requests that have arrived.
    stopped
        Asked whether to stop with what there is.
    on_finished
        Called with the requests that have finished, in order of completion.

    Raises
    ------
    InputError
        When a chunk has no times or arrives before the one before it, a request
        fits no replica, a class has no SLO, or the limits contradict each other.
    ProfileError
        When the tables do not reach the limits.
    """
    check_engine(engine)
    fleet = Fleet(
        tables,
        engine,
        replica_count,
        router=router,
        scheduler=scheduler,
        settings=policy_settings(router, slo),
        seed=seed,
        bins=(0.0, 1.0),
    )
    count = _Count(fleet, slo, on_finished)
    for chunk in chunks:
        count.serve(chunk, engine, progress, stopped)
        if stopped is not None and stopped():
            break
    if count.windows is None:
        raise InputError("no requests; expected at least one")
    count.finish(stopped)
    return _summary(count)


class _Count:
    """A run under way: the engine, and what has been counted of it."""

    def __init__(
        self, fleet: Fleet, slo: Slo | None, on_finished: Finished | None
    ) -> None:
        self.fleet = fleet
        self.slo = slo
        self.windows: Windows | None = None
        self.class_names: tuple[str, ...] = ()
        self.last_arrival_s = -np.inf
        self.last_finish_s = -np.inf
        self.interrupted = False
        self._on_finished = on_finished
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
        refuse_oversized(chunk, engine, first_row=self.fleet.served)
        self._learn_classes(chunk.class_names)
        if self.windows is None:
            self.windows = Windows(float(arrival_s[0]))
            self.fleet.state.bin_s[:] = self.windows.start_s, self.windows.width_s
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
                self.windows.arrive(arrival_s[first:last])
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
            self.fleet.state.bin_s[1] = self.windows.width_s

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
        times = RequestTimes(**{name: done[name] for name in _TIMES})
        request_class = done["request_class"]
        limits_s = tuple(limit_s[request_class] for limit_s in self._limits_s)
        self.windows.finish(times, request_class, limits_s)
        self.last_finish_s = max(self.last_finish_s, float(times.finish_s.max()))


def _summary(count: _Count) -> StreamSummary:
    windows, fleet = count.windows, count.fleet
    assert windows is not None
    columns = windows.columns
    used = int(windows.place(count.last_arrival_s)) + 1
    duration_s = count.last_arrival_s - windows.start_s
    makespan_s = count.last_finish_s - windows.start_s
    if count.interrupted:  # only windows all of whose requests have finished
        all_finished_before_s = min(fleet.all_finished_before_s, count.last_arrival_s)
        used = int(max(0.0, all_finished_before_s - windows.start_s) / windows.width_s)
        duration_s = makespan_s = used * windows.width_s
    edges_s = windows.start_s + windows.width_s * np.arange(max(used, 1))
    arrived = np.concatenate([[0.0], np.cumsum(columns["arrived"])])[: len(edges_s)]
    finished = np.concatenate([[0.0], np.cumsum(columns["finished"])])[: len(edges_s)]
    warmup_s = mser_end_s(edges_s, arrived - finished)
    counted = slice(int(np.searchsorted(edges_s, warmup_s)), used)
    return StreamSummary(
        request_count=int(columns["completed"][:used].sum()),
        arrived_count=fleet.served,
        interrupted=count.interrupted,
        replica_count=len(fleet.state.replicas),
        iteration_count=int(fleet.state.replicas["step"].sum()),
        busy_s=float(
            fleet.state.bins["busy_s"][: used if count.interrupted else WINDOWS].sum()
        ),
        duration_s=duration_s,
        makespan_s=makespan_s,
        prompt_tokens=int(columns["prompt_tokens"][:used].sum()),
        output_tokens=int(columns["output_tokens"][:used].sum()),
        cached_tokens=int(columns["cached_tokens"][:used].sum()),
        preemptions=int(columns["preemptions"].sum()),
        class_names=count.class_names,
        warmup_s=warmup_s,
        stable=is_level(
            edges_s,
            arrived - finished,
            warmup_s,
            lambda moment_s: float(np.interp(moment_s, edges_s, arrived)),
        ),
        attainment=None if count.slo is None else _attainment(count, counted, used),
        histograms={
            name: Histogram(
                windows.distribution(metric, counted),
                float(columns[name][counted].sum()),
            )
            for metric, name in enumerate(METRICS)
        },
        series=_series(count, used),
    )


def _attainment(count: _Count, counted: slice, used: int) -> StreamAttainment | None:
    assert count.windows is not None
    columns = count.windows.columns
    completed, attained = columns["completed"][counted], columns["attained"][counted]
    total = float(completed.sum())
    if not total:
        return None
    by_class = count.windows.by_class[counted].sum(axis=0)
    return StreamAttainment(
        share=float(attained.sum()) / total,
        interval=windowed_interval(attained, completed),
        by_limit={name: float(columns[name][counted].sum()) / total for name in LIMITS},
        by_class={
            name: float(hits / requests)
            for name, (requests, hits) in zip(count.class_names, by_class, strict=False)
            if requests
        },
        counted=int(total),
        attained_count=int(columns["attained"][:used].sum()),
    )


def _series(count: _Count, used: int) -> Series:
    windows, fleet = count.windows, count.fleet
    assert windows is not None
    bins = fleet.state.bins
    start_s = windows.start_s + windows.width_s * np.arange(used)
    bin_s = np.full(used, windows.width_s)
    totals = {
        name: np.asarray(bins[name])[:used].copy() for name in bins.dtype.names or ()
    }
    preemptions = windows.columns["preemptions"][:used].copy()
    if not count.interrupted:  # the last takes what comes after the arrivals
        for name, total in totals.items():
            total[-1] += bins[name][used:].sum()
        preemptions[-1] += windows.columns["preemptions"][used:].sum()
        bin_s[-1] = max(windows.width_s, count.last_finish_s - start_s[-1])
    replica_s = bin_s * len(fleet.state.replicas)
    busy_s = np.maximum(totals["busy_s"], 1e-300)
    blocks = fleet.engine.kv_blocks - 1
    return Series(
        start_s=start_s,
        busy_share=np.minimum(totals["busy_s"] / replica_s, 1.0),
        batch_requests=totals["batch_s"] / busy_s,
        waiting_requests=totals["waiting_s"] / busy_s,
        kv_share=np.minimum(totals["kv_block_s"] / (replica_s * blocks), 1.0),
        preemptions=preemptions,
    )
