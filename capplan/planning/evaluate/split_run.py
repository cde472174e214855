"""Pools side by side: each simulated by itself with its part of the requests."""

from dataclasses import fields, replace

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.planning.evaluate.known_runs import Simulate
from capplan.simulator.fleet.fleet import Stopped
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.times import PoolUse, Series, Simulation, totals
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace


def split_simulation(simulate_with: Simulate) -> Simulate:
    """Return what simulates a deployment with a split, of what simulates one pool."""

    def simulated(
        trace: Trace,
        deployment: Deployment,
        *,
        slo: Slo | None,
        seed: int,
        stopped: Stopped | None = None,
    ) -> Simulation:
        assert deployment.split is not None
        pool_of = deployment.split.pools_of(trace)
        parts: list[tuple[np.ndarray, Simulation | None]] = []
        for index, alone in enumerate(deployment.side_by_side):
            rows = np.flatnonzero(pool_of == index)
            part = None
            if len(rows):
                part = simulate_with(
                    trace.select(rows), alone, slo=slo, seed=seed, stopped=stopped
                )
            parts.append((rows, part))
        return _merged(trace, deployment, parts)

    return simulated


def _merged(
    trace: Trace,
    deployment: Deployment,
    parts: list[tuple[np.ndarray, Simulation | None]],
) -> Simulation:
    """Return the simulations of the pools as one."""
    found = [(rows, part) for rows, part in parts if part is not None]
    columns = {}
    for field in fields(RequestTimes):
        first = getattr(found[0][1].table, field.name)
        column = np.zeros(len(trace), first.dtype)
        for rows, part in found:
            values = getattr(part.table, field.name)
            if values.any():  # many columns are 0: their memory is not touched
                column[rows] = values
        columns[field.name] = column
    before = 0
    for pool, (rows, _) in zip(deployment.pools, parts, strict=True):
        columns["replica"][rows] += before
        before += pool.replica_count
    times = RequestTimes(**columns)
    finest = max((part.series for _, part in found), key=lambda each: len(each.start_s))
    uses = tuple(
        _unused(pool.replica_count, finest)
        if part is None
        else replace(part.pools[0], series=_in_bins(part.series, finest.start_s))
        for pool, (_, part) in zip(deployment.pools, parts, strict=True)
    )
    return Simulation(
        times=times,
        totals=totals(times),
        pools=uses,
        class_names=trace.class_names,
        arrived_count=sum(part.arrived_count for _, part in found),
        completed=sum(part.completed for _, part in found),
    )


def _in_bins(series: Series, start_s: np.ndarray) -> Series:
    """Return a series in other bins: each has the values of the one it begins in.

    After its last bin nothing runs.
    """
    at = np.searchsorted(series.start_s, start_s, side="right") - 1
    width_s = series.start_s[-1] - series.start_s[-2] if len(series.start_s) > 1 else 0
    runs = (at >= 0) & (start_s <= series.start_s[-1] + width_s)
    columns = {
        field.name: np.where(runs, getattr(series, field.name)[np.maximum(at, 0)], 0)
        for field in fields(Series)
        if field.name not in ("start_s", "preemptions")
    }
    bins = np.clip(np.searchsorted(start_s, series.start_s, side="right") - 1, 0, None)
    preemptions = np.bincount(bins, series.preemptions, len(start_s))
    return Series(start_s=start_s, preemptions=preemptions, **columns)


def _unused(replica_count: int, like: Series) -> PoolUse:
    """Return what a pool did that got no request."""
    nothing = np.zeros(len(like.start_s))
    columns = {field.name: nothing for field in fields(Series)}
    series = Series(**{**columns, "start_s": like.start_s})
    return PoolUse(replica_count, 0, 0.0, series)
