"""Simulate a deployment that serves requests.

Names, dataclasses and checks stop here; the compiled core sees arrays.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.simulator.checks import (
    check_deployment,
    refuse_adapters,
    refuse_chunks,
    refuse_images,
    refuse_oversized,
    refuse_turns,
    refuse_without_keys,
    served_by,
)
from capplan.simulator.fleet.fleet import Fleet, Stopped
from capplan.simulator.fleet.pool_state import UNBOUNDED_JUMP, Options
from capplan.simulator.results.sketches import Sketches
from capplan.simulator.results.table import Table
from capplan.simulator.results.times import Simulation
from capplan.simulator.results.windows import FIRST_WIDTH_S, WINDOWS
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

Sink = Table | Sketches
"""What becomes of the finished requests."""


def simulate(
    requests: Trace | Iterable[Trace],
    deployment: Deployment,
    *,
    slo: Slo | None = None,
    seed: int = 0,
    sink: Sink | None = None,
    record_iterations: bool = False,
    longest_jump: int = UNBOUNDED_JUMP,
    stopped: Stopped | None = None,
) -> Simulation:
    """Return the simulation of a deployment that serves requests.

    They are a trace, or its chunks in order of arrival, with the same class indices;
    users (``Trace.users``) ask for a whole trace. Policies that look at SLOs meet the
    strictest limits of the classes. ``seed`` is of the router's choices. What finishes
    goes to ``sink``: a table, or ``Sketches``, in memory that does not grow. The result
    does not depend on ``longest_jump``, the decode iterations that run at once.
    ``stopped`` is asked several times a second whether the simulation ends there.
    """
    moves = deployment.is_in_motion
    check_deployment(deployment)
    whole = requests if isinstance(requests, Trace) else None
    chunks = (requests,) if isinstance(requests, Trace) else requests
    names = None if whole is None else whole.class_names
    waits = whole is not None and (whole.users > 0 or whole.has_waits)
    options = Options(
        limits=RequestSlo() if slo is None else slo.strictest(names),
        slo=slo,
        seed=seed,
        bin_width_s=_bin_width_s(whole),
        record_iterations=record_iterations,
        longest_jump=longest_jump,
        chunk=None if whole is None else len(whole),
        of_turns=whole is not None and whole.has_turns,
    )
    fleet = _fleet_class(moves or waits)(deployment, options)
    sink = sink or Table()
    last_arrival_s = -np.inf
    for chunk in chunks:
        if fleet.served == 0:
            refuse_turns(chunk, deployment, whole is not None)
            if whole is None:
                refuse_chunks(deployment)
            for router in filter(None, (deployment.router, deployment.decode_router)):
                refuse_without_keys(chunk, router)
        for pool, part in zip(
            deployment.pools, served_by(chunk, deployment), strict=True
        ):
            refuse_adapters(part, pool.configuration.engine)
            refuse_images(part, pool.configuration.engine)
            refuse_oversized(part, pool.configuration.engine, fleet.served)
        if chunk.users or chunk.has_waits:
            return _closed(chunk, fleet, sink, stopped)
        arrival_s = _in_order(chunk, last_arrival_s)
        last_arrival_s = float(arrival_s[-1])
        sink.expect(chunk)
        first = end = 0
        while first == end < len(chunk):
            fleet.bins.reach(float(arrival_s[first]))
            end = int(np.searchsorted(arrival_s, fleet.bins.end_s))
            sink.reach(float(arrival_s[first]))
            before = fleet.served
            for done in fleet.serve_in_chunks(chunk, stopped, first, end):
                sink.put(done)
            first += fleet.served - before
        if first < len(chunk):
            return sink.simulation(fleet, stopped=True)
    if last_arrival_s == -np.inf:
        raise InputError("no requests; expected at least one")
    for done in fleet.finish(stopped):
        sink.put(done)
    return sink.simulation(fleet, stopped=fleet.outstanding > 0)


def _fleet_class(moves: bool) -> Any:
    """Return the class of the fleet: the event loop is compiled where it is used."""
    if not moves:
        return Fleet
    from capplan.simulator.fleet.moving_fleet import MovingFleet

    return MovingFleet


def _closed(
    trace: Trace,
    fleet: Any,
    sink: Sink,
    stopped: Stopped | None,
) -> Simulation:
    """Return the simulation of users who wait for their answers."""
    sink.expect(trace)
    for done in fleet.serve_users(trace, stopped):
        sink.reach(fleet.bins.reached_s)
        sink.put(done)
    for done in fleet.finish(stopped):
        sink.put(done)
    return sink.simulation(fleet, stopped=fleet.outstanding > 0)


def _bin_width_s(trace: Trace | None) -> float:
    """Return the width of time bins that reach beyond the last arrival. [s]

    Where that is not known, the smallest: they are widened on the way.
    """
    if trace is None or trace.arrival_s is None or trace.has_waits:
        return FIRST_WIDTH_S
    return max(trace.duration_s, 1e-9) / WINDOWS * 1.02


def _in_order(chunk: Trace, last_arrival_s: float) -> np.ndarray:
    """Return the arrivals of a chunk; refuse what has none or comes too late. [s]"""
    arrival_s = chunk.arrival_s
    if arrival_s is None:
        raise InputError(
            f"{chunk.source}: no arrival times; give a rate or an arrival process"
        )
    if arrival_s[0] < last_arrival_s:
        raise InputError(
            f"{chunk.source}: a request arrives at {arrival_s[0]} s, after one at "
            f"{last_arrival_s} s; sort the trace to stream it"
        )
    return arrival_s
