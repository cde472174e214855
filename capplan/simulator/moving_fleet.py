"""A fleet whose users wait for answers, or between whose replicas requests move."""

import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from capplan.deployment.policy import Policy
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.simulator.bins import Bins
from capplan.simulator.drivers import event_loop
from capplan.simulator.drivers.open_loop import Arrivals, drain, read_only
from capplan.simulator.drivers.users import (
    Index,
    Users,
    last_asked_s,
    nobody,
    thinking,
)
from capplan.simulator.fleet import (
    MOST_AT_ONCE,
    Pace,
    Progress,
    Stopped,
    drain_steps_s,
)
from capplan.simulator.front_end import FrontEnd
from capplan.simulator.hand_offs import HAND_OFF, hand_off, parse_hand_off
from capplan.simulator.hand_offs.nixl import where as always_apart
from capplan.simulator.motion import MOVE, Motion, Setting, motion, never
from capplan.simulator.motion import Index as Moving
from capplan.simulator.rebalancers import parse_rebalancer, rebalancer
from capplan.simulator.schedulers import PULLING, scheduler
from capplan.simulator.serving_pool import UNBOUNDED_JUMP, ServingPool
from capplan.simulator.state import State, no_pool
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

MOVES = ("vllm-v1", "vllm-v1-priority")
"""Schedulers whose running requests can be moved."""
PULLS = ("vllm-v1",)
"""Schedulers that decode what was prefilled elsewhere."""
_UNLIMITED = RequestSlo()
_NO_TIMES = read_only(np.zeros(0), np.float64)
_NO_REQUESTS = Arrivals(_NO_TIMES, _NO_TIMES, *7 * [read_only(np.zeros(0), np.int64)])


