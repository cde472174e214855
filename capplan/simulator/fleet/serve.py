"""What drivers do with a replica, be it one engine or a group of ranks."""

from capplan.simulator.engine.group_queue import enqueue_in_group
from capplan.simulator.engine.log import log_has_room
from capplan.simulator.engine.replica import enqueue as enqueue_alone
from capplan.simulator.engine.replica import step as step_alone
from capplan.simulator.engine.wake import next_s, set_wake
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import RUN_GROUP, Count, State


@inlined()
def enqueue(state: State, r: int, slot: int, now_s):
    """Add an arrival to the queue of a replica that stands at ``now_s``."""
    if state.engine[0].ranks > 0:
        enqueue_in_group(state, r, slot, now_s)
    else:
        enqueue_alone(state, r, slot, now_s)


@compiled(RUN_GROUP)
def no_groups(state: State, g: int, until_s, once, schedule):
    """Do nothing: there are no groups of ranks."""
    return 0


@inlined()
def step(state: State, r: int, until_s, schedule):
    """Collect one result, or schedule one iteration or jump before ``until_s``."""
    if state.engine[0].ranks > 0:
        schedule.together(state, r, until_s, True, schedule.alone)
    else:
        step_alone(state, r, until_s, schedule.alone)
        set_wake(state, r)


@compiled()
def advance(state: State, r: int, until_s, schedule):
    """Simulate a replica up to ``until_s``: all that happens before that time."""
    if state.engine[0].ranks > 0:
        schedule.together(state, r, until_s, False, schedule.alone)
        return
    while (
        next_s(state, r) < until_s
        and log_has_room(state)
        and state.counts[Count.STUCK] == 0
    ):
        step_alone(state, r, until_s, schedule.alone)
    set_wake(state, r)


@inlined()
def bring_up(state: State, until_s, schedule):
    """Advance every replica that has something to do before ``until_s``."""
    for r in range(state.replicas.shape[0]):
        if next_s(state, r) < until_s:
            advance(state, r, until_s, schedule)
