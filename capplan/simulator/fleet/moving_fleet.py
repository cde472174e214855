"""A fleet whose users wait for answers, or between whose replicas requests move."""

import math
import time
from collections.abc import Callable, Generator, Iterator

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.simulator.drivers import stepping
from capplan.simulator.drivers.open_loop import NO_ARRIVALS, NO_TIMES, read_only
from capplan.simulator.drivers.users import (
    Index,
    conversing,
    last_asked_s,
    nobody,
    thinking,
)
from capplan.simulator.fleet.beats import DISPATCH, knowing, note_finished
from capplan.simulator.fleet.between import between, pulling_policy
from capplan.simulator.fleet.fleet import Fleet, Stopped
from capplan.simulator.fleet.motion import ANSWERS, MOVE, REBALANCE, Setting, motion
from capplan.simulator.fleet.motion import Index as Moving
from capplan.simulator.fleet.pool_state import Options
from capplan.simulator.fleet.replicas import Replicas
from capplan.simulator.fleet.serving_pool import ServingPool
from capplan.simulator.fleet.ticks import Ticks
from capplan.simulator.jit import direct, pointer
from capplan.simulator.state import NONE, ROUTE, RUN_GROUP, SCHEDULE, Count, Schedules
from capplan.workload.trace import Trace


