"""Bring held requests to replicas, as Python calls it where replicas come or die."""

from numba import types

from capplan.simulator.drivers.deliver import place_held
from capplan.simulator.fleet.motion import MOTION
from capplan.simulator.jit import compiled
from capplan.simulator.state import SIDE


@compiled(types.void(SIDE, MOTION, types.float64))
def place(side, motion, now_s):
    """Bring the requests that wait for a replica to one, as Python calls it."""
    place_held(side, motion, now_s)
