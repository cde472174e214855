"""A fleet of replicas that serves a trace in chunks; owns the arrays of the core."""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.errors import CapplanWarning, HostFullError, InputError
from capplan.simulator.bins import Bins
from capplan.simulator.drivers import closed_loop
from capplan.simulator.drivers.open_loop import Arrivals, drain, read_only, run, start
from capplan.simulator.front_end import FrontEnd
from capplan.simulator.pool_state import pool_state, scheduled_tables
from capplan.simulator.prefix_memory import with_enough_runs
from capplan.simulator.records import ENTRY, ITERATION
from capplan.simulator.routers import parse_router
from capplan.simulator.routers import router as find_router
from capplan.simulator.schedulers import scheduler as find_scheduler
from capplan.simulator.state import (
    LIMIT_COUNT,
    NONE,
    Count,
    Limit,
    Phase,
    Setting,
    no_limits,
    with_more_slots,
)
from capplan.simulator.times import Iterations
from capplan.workload.slo import RequestSlo, Slo, require
from capplan.workload.trace import Trace

_CHUNK = 250_000  # requests at most between two progress calls
_FIRST_CHUNK = 5_000
_PROGRESS_PERIOD_S = 0.25
_DRAIN_STEPS = 64  # after the last arrival, for as long as the arrivals took
_LEAST_DRAIN_S = 60.0
_LARGEST_GROUP = 2**40
UNBOUNDED_JUMP = 2**62

Progress = Callable[[int], None]
"""Called several times a second with the number of requests that have arrived."""
Stopped = Callable[[], bool]
"""Called several times a second; True stops the simulation early."""


_UNLIMITED = RequestSlo()


@dataclass(frozen=True)
class _Policies:
    route: Callable[..., int]
    needs: int
    schedule: Callable[..., int]


