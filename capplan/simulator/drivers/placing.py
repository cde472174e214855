"""Bring held requests to replicas, as Python calls it where replicas come or die."""

from numba import types

from capplan.simulator.drivers.deliver import Side, place_held
from capplan.simulator.fleet.motion import MOTION
from capplan.simulator.jit import compiled
from capplan.simulator.state import ROUTE, SCHEDULES, STATE


@compiled(
    types.void(
        STATE,
        MOTION,
        types.float64,
        types.int64,
        types.FunctionType(ROUTE),
        SCHEDULES,
    )
)
def place(state, motion, now_s, needs, route, schedule):
    """Bring the requests that wait for a replica to one, as Python calls it."""
    place_held(Side(state, needs, route, schedule), motion, now_s)