class MovingFleet(Fleet):
    """Pools of replicas that an event loop drives (``drivers/one_pool.py``)."""

    def __init__(self, deployment: Deployment, options: Options) -> None:
        prefills = deployment.pools[0].replica_count
        routers = (deployment.router, deployment.decode_router or deployment.router)
        disaggregated = len(deployment.pools) > 1
        senders = prefills * deployment.pools[0].configuration.engine.data_parallel_size
        pulling = pulling_policy(deployment) if disaggregated else None
        pools = tuple(
            ServingPool(
                pool,
                router,
                options,
                scheduler=pulling if index else None,
                senders=senders if index else 0,
                is_watched=deployment.is_watched,
            )
            for index, (pool, router) in enumerate(
                zip(deployment.pools, routers, strict=False)
            )
        )
        super().__init__(deployment, options, pools)
        self._second = pools[1] if disaggregated else None
        self._run_pools = direct(_driver(disaggregated, deployment))
        slots = len(self._first.state.requests)
        others = 0 if self._second is None else self._second.replica_count
        self._replicas = Replicas(
            self._first, motion(slots, prefills, others), deployment.changes
        )
        self._between = between(deployment, pools, self._replicas.motion)
        tables = self._first.tables
        times_s = (tables.request_s, tables.api_request_s)
        self._front_s = np.array([*times_s, pools[-1].tables.prompt_token_s])
        self._users = nobody()
        self._asked_until_s = math.inf
        self._moved = [np.zeros(0, MOVE)] if deployment.rebalancer else None
        self._finished = 0
        self._has_changes = deployment.is_changing
        self._has_beats = bool(deployment.dispatcher)
        self._requests = NO_ARRIVALS
        self._think_s = NO_TIMES
        self._ticks = Ticks(deployment)
        if deployment.autoscaler:
            self._prepare_ticks()

    def _prepare_ticks(self) -> None:
        """Let the core be called at every tick without a look at its arguments."""
        pool, own = self._first, self._between
        pool.route = pointer(pool.route, ROUTE)
        pool.schedule = Schedules(
            pointer(pool.schedule.alone, SCHEDULE),
            pointer(pool.schedule.together, RUN_GROUP),
        )
        self._between = own._replace(
            rebalance=pointer(own.rebalance, REBALANCE),
            dispatch=pointer(own.dispatch, DISPATCH),
        )

    @property
    def moved(self) -> np.ndarray | None:
        """Migrations that ended, records of dtype MOVE; None: no rebalancer."""
        return None if self._moved is None else np.concatenate(self._moved)

    @property
    def served(self) -> int:
        """Requests that have reached a replica, or wait for one."""
        return int(self._users.counts[Index.DELIVERED])

    @property
    def outstanding(self) -> int:
        """Requests arrived and not finished."""
        return self.served - self._finished

    @property
    def lives(self) -> np.ndarray | None:
        """Lives of the replicas, records of dtype LIFE; None: they are always there."""
        return self._replicas.lives.lives() if self._has_changes else None

    def _reach(self, moment_s: float) -> None:
        for pool in self.pools:
            pool.bins.reach(moment_s)

    def _taken(
        self, trace: Trace, rows: slice, arrival_s: np.ndarray, reaches_s: np.ndarray
    ) -> None:
        """Let requests be the ones that arrive or are asked next."""
        if self._has_beats and not self._replicas.motion.past.size:
            self._replicas.motion = knowing(self._replicas.motion, trace)
        draws = self.generator.random((len(arrival_s), 2))
        for pool in self.pools:
            self._requests = pool.taken(trace, rows, arrival_s, reaches_s)
            pool.set_draws(draws)

    def _run(self, until_row: int, until_s: float, known_until_s: float) -> int:
        """Go on until a row or a moment; return why it stopped, see ``stepping.py``."""
        first, second = self._first, self._second
        known = (
            self._replicas.motion,
            self._users,
            self._requests,
            self._think_s,
            stepping.Until(until_row, until_s, known_until_s, self._asked_until_s),
        )
        if second is None:
            if len(self._users.ask_s):  # replicas may have changed in between
                self._replicas.motion.wake_s[:] = first.state.replicas["wake_s"]
            own = (self._between.rebalance, self._between.dispatch)
            why = int(self._run_pools(first.side, *known, *own))
        else:
            where = self._between.where
            why = int(self._run_pools(first.side, second.side, *known, where))
        for pool in self.pools:
            pool.check_stuck()
        self._take_moved()
        return why

    def _take_moved(self) -> None:
        count = int(self._replicas.motion.counts[Moving.MOVED])
        if count and self._moved is not None:
            self._moved.append(np.array(self._replicas.motion.moved[:count]))
            self._replicas.motion.counts[Moving.MOVED] = 0

    def _make_room(self) -> None:
        super()._make_room()
        self._replicas.make_room()

    def _go_on(
        self, until_row: int = -1, until_s: float = math.inf
    ) -> Generator[np.ndarray, None, int]:
        """Go on until a row or a moment, with what falls due before.

        Yields the finished requests; returns why it stopped.
        """
        while True:
            due_s = min(self._replicas.lives.next_s, self._ticks.next_s)
            ticks = self._ticks.next_s < self._replicas.lives.next_s
            moment_s = min(due_s, until_s)
            known_s = math.nextafter(due_s, math.inf) if ticks else moment_s
            why = self._run(until_row, moment_s, min(known_s, until_s))
            if why == stepping.ROOM:
                yield from self._results()
                if self.served == until_row:
                    return stepping.ROOM
                self._make_room()
            elif why == stepping.DONE and not (self.outstanding and due_s < math.inf):
                return stepping.DONE
            elif due_s >= until_s:
                return stepping.TIME
            elif ticks:
                yield from self._tick(due_s)
            else:
                yield from self._change(due_s)

    def serve_users(
        self,
        trace: Trace,
        stopped: Stopped | None = None,
    ) -> Iterator[np.ndarray]:
        """Let users ask for the requests of a trace; yield the finished requests."""
        assert trace.think_s is not None
        n = len(trace)
        unknown_s = read_only(np.zeros(n), np.float64)
        self._taken(trace, slice(None), unknown_s, unknown_s)
        self._think_s = read_only(trace.think_s, np.float64)
        self._asked_until_s = trace.asked_until_s
        front = self._processes, self._front_s
        if trace.has_waits:
            users = conversing(trace, *front)
        else:
            users = thinking(self._think_s[: trace.users], *front, trace.in_turn)
        self._users = users
        self._replicas.motion.settings[Setting.COUPLES] = ANSWERS
        self._reach(float(users.ask_s[0]))
        self._ticks.begin(trace, float(users.ask_s[0]))
        why = stepping.ROOM
        while why != stepping.DONE and not (stopped is not None and stopped()):
            began_s = time.perf_counter()
            until_row = self.served + self._pace.count
            if until_row >= n:
                until_row = n + 1  # then on to the last answer
            why = yield from self._go_on(until_row, self.bins.end_s)
            self.last_arrival_s = last_asked_s(users)
            yield from self._results()
            if why == stepping.TIME:
                self._reach(self.bins.end_s + 0.5 * self.bins.width_s)
            self._pace.note(began_s)
        for pool in self.pools:
            pool.bins.use_until(self.last_arrival_s)

    def serve_in_chunks(
        self,
        trace: Trace,
        stopped: Stopped | None = None,
        first: int = 0,
        end: int | None = None,
    ) -> Iterator[np.ndarray]:
        """Serve rows ``first`` to ``end`` of a trace; yield the finished requests."""
        assert trace.arrival_s is not None
        rows = slice(first, len(trace) if end is None else end)
        arrival_s = trace.arrival_s[rows]
        self._reach(float(arrival_s[0]))
        self.last_arrival_s = float(arrival_s[-1])
        reaches_s = self._front_end.reaches_s(arrival_s)
        self._taken(trace, rows, arrival_s, reaches_s)
        self._ticks.begin(trace, float(arrival_s[0]))
        self._users.counts[Index.FIRST] = self.served
        last = self.served + len(arrival_s)
        yield from self._paced(last, self._go_on, stopped)

    def finish(self, stopped: Stopped | None = None) -> Iterator[np.ndarray]:
        """Let all requests that have arrived finish; yield them (``RESULT``)."""
        self._requests = NO_ARRIVALS
        self._users.counts[Index.FIRST] = self.served
        yield from super().finish(stopped)
        self._replicas.end_drained()

    def _go_to(self, moment_s: float) -> Iterator[np.ndarray]:
        """Go on until a moment, and let every replica come there."""
        yield from self._go_on(until_s=moment_s)
        yield from super()._go_to(moment_s)
        if self._holds() and not self._may_come and not self._replicas.lives.open:
            raise InputError(
                "requests wait, and no replica is left; expected one at least"
            )

    @property
    def _may_come(self) -> bool:
        """Whether another replica may still come up."""
        return min(self._replicas.lives.next_s, self._ticks.next_s) < math.inf

    def _note_finished(self) -> None:
        """Let the dispatcher know of what has finished, while the rows are as then."""
        if self._has_beats:
            note_finished(self._first.state, self._replicas.motion)

    def _results(self) -> Iterator[np.ndarray]:
        self._note_finished()
        self._replicas.motion.counts[Moving.NOTED] = 0
        for done in super()._results():
            self._finished += len(done)
            yield done

    def _holds(self) -> bool:
        """Return whether requests wait since no replica is open."""
        return bool(self._replicas.motion.counts[Moving.HELD_FIRST] != NONE)

    def _change(self, now_s: float) -> Iterator[np.ndarray]:
        """Let replicas come, close or die; all before that moment has happened."""
        self._note_finished()
        change = self._replicas.lives.take()
        if change.kind == "up":
            ordered_s = now_s if change.ordered_s is None else change.ordered_s
            for _ in range(change.count):
                self._replicas.open(ordered_s, now_s)
        elif change.of <= self._replicas.lives.open:
            if change.kind == "fail":  # they come to the moment at which they die
                yield from super()._go_to(now_s)
            self._replicas.close(now_s, change.kind, change.count)
        if self._replicas.lives.next_s == now_s:  # all changes of a moment come first
            return
        while self._holds() and self._replicas.lives.open and not self._has_beats:
            from capplan.simulator.drivers.placing import place

            direct(place)(self._first.side, self._replicas.motion, now_s)
            if self._holds():
                yield from self._results()
                self._make_room()

    def _tick(self, now_s: float) -> Iterator[np.ndarray]:
        """Let the autoscaler order or close replicas, after all events until now."""
        waiting = int(self._first.state.counts[Count.RESULTS])
        while not self._ticks.tick(
            self._first, self._replicas, self.served, self._finished + waiting
        ):
            yield from self._results()
            self._make_room()


def _driver(disaggregated: bool, deployment: Deployment) -> Callable[..., int]:
    """Return the event loop of one pool or of two, compiled where it is used."""
    if disaggregated:
        from capplan.simulator.drivers.two_pools import run as run_two

        return run_two
    from capplan.simulator.drivers.one_pool import driver

    run_one: Callable[..., int] = driver(
        moves=bool(deployment.rebalancer or deployment.dispatcher)
    )
    return run_one