class Fleet:
    """Replicas that serve a trace chunk by chunk.

    Memory grows with the requests outstanding at once, not with the trace.
    """

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
        pool = deployment.pool
        replica_count = pool.replica_count
        tables, engine = pool.configuration.tables, pool.configuration.engine
        tables.check(engine.max_num_seqs, engine.max_num_batched_tokens)
        router = parse_router(deployment.router)
        router_file = find_router(router.name)
        policy = engine.scheduler
        schedule = find_scheduler(policy.name).schedule
        self.policies = _Policies(router_file.route, int(router_file.NEEDS), schedule)
        self._measured_tokens = len(tables.fused_s) - 1
        tables = scheduled_tables(tables, engine)
        self._slo = slo
        self._slos_needed = (policy.rules.slos, f"scheduler {policy.name}")
        self._class_names: tuple[str, ...] = ()
        self.engine = engine
        self._processes = replica_count * engine.api_server_count
        times_s = (tables.request_s, tables.api_request_s)
        self._front_end = FrontEnd(self._processes, *times_s)
        self._front_s = np.array([*times_s, tables.prompt_token_s])
        self._prompt_token_s = tables.prompt_token_s
        self.generator = np.random.default_rng(seed)
        self.served = 0
        self._part = _FIRST_CHUNK
        self.last_arrival_s = -math.inf
        self.log: list[tuple[np.ndarray, np.ndarray]] = []
        self.state = pool_state(
            engine,
            tables,
            replica_count,
            router=router,
            seed=seed,
            results=min(chunk or _CHUNK, _CHUNK),
            record_iterations=record_iterations,
            longest_jump=longest_jump,
        )
        self.bins = Bins(self.state, bin_width_s)
        strictest = [Setting.TTFT_S, Setting.TPOT_S]
        self.state.settings[strictest] = limits.ttft_s, limits.mean_gap_s
        start(self.state)

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

        Each chunk takes about ``_PROGRESS_PERIOD_S``; then ``progress`` and ``stopped``
        are called.
        """
        already = self.served - first
        end = len(trace) if end is None else end
        while first < end and not (stopped is not None and stopped()):
            began_s = time.perf_counter()
            yield from self.serve(trace, slice(first, min(first + self._part, end)))
            first = self.served - already
            if progress is not None:
                progress(self.served)
            self._pace(began_s)

    def _pace(self, began_s: float) -> None:
        """Set how many requests are served at once by the time that it last took."""
        took_s = max(time.perf_counter() - began_s, 1e-6)
        growth = min(max(_PROGRESS_PERIOD_S / took_s, 0.1), 2.0)
        self._part = min(max(int(self._part * growth), 100), _CHUNK)

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
        users = closed_loop.thinking(
            first_s, len(self.state.replicas), self._processes, self._front_s
        )
        self.bins.reach(float(users.ask_s[0]))
        why = closed_loop.ROOM
        while why != closed_loop.ANSWERED and not (stopped is not None and stopped()):
            began_s = time.perf_counter()
            until_row = self.served + self._part
            why = closed_loop.run(
                self.state,
                users,
                requests,
                think_s,
                trace.asked_until_s,
                until_row if until_row < n else n + 1,  # then on to the last answer
                self.bins.end_s,
                self.policies.needs,
                self.policies.route,
                self.policies.schedule,
            )
            self._check_stuck()
            self.served = int(users.counts[closed_loop.Index.DELIVERED])
            self.last_arrival_s = closed_loop.last_asked_s(users)
            yield self._take_results()
            if why == closed_loop.TIME:
                self.bins.reach(self.bins.end_s + 0.5 * self.bins.width_s)
            elif why == closed_loop.ROOM and self.served < until_row:
                self._make_room()
            if progress is not None:
                progress(self.served)
            self._pace(began_s)
        self.bins.use_until(self.last_arrival_s)

    def serve(self, trace: Trace, rows: slice = slice(None)) -> Iterator[np.ndarray]:
        """Let the requests of a chunk arrive; yield finished requests (``RESULT``)."""
        assert trace.arrival_s is not None
        arrival_s = trace.arrival_s[rows]
        self.bins.reach(float(arrival_s[0]))
        self.last_arrival_s = float(arrival_s[-1])
        reaches_s = self._front_end.reaches_s(arrival_s)
        arrivals = self._taken(trace, rows, arrival_s, reaches_s)
        n = len(arrival_s)
        policies = self.policies
        row = 0
        while row < n:
            row = run(
                self.state,
                arrivals,
                row,
                self.served,
                policies.needs,
                policies.route,
                policies.schedule,
            )
            self._check_stuck()
            yield self._take_results()
            if row < n:
                self._make_room()
        self.served += n

    def _taken(
        self, trace: Trace, rows: slice, arrival_s: np.ndarray, reaches_s: np.ndarray
    ) -> Arrivals:
        """Return requests as the core takes them; make room for what they need."""
        groups = trace.prefix_group[rows]
        if int(groups.max()) >= _LARGEST_GROUP:
            raise InputError(
                f"{trace.source}: prefix_group is {int(groups.max())}; "
                f"expected less than {_LARGEST_GROUP}"
            )
        predicted = trace.predicted_output_tokens
        if predicted is None:
            predicted = trace.output_tokens
        columns = (
            trace.prompt_tokens,
            trace.output_tokens,
            predicted,
            trace.prefix_group,
            trace.prefix_tokens,
            trace.request_class,
            trace.priority,
            trace.session,
        )
        arrivals = Arrivals(
            read_only(arrival_s, np.float64),
            read_only(reaches_s, np.float64),
            *(read_only(column[rows], np.int64) for column in columns),
        )
        if self._class_names != trace.class_names:
            self._class_names = trace.class_names
            kinds, who = self._slos_needed
            require(self._slo, trace.class_names, kinds, who, instead="e2e")
            self._set_limits(trace.class_names)
        if self.engine.prefix_caching:
            most = int(arrivals.prefix_tokens.max())
            self._grow_holdings(most // self.engine.block_size)
        draws = self.generator.random((len(groups), 2))
        self.state = self.state._replace(draws=draws)
        return arrivals

    def finish(self, stopped: Stopped | None = None) -> Iterator[np.ndarray]:
        """Let all requests that have arrived finish; yield them (``RESULT``).

        In steps of a share of the arrivals' span, so that ``stopped`` is called often.
        """
        first_s, until_s = self.bins.first_s, self.last_arrival_s
        step_s = max((until_s - first_s) / _DRAIN_STEPS, _LEAST_DRAIN_S)
        steps = 0
        while self.outstanding and not (stopped is not None and stopped()):
            steps += 1
            until_s += step_s
            if steps % _DRAIN_STEPS == 0:
                step_s *= 2
            while not drain(self.state, until_s, self.policies.schedule):
                yield self._take_results()
                self._make_room()
            self._check_stuck()
            yield self._take_results()
        self._take_log()
        self._warn_of_long_iterations()

    @property
    def iteration_count(self) -> int:
        """Iterations of all replicas."""
        replicas = self.state.replicas
        return int((replicas["step"] + replicas["prompt_steps"]).sum())

    @property
    def outstanding(self) -> int:
        """Requests arrived and not finished."""
        return int(self.state.replicas["outstanding"].sum())

    @property
    def all_finished_before_s(self) -> float:
        """Arrival time of the oldest unfinished request; infinite when none. [s]"""
        requests = self.state.requests
        held = requests["phase"] != Phase.FREE
        return float(requests["arrival_s"][held].min()) if held.any() else math.inf

    def _set_limits(self, class_names: tuple[str, ...]) -> None:
        """Give the classes their limits; those known keep their late gaps."""
        before = self.state.classes
        rows = no_limits(len(class_names), len(self.state.replicas))
        if self._slo is not None:
            rows[:, :LIMIT_COUNT] = self._slo.table(class_names)
        known = min(len(before), len(rows))
        rows[:known, LIMIT_COUNT:] = before[:known, LIMIT_COUNT:]
        self.state.engine[0].counts_late = int(np.isfinite(rows[:, Limit.TBT]).any())
        self.state = self.state._replace(classes=rows)

    def _grow_holdings(self, blocks: int) -> None:
        """Make room for requests that share up to ``blocks`` blocks each."""
        slots, before = self.state.holdings.shape
        if blocks > before:
            holdings = np.zeros((slots, blocks), np.int64)
            holdings[:, :before] = self.state.holdings
            self.state = self.state._replace(holdings=holdings)

    def _check_stuck(self) -> None:
        if self.state.counts[Count.HOST_FULL]:
            gib = self.engine.host_kv_gib
            raise HostFullError(
                f"the host memory for swapped KV is full: host_kv_gib is {gib} for "
                "each GPU; give more, or a scheduler that computes KV again"
            )
        if self.state.counts[Count.STUCK]:
            raise InputError(
                "deadlock: no waiting request fits the free KV, or the scheduler never "
                "admits one"
            )

    def _warn_of_long_iterations(self) -> None:
        most = int(self.state.counts[Count.MOST_TOKENS])
        if most > self._measured_tokens:
            warnings.warn(
                f"an iteration had {most} tokens; the latency is given up to "
                f"{self._measured_tokens} and was continued in a straight line",
                CapplanWarning,
                stacklevel=2,
            )

    def _take_results(self) -> np.ndarray:
        """Return the finished requests; their room is used again by the next step."""
        count = int(self.state.counts[Count.RESULTS])
        self.state.counts[Count.RESULTS] = 0
        done = np.asarray(self.state.results[:count])
        if self._prompt_token_s:  # a prompt delays its own request only
            delay_s = self._prompt_token_s * done["prompt_tokens"]
            for name in ("scheduled_s", "first_token_s", "finish_s"):
                done[name] += delay_s
        return done

    def _take_log(self) -> None:
        counts = self.state.counts
        steps = np.asarray(self.state.iterations[: counts[Count.ITERATIONS]]).copy()
        entries = np.asarray(self.state.entries[: counts[Count.ENTRIES]]).copy()
        counts[Count.ITERATIONS] = 0
        counts[Count.ENTRIES] = 0
        self.log.append((steps, entries))

    def _make_room(self) -> None:
        """Empty the log; double the slots, and a router's runs, when they are short."""
        state = self.state
        if state.engine[0].recording:
            self._take_log()
        if state.counts[Count.FREE] == NONE:
            state = with_more_slots(state)
        self.state = with_enough_runs(state)

    def iterations(self) -> Iterations:
        """Return all recorded iterations, as one log."""
        before = 0
        for steps, entries in self.log:
            steps["entries_end"] += before
            before += len(entries)
        return Iterations(
            np.concatenate([np.zeros(0, ITERATION), *(log[0] for log in self.log)]),
            np.concatenate([np.zeros(0, ENTRY), *(log[1] for log in self.log)]),
        )
