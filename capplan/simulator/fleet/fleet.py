"""A fleet of replicas that serves a trace in chunks as it arrives."""

import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.simulator.drivers.open_loop import NO_DRAIN, drain, run
from capplan.simulator.fleet.front_end import FrontEnd
from capplan.simulator.fleet.pool_state import MOST_AT_ONCE, Options
from capplan.simulator.fleet.serving_pool import ServingPool
from capplan.simulator.fleet.tournament import with_trees
from capplan.simulator.jit import direct
from capplan.simulator.results.bins import Bins
from capplan.simulator.state import Needs, State
from capplan.workload.trace import Trace

_FIRST_CHUNK = 5_000
_PERIOD_S = 0.25
_DRAIN_STEPS = 64  # after the last arrival, for as long as the arrivals took
_LEAST_DRAIN_S = 60.0

Stopped = Callable[[], bool]
"""Called several times a second; True stops the simulation early."""


class Pace:
    """How many requests are served between two questions to stop."""

    def __init__(self) -> None:
        self.count = _FIRST_CHUNK

    def note(self, began_s: float) -> None:
        """Set it by the time that the last ones took."""
        took_s = max(time.perf_counter() - began_s, 1e-6)
        growth = min(max(_PERIOD_S / took_s, 0.1), 2.0)
        self.count = min(max(int(self.count * growth), 100), MOST_AT_ONCE)


def drain_steps_s(first_s: float, last_s: float) -> Iterator[float]:
    """Yield moments after the last arrival, a share of the arrivals' time apart. [s]"""
    step_s = max((last_s - first_s) / _DRAIN_STEPS, _LEAST_DRAIN_S)
    until_s, steps = last_s, 0
    while True:
        steps += 1
        until_s += step_s
        if steps % _DRAIN_STEPS == 0:
            step_s *= 2
        yield until_s


class Fleet:
    """Pools of replicas that serve a trace chunk by chunk; here one, which stays.

    Memory grows with the requests outstanding at once, not with the trace.
    """

    def __init__(
        self,
        deployment: Deployment,
        options: Options,
        pools: Sequence[ServingPool] = (),
    ) -> None:
        self.pools = pools or (
            ServingPool(deployment.pool, deployment.router, options),
        )
        self._first = first = self.pools[0]
        if not pools and first.needs == Needs.COUNTS:
            first.state = with_trees(first.state)
        self._processes = first.replica_count * first.engine.api_server_count
        times_s = (first.tables.request_s, first.tables.api_request_s)
        self._front_end = FrontEnd(self._processes, *times_s)
        self.generator = np.random.default_rng(options.seed)
        self._served = 0
        self._pace = Pace()
        self.last_arrival_s = -math.inf

    @property
    def moved(self) -> np.ndarray | None:
        """Migrations that ended, records of dtype MOVE; None: no request moves."""
        return None

    @property
    def lives(self) -> np.ndarray | None:
        """Lives of the replicas, records of dtype LIFE; None: they are always there."""
        return None

    @property
    def state(self) -> State:
        """The arrays of its first pool."""
        return self._first.state

    @property
    def bins(self) -> Bins:
        """Bins of time of the last pool; those of the other are as wide."""
        return self.pools[-1].bins

    @property
    def served(self) -> int:
        """Requests that have reached a replica, or wait for one."""
        return self._served

    @property
    def outstanding(self) -> int:
        """Requests arrived and not finished."""
        return self._first.outstanding

    def serve_all(self, trace: Trace) -> Iterator[np.ndarray]:
        """Serve a whole trace; yield the finished requests as they come.

        What is yielded, here and below, holds until the next is asked for.
        """
        yield from self.serve_in_chunks(trace)
        yield from self.finish()

    def serve_in_chunks(
        self,
        trace: Trace,
        stopped: Stopped | None = None,
        first: int = 0,
        end: int | None = None,
    ) -> Iterator[np.ndarray]:
        """Serve rows ``first`` to ``end`` of a trace; yield the finished requests.

        Now and then, as ``Pace`` says, ``stopped`` is asked.
        """
        before = self.served - first
        last = before + (len(trace) if end is None else end)

        def serve(until_row: int) -> Iterator[np.ndarray]:
            return self.serve(trace, slice(self.served - before, until_row - before))

        yield from self._paced(last, serve, stopped)

    def _paced(
        self,
        last: int,
        serve: Callable[[int], Iterator[np.ndarray]],
        stopped: Stopped | None,
    ) -> Iterator[np.ndarray]:
        """Serve until so many have been served, a pace at a time."""
        while self.served < last and not (stopped is not None and stopped()):
            began_s = time.perf_counter()
            yield from serve(min(self.served + self._pace.count, last))
            self._pace.note(began_s)

    def serve(self, trace: Trace, rows: slice = slice(None)) -> Iterator[np.ndarray]:
        """Let the requests of a chunk arrive; yield finished requests (``RESULT``)."""
        assert trace.arrival_s is not None
        pool = self._first
        arrival_s = trace.arrival_s[rows]
        self.bins.reach(float(arrival_s[0]))
        self.last_arrival_s = float(arrival_s[-1])
        reaches_s = self._front_end.reaches_s(arrival_s)
        arrivals = pool.taken(trace, rows, arrival_s, reaches_s)
        n = len(arrival_s)
        pool.set_draws(self.generator.random((n, 2)))
        row = 0
        while row < n:
            row = direct(run)(pool.side, arrivals, row, self.served, NO_DRAIN)
            pool.check_stuck()
            yield pool.take_results()
            if row < n:
                pool.make_room()
        self._served += n

    def finish(self, stopped: Stopped | None = None) -> Iterator[np.ndarray]:
        """Let all requests that have arrived finish; yield them (``RESULT``).

        In steps of a share of the arrivals' span, so that ``stopped`` is called often.
        """
        moments_s = drain_steps_s(self.bins.first_s, self.last_arrival_s)
        while self.outstanding and not (stopped is not None and stopped()):
            yield from self._go_to(next(moments_s))
        for pool in self.pools:
            pool.take_log()
            pool.warn_of_long_iterations()

    def _go_to(self, moment_s: float) -> Iterator[np.ndarray]:
        """Let every replica do what it does before a moment; yield what finishes."""
        for pool in self.pools:
            while not drain(pool.side, moment_s):
                yield from self._results()
                self._make_room()
            pool.check_stuck()
        yield from self._results()

    def _make_room(self) -> None:
        """Empty the logs; double the slots of a pool that has none free."""
        for pool in self.pools:
            pool.make_room()

    def _results(self) -> Iterator[np.ndarray]:
        for pool in self.pools:
            yield pool.take_results()
