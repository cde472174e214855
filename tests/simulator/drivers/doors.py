"""What a driver in Python needs of the compiled replicas of one pool."""

import math
from typing import NamedTuple

import numpy as np
from numba import types

from capplan.simulator.drivers.open_loop import (
    ARRIVALS,
    Arrivals,
    read_only,
    routed,
    start,
    take_slot,
)
from capplan.simulator.engine.wake import next_s
from capplan.simulator.fleet.pool_state import Options, pool_state, scheduled_tables
from capplan.simulator.fleet.serve import enqueue, step
from capplan.simulator.fleet.serving_pool import schedules_of
from capplan.simulator.jit import compiled, direct
from capplan.simulator.routers import parse_router
from capplan.simulator.routers import router as find_router
from capplan.simulator.state import NONE, ROUTE, SCHEDULES, STATE, Count


@compiled(types.float64(STATE, types.int64))
def _next_s(state, r):
    return next_s(state, r)


@compiled(types.boolean(STATE, types.int64, types.float64, SCHEDULES))
def _step(state, r, until_s, schedule):
    state.counts[Count.STUCK] = 0
    step(state, r, until_s, schedule)
    return state.counts[Count.STUCK] == 0


@compiled(
    types.int64(
        STATE,
        ARRIVALS,
        types.int64,
        types.float64,
        types.FunctionType(ROUTE),
        SCHEDULES,
    )
)
def _arrive(state, arrivals, row, now_s, route, schedule):
    slot = take_slot(state, arrivals, 0, row)
    r = routed(state, slot, now_s, route, schedule)
    enqueue(state, r, slot, now_s)
    state.counts[Count.ROUTED] += 1
    return slot


class Request(NamedTuple):
    """What a driver brings to a replica."""

    row: int
    prompt_tokens: int
    output_tokens: int
    prefix_group: int = NONE
    prefix_tokens: int = 0


class Pool:
    """The replicas of a deployment's only pool, stepped from outside."""

    def __init__(self, deployment, seed=0):
        pool = deployment.pool
        engine = pool.configuration.engine
        tables = scheduled_tables(pool.configuration.tables, engine)
        self.state = pool_state(
            engine,
            tables,
            pool.replica_count,
            router=parse_router(deployment.router),
            options=Options(bin_width_s=1.0, seed=seed, chunk=1000),
        )
        self.state.engine[0].bin_width_s = 1.0
        start(self.state)
        self._route = find_router(parse_router(deployment.router).name).route
        self._schedule = schedules_of(engine.scheduler.name, has_ranks=False)

    @property
    def replicas(self):
        """Records of the replicas."""
        return self.state.replicas

    def next_s(self, r):
        """Return when a replica next does something of its own. [s]"""
        return _next_s(self.state, r)

    def arrive(self, request, now_s):
        """Route a request; return its slot."""
        # predicted, and asked for at most, as it is
        columns = (request.prompt_tokens, *3 * [request.output_tokens])
        columns += (request.prefix_group, request.prefix_tokens, 0, 0, NONE, NONE)
        arrivals = Arrivals(
            *(read_only(np.array([now_s]), np.float64) for _ in range(2)),
            *(read_only(np.array([value]), np.int64) for value in columns),
            read_only(np.zeros((1, 0)), np.float64),
        )
        return direct(_arrive)(
            self.state, arrivals, request.row, now_s, self._route, self._schedule
        )

    def step(self, r, until_s):
        """Let a replica do one thing; return the requests that finished, by row."""
        went = direct(_step)(self.state, r, until_s, self._schedule)
        count = int(self.state.counts[Count.RESULTS])
        self.state.counts[Count.RESULTS] = 0
        return went, np.array(self.state.results[:count])

    def pending_s(self, r):
        """Return when the first known finish of a replica is collected. [s]"""
        replica = self.replicas[r]
        if replica.oldest_finishing != NONE:
            return float(replica.oldest_end_s)
        return (
            float(replica.newest_end_s)
            if replica.newest_finishing != NONE
            else math.inf
        )
