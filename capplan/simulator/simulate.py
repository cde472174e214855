"""Simulate a deployment that serves a trace, and keep the times of every request.

Names, dataclasses and checks stop here; the compiled core sees arrays.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.simulator.checks import (
    check_engine,
    check_scheduler,
    policy_settings,
    refuse_oversized,
)
from capplan.simulator.fleet import BINS, UNBOUNDED_JUMP, Fleet, Progress, Stopped
from capplan.simulator.series import fleet_series
from capplan.simulator.times import RequestTimes, Simulation, totals
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace


def simulate(
    trace: Trace,
    deployment: Deployment,
    *,
    slo: Slo | None = None,
    seed: int = 0,
    record_iterations: bool = False,
    longest_jump: int = UNBOUNDED_JUMP,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> Simulation:
    """Return the simulation of a deployment that serves a trace.

    The router ``best-fit:theta=0.5,gamma=0.5`` has a margin for prediction error and a
    share of the output that counts as context. Policies that
    look at SLOs meet the strictest limits of the classes; ``seed`` is of the router's
    random choices. With ``record_iterations`` every iteration is returned, each run by
    itself; else at most ``longest_jump`` decode iterations run at once, on which the
    result does not depend. ``progress`` is called with the number of requests that have
    arrived; when ``stopped`` says so, requests not finished have NaN times.
    """
    if trace.arrival_s is None:
        raise InputError(
            f"{trace.source}: no arrival times; give a rate or an arrival process"
        )
    engine = deployment.pool.configuration.engine
    check_engine(engine)
    check_scheduler(engine)
    refuse_oversized(trace, engine)
    span_s = max(float(trace.arrival_s[-1] - trace.arrival_s[0]), 1e-9)
    fleet = Fleet(
        deployment,
        settings=policy_settings(deployment.router, slo, trace.class_names),
        slo=slo,
        seed=seed,
        bins=(float(trace.arrival_s[0]), span_s / BINS * 1.02),
        record_iterations=record_iterations,
        longest_jump=longest_jump,
        chunk=len(trace),
    )
    columns = _Columns.empty(len(trace))
    for done in fleet.serve_all(trace, progress, stopped):
        columns.put(done, fleet.unused)
    return _simulation(trace, columns, fleet)


class _Columns(NamedTuple):
    """What is kept of the finished requests, one row per request of the trace."""

    scheduled_s: np.ndarray
    first_token_s: np.ndarray
    finish_s: np.ndarray
    longest_gap_s: np.ndarray
    late_gaps: np.ndarray
    replica: np.ndarray
    preemptions: np.ndarray
    cached_tokens: np.ndarray
    swaps: np.ndarray
    paused_s: np.ndarray

    @classmethod
    def empty(cls, n: int) -> "_Columns":
        """Return rows of requests that did not finish."""
        return cls(
            scheduled_s=np.full(n, np.nan),
            first_token_s=np.full(n, np.nan),
            finish_s=np.full(n, np.nan),
            longest_gap_s=np.zeros(n),
            late_gaps=np.zeros(n, np.int64),
            replica=np.zeros(n, np.int64),
            preemptions=np.zeros(n, np.int64),
            cached_tokens=np.zeros(n, np.int64),
            swaps=np.zeros(n, np.int64),
            paused_s=np.zeros(n),
        )

    def put(self, done: np.ndarray, unused: Collection[str]) -> None:
        """Write finished requests to their rows, while they are in the cache.

        Columns that are ``unused`` stay zero.
        """
        rows = done["row"]
        for name, column in self._asdict().items():
            if name not in unused:
                column[rows] = done[name]


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


def _simulation(trace: Trace, columns: _Columns, fleet: Fleet) -> Simulation:
    assert trace.arrival_s is not None
    times = RequestTimes(
        arrival_s=trace.arrival_s,
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
        request_class=trace.request_class,
        **columns._asdict(),
    )
    replicas = fleet.state.replicas
    settings = fleet.state.engine[0]
    first_s, width_s = settings.bins_start_s, settings.bin_width_s
    bins = len(fleet.state.bins)
    index = np.clip((times.finish_s - first_s) / width_s, 0, bins - 1)
    index = np.nan_to_num(index).astype(np.int64)
    start_s = first_s + width_s * np.arange(bins)
    return Simulation(
        times=times,
        totals=totals(times),
        series=fleet_series(
            fleet,
            start_s,
            np.bincount(index, times.preemptions, bins),
            float(np.nanmax(times.finish_s, initial=start_s[-1])),
        ),
        class_names=trace.class_names,
        replica_count=len(replicas),
        iteration_count=fleet.iteration_count,
        busy_s=float(fleet.state.bins["busy_s"].sum()),
        arrived_count=len(trace),
        completed=int(np.isfinite(columns.finish_s).sum()),
        iterations=fleet.iterations() if fleet.state.engine[0].recording else None,
    )
