"""Simulations that several plans share: the same requests on the same fleet."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from threading import Lock
from typing import Any

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.simulator.fleet.fleet import Stopped
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.times import Simulation
from capplan.simulator.routers import parse_router
from capplan.simulator.schedulers.own_file import file_of
from capplan.simulator.simulate import simulate
from capplan.workload.slo import LIMITS, Slo
from capplan.workload.trace import COLUMNS, Trace

MOST_BYTES = 2**30
"""Memory that simulations kept for other plans take at most. [bytes]"""
_MOST_REQUESTS = 200_000
"""Requests of a simulation that is kept: longer ones are of a plan's last count."""
_SEES_SLOS = ("best-fit",)
"""Routers that look at the limits."""

Simulate = Callable[..., Simulation]
"""Simulates as :func:`capplan.simulator.simulate.simulate` does."""


def scheduler_sees_slos(engine: EngineSettings) -> bool:
    """Return whether what an engine runs next depends on the limits of requests."""
    name = engine.scheduler.name
    return bool(engine.scheduler.rules.slos or file_of(name))


def sees_slos(deployment: Deployment, slo: Slo | None, names: tuple[str, ...]) -> bool:
    """Return whether a simulation depends on the limits that it is judged by.

    Gaps above a limit are counted while it runs, so that a TBT limit is one it sees.
    """
    routers = filter(None, (deployment.router, deployment.decode_router))
    if deployment.dispatcher or deployment.autoscaler or deployment.rebalancer:
        return True
    if any(parse_router(router).name in _SEES_SLOS for router in routers):
        return True
    if any(scheduler_sees_slos(pool.configuration.engine) for pool in deployment.pools):
        return True
    return slo is not None and bool(
        np.isfinite(slo.table(names)[:, LIMITS.index("tbt")]).any()
    )


class KnownRuns:
    """Simulates; returns what was simulated before where nothing differs.

    The SLO is no difference where the simulation does not depend on it. Those used
    last are kept.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        # with what a key is the identity of, so that it stays the only one
        self._known: OrderedDict[Any, tuple[Simulation, Deployment, int]]
        self._known = OrderedDict()
        self._lock = Lock()
        self.found = 0  # simulations that were known

    def __call__(
        self,
        trace: Trace,
        deployment: Deployment,
        *,
        slo: Slo | None,
        seed: int,
        stopped: Stopped | None,
    ) -> Simulation:
        """Return the simulation of a deployment that serves a trace."""
        if trace.users or trace.has_waits or len(trace) > _MOST_REQUESTS:
            return simulate(trace, deployment, slo=slo, seed=seed, stopped=stopped)
        key = _key(trace, deployment, slo, seed)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                self.found += 1
                return known[0]
        found = simulate(trace, deployment, slo=slo, seed=seed, stopped=stopped)
        if found.interrupted:
            return found
        found = _compact(found)
        self._keep(key, found, deployment)
        return found

    def forget(self) -> None:
        """Forget all: other requests follow."""
        with self._lock:
            self._known.clear()
            self._bytes = 0

    def _keep(self, key: Any, found: Simulation, deployment: Deployment) -> None:
        size = _size(found.table)
        with self._lock:
            if key in self._known or size > self._most_bytes:
                return
            self._known[key] = found, deployment, size
            self._bytes += size
            while self._bytes > self._most_bytes:
                _, (_, _, oldest) = self._known.popitem(last=False)
                self._bytes -= oldest


def _key(trace: Trace, deployment: Deployment, slo: Slo | None, seed: int) -> Any:
    pools = tuple(
        (id(pool.configuration.tables), pool.configuration.engine, pool.replica_count)
        for pool in deployment.pools
    )
    limits = b""
    if sees_slos(deployment, slo, trace.class_names) and slo is not None:
        limits = slo.table(trace.class_names).tobytes()
    rest = [getattr(deployment, each.name) for each in fields(deployment)[1:]]
    return seed, digest(trace), pools, tuple(rest), limits


def digest(trace: Trace, names: Iterable[str] = COLUMNS) -> bytes:
    """Return what tells columns of a trace from those of others."""
    found = hashlib.blake2b(str(len(trace)).encode(), digest_size=16)
    for name in names:
        column = getattr(trace, name)
        if column is None:
            continue
        if trace.is_default(name) or (
            column[0] == column[-1] and (column == column[0]).all()
        ):
            column = column[:1]  # most columns of most traces
        found.update(name.encode())
        found.update(column.data)
    return found.digest()


def _compact(simulation: Simulation) -> Simulation:
    """Return a simulation with columns of zeros that take no memory."""
    times = simulation.table
    columns = {field.name: getattr(times, field.name) for field in fields(times)}
    small = {
        name: np.broadcast_to(column.dtype.type(0), column.shape)
        for name, column in columns.items()
        if not column.any()
    }
    return replace(simulation, times=RequestTimes(**{**columns, **small}))


def _size(times: RequestTimes) -> int:
    """Return the memory of a table. [bytes]"""
    columns = [getattr(times, field.name) for field in fields(times)]
    return sum(column.nbytes for column in columns if column.strides != (0,))
