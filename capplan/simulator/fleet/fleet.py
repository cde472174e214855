"""A fleet of replicas that serves a trace in chunks as it arrives."""

import math
import time
from collections.abc import Callable, Iterator

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
_PROGRESS_PERIOD_S = 0.25
_DRAIN_STEPS = 64  # after the last arrival, for as long as the arrivals took
_LEAST_DRAIN_S = 60.0

Progress = Callable[[int], None]
"""Called several times a second with the number of requests that have arrived."""
Stopped = Callable[[], bool]
"""Called several times a second; True stops the simulation early."""


class Pace:
    """How many requests are served between two progress calls."""

    def __init__(self) -> None:
        self.count = _FIRST_CHUNK

    def note(self, began_s: float) -> None:
        """Set it by the time that the last ones took."""
        took_s = max(time.perf_counter() - began_s, 1e-6)
        growth = min(max(_PROGRESS_PERIOD_S / took_s, 0.1), 2.0)
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
    """Replicas of one pool that serve a trace chunk by chunk.

    Memory grows with the requests outstanding at once, not with the trace.
    """

    def __init__(self, deployment: Deployment, options: Options) -> None:
        self._pool = ServingPool(deployment.pool, deployment.router, options)
        if self._pool.needs == Needs.COUNTS:
            self._pool.state = with_trees(self._pool.state)
        self.pools = (self._pool,)
        tables, engine = self._pool.tables, self._pool.engine
        self._front_end = FrontEnd(
            deployment.pool.replica_count * engine.api_server_count,
            tables.request_s,
            tables.api_request_s,
        )
        self.generator = np.random.default_rng(options.seed)
        self.served = 0
        self._pace = Pace()
        self.last_arrival_s = -math.inf

    @property
    def state(self) -> State:
        """The arrays of its pool."""
        return self._pool.state

    @property
    def bins(self) -> Bins:
        """Its bins of time."""
        return self._pool.bins

    moved = lives = None  # no request moves, and replicas are always there

    @property
    def outstanding(self) -> int:
        """Requests arrived and not finished."""
        return self._pool.outstanding

    def serve_all(
        self,
        trace: Trace,
        progress: Progress | None = None,
        stopped: Stopped | None = None,
    ) -> Iterator[np.ndarray]:
        """Serve a whole trace; yield the finished requests as they come.

        What is yielded, here and below, holds until the next is asked for.
        """
        yield from self.serve_in_chunks(trace, progress, stopped)
        yield from self.finish(stopped)

    def serve_in_chunks(
        self,
        trace: Trace,
        progress: Progress | None = None,
        stopped: Stopped | None = None,
        first: int = 0,
        end: int | None = None,
    ) -> Iterator[np.ndarray]:
        """Serve rows ``first`` to ``end`` of a trace; yield the finished requests.

        Now and then, as ``Pace`` says, ``progress`` and ``stopped`` are called.
        """
        already = self.served - first
        end = len(trace) if end is None else end
        while first < end and not (stopped is not None and stopped()):
            began_s = time.perf_counter()
            rows = slice(first, min(first + self._pace.count, end))
            yield from self.serve(trace, rows)
            first = self.served - already
            if progress is not None:
                progress(self.served)
            self._pace.note(began_s)

    def serve(self, trace: Trace, rows: slice = slice(None)) -> Iterator[np.ndarray]:
        """Let the requests of a chunk arrive; yield finished requests (``RESULT``)."""
        assert trace.arrival_s is not None
        pool = self._pool
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
        self.served += n

    def finish(self, stopped: Stopped | None = None) -> Iterator[np.ndarray]:
        """Let all requests that have arrived finish; yield them (``RESULT``).

        In steps of a share of the arrivals' span, so that ``stopped`` is called often.
        """
        pool = self._pool
        moments_s = drain_steps_s(self.bins.first_s, self.last_arrival_s)
        while self.outstanding and not (stopped is not None and stopped()):
            until_s = next(moments_s)
            while not drain(pool.side, until_s):
                yield pool.take_results()
                pool.make_room()
            pool.check_stuck()
            yield pool.take_results()
        pool.take_log()
        pool.warn_of_long_iterations()