class MovingFleet:
    """Pools of replicas that an event loop drives (``drivers/event_loop.py``)."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        seed: int,
        limits: RequestSlo = _UNLIMITED,
        slo: Slo | None = None,
        bin_width_s: float,
        record_iterations: bool = False,
        longest_jump: int = UNBOUNDED_JUMP,
        chunk: int | None = None,
    ) -> None:
        prefills = deployment.pools[0].replica_count
        routers = (deployment.router, deployment.decode_router or deployment.router)
        apart = len(deployment.pools) > 1
        pulling, own = _hand_off_of(deployment) if apart else (None, None)
        self.pools = tuple(
            ServingPool(
                pool,
                router,
                seed=seed,
                limits=limits,
                slo=slo,
                bin_width_s=bin_width_s,
                results=min(chunk or MOST_AT_ONCE, MOST_AT_ONCE),
                record_iterations=record_iterations,
                longest_jump=longest_jump,
                scheduler=pulling if index else None,
                senders=prefills if index else 0,
            )
            for index, (pool, router) in enumerate(
                zip(deployment.pools, routers, strict=False)
            )
        )
        self._first = self.pools[0]
        self._second = self.pools[1] if apart else None
        self._no_pool = no_pool()
        self._motion = self._new_motion()
        self._where: Callable[..., int] = always_apart
        self._rebalance: Callable[..., int] = never
        if own is not None:
            self._set_hand_off(own)
        if deployment.rebalancer:
            self._set_rebalancer(deployment)
        tables = self._first.tables
        self._processes = prefills * self._first.engine.api_server_count
        times_s = (tables.request_s, tables.api_request_s)
        self._front_end = FrontEnd(self._processes, *times_s)
        last = self.pools[-1].tables
        self._front_s = np.array([*times_s, last.prompt_token_s])
        self._users = nobody()
        self.generator = np.random.default_rng(seed)
        self._pace = Pace()
        self.last_arrival_s = -math.inf
        self._moved = [np.zeros(0, MOVE)] if deployment.rebalancer else None

    def _new_motion(self) -> Motion:
        slots = len(self._first.state.requests)
        others = 0 if self._second is None else self._second.replica_count
        return motion(slots, self._first.replica_count, others)

    def _set_hand_off(self, policy: Policy) -> None:
        assert self._second is not None
        file = hand_off(policy.name)
        self._where = file.where
        values = policy.values
        self._second.state.settings[HAND_OFF : HAND_OFF + len(values)] = values
        own = self._motion.settings
        own[Setting.COUPLES] = 1
        own[Setting.HOP_S] = policy.settings["hop"] + self._second.tables.request_s
        own[Setting.HOP_TOKEN_S] = self._first.tables.prompt_token_s
        own[Setting.AT_ARRIVAL] = int(file.AT_ARRIVAL)
        own[Setting.RECOMPUTES] = int(file.RECOMPUTES)

    def _set_rebalancer(self, deployment: Deployment) -> None:
        engine = self._first.engine
        policy = parse_rebalancer(deployment.rebalancer)
        if engine.scheduler.name not in MOVES:
            raise InputError(
                f"rebalancer {policy.name} moves running requests, which scheduler "
                f"{engine.scheduler.name} cannot; expected {' or '.join(MOVES)}"
            )
        self._rebalance = rebalancer(policy.name).rebalance
        settings = policy.settings
        if not settings["block"]:
            settings["block"] = deployment.block_copy_s
        self._motion.settings[: len(settings)] = list(settings.values())
        self._motion.settings[Setting.PERIOD_S] = settings["period"]

    @property
    def bins(self) -> Bins:
        """Bins of time of the last pool; those of the other are as wide."""
        return self.pools[-1].bins

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
        """Requests arrived and not finished.

        One whose prompt is computed apart may count in both pools.
        """
        return sum(pool.outstanding for pool in self.pools)

    def _reach(self, moment_s: float) -> None:
        for pool in self.pools:
            pool.bins.reach(moment_s)

    def _taken(
        self, trace: Trace, rows: slice, arrival_s: np.ndarray, reaches_s: np.ndarray
    ) -> Arrivals:
        draws = self.generator.random((len(arrival_s), 2))
        for pool in self.pools:
            arrivals = pool.taken(trace, rows, arrival_s, reaches_s)
            pool.set_draws(draws)
        return arrivals

    def _run(
        self,
        users: Users,
        requests: Arrivals,
        think_s: np.ndarray = _NO_TIMES,
        asked_until_s: float = math.inf,
        *,
        until_row: int,
        until_s: float = math.inf,
    ) -> int:
        """Go on until a row or a moment; return why it stopped, see ``event_loop``."""
        first, second = self._first, self._second or self._first
        why: int = event_loop.run(
            first.state,
            self._second_state,
            self._motion,
            users,
            requests,
            think_s,
            asked_until_s,
            until_row,
            until_s,
            until_s,
            first.needs,
            first.route,
            first.schedule,
            second.needs,
            second.route,
            second.schedule,
            self._rebalance,
            self._where,
        )
        for pool in self.pools:
            pool.check_stuck()
        self._take_moved()
        return why

    @property
    def _second_state(self) -> State:
        return self._no_pool if self._second is None else self._second.state

    def _take_moved(self) -> None:
        count = int(self._motion.counts[Moving.MOVED])
        self._motion.counts[Moving.MOVED] = 0
        if self._moved is not None and count:
            self._moved.append(np.array(self._motion.moved[:count]))

    def _make_room(self) -> None:
        """Empty the logs; double the slots of a pool that has none free."""
        grown = [pool.make_room() for pool in self.pools]
        if grown[0]:
            before = self._motion
            self._motion = after = self._new_motion()
            events = len(before.heap)
            after.heap[:events] = before.heap
            after.events[:events] = before.events
            kept = ("moves", "moved", "busy", "wake_s", "settings", "counts")
            for name in kept:
                getattr(after, name)[:] = getattr(before, name)

    def serve_users(
        self,
        trace: Trace,
        progress: Progress | None = None,
        stopped: Stopped | None = None,
    ) -> Iterator[np.ndarray]:
        """Let users ask for the requests of a trace; yield the finished requests."""
        assert trace.think_s is not None
        n = len(trace)
        unknown_s = read_only(np.zeros(n), np.float64)
        requests = self._taken(trace, slice(None), unknown_s, unknown_s)
        think_s = read_only(trace.think_s, np.float64)
        first_s = think_s[: trace.users]
        self._users = users = thinking(first_s, self._processes, self._front_s)
        self._motion.settings[Setting.COUPLES] = 2
        self._reach(float(users.ask_s[0]))
        why = event_loop.ROOM
        while why != event_loop.DONE and not (stopped is not None and stopped()):
            began_s = time.perf_counter()
            until_row = self.served + self._pace.count
            why = self._run(
                users,
                requests,
                think_s,
                trace.asked_until_s,
                until_row=until_row if until_row < n else n + 1,  # then to the end
                until_s=self.bins.end_s,
            )
            self.last_arrival_s = last_asked_s(users)
            yield from self._results()
            if why == event_loop.TIME:
                self._reach(self.bins.end_s + 0.5 * self.bins.width_s)
            elif why == event_loop.ROOM and self.served < until_row:
                self._make_room()
            if progress is not None:
                progress(self.served)
            self._pace.note(began_s)
        for pool in self.pools:
            pool.bins.use_until(self.last_arrival_s)

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
        assert trace.arrival_s is not None
        end = len(trace) if end is None else end
        rows = slice(first, end)
        arrival_s = trace.arrival_s[rows]
        self._reach(float(arrival_s[0]))
        self.last_arrival_s = float(arrival_s[-1])
        reaches_s = self._front_end.reaches_s(arrival_s)
        requests = self._taken(trace, rows, arrival_s, reaches_s)
        self._users.counts[Index.FIRST] = self.served
        last = self.served + len(arrival_s)
        while self.served < last and not (stopped is not None and stopped()):
            began_s = time.perf_counter()
            until_row = min(self.served + self._pace.count, last)
            self._run(self._users, requests, until_row=until_row)
            yield from self._results()
            if self.served < until_row:
                self._make_room()
            if progress is not None:
                progress(self.served)
            self._pace.note(began_s)

    def finish(self, stopped: Stopped | None = None) -> Iterator[np.ndarray]:
        """Let all requests that have arrived finish; yield them (``RESULT``)."""
        moments_s = drain_steps_s(self.bins.first_s, self.last_arrival_s)
        self._users.counts[Index.FIRST] = self.served
        while self.outstanding and not (stopped is not None and stopped()):
            until_s = next(moments_s)
            while not self._drained(until_s):
                yield from self._results()
                self._make_room()
            yield from self._results()
        for pool in self.pools:
            pool.take_log()
            pool.warn_of_long_iterations()

    def _drained(self, until_s: float) -> bool:
        """Go on to a moment; return whether nothing lacked room."""
        why = self._run(self._users, _NO_REQUESTS, until_row=-1, until_s=until_s)
        if why == event_loop.ROOM:
            return False
        for pool in self.pools:
            if not drain(pool.state, until_s, pool.schedule):
                return False
            pool.check_stuck()
        return True

    def _results(self) -> Iterator[np.ndarray]:
        for pool in self.pools:
            yield pool.take_results()


def _hand_off_of(deployment: Deployment) -> tuple[Policy, Policy]:
    """Return the scheduler of the decode pool, and the hand-off."""
    policy = parse_hand_off(deployment.hand_off)
    file = hand_off(policy.name)
    for pool in deployment.pools:
        name = pool.configuration.engine.scheduler.name
        if name not in PULLS:
            raise InputError(
                f"scheduler {name} has no hand-off of prompts; expected "
                f"{' or '.join(PULLS)}"
            )
    block_s = policy.settings["block"] or deployment.block_copy_s
    rules = scheduler(PULLING).RULES
    values = (
        block_s / file.SPEED_UP,
        policy.settings["handshake"],
        float(file.RECOMPUTES),
    )
    return Policy(PULLING, rules, values), policy
