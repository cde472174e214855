"""Known events of one pool in the order of their times; replicas work in between.

Known are the requests that arrive or are asked, the ends of copies, the beats of a
dispatcher and the ticks of a rebalancer. The next of them is delivered where it is not
after any replica's ``Motion.wake_s``, the time before which no answer can come from it;
else the replica that may answer first takes one step. Where no user waits for an answer
that time is infinite, and a replica is brought up when an event touches it or a router
reads it. A step's jump is bounded by the next known event, by the others' ``wake_s``,
and by the answer that the replica itself is about to give: that may bring it a request.

See README.md for the order at one instant, and why this is exact.
"""

import math
from functools import cache
from typing import Any

from numba import types

from capplan.simulator.drivers.deliver import (
    beat,
    deliver,
    look_on,
    migrate,
    next_period_s,
    side_look_s,
    tick,
)
from capplan.simulator.drivers.stepping import (
    DONE,
    KNOWN,
    ROOM,
    TIME,
    first_to_wake,
    has_room,
    step_one,
)
from capplan.simulator.drivers.users import Index as User
from capplan.simulator.drivers.users import ask, next_asked_s
from capplan.simulator.fleet.beats import DISPATCH
from capplan.simulator.fleet.motion import REBALANCE, Index, Setting, next_event_s
from capplan.simulator.jit import compiled
from capplan.simulator.state import SIDE, Count

_RUN = types.int64(
    SIDE, *KNOWN, types.FunctionType(REBALANCE), types.FunctionType(DISPATCH)
)


@cache
def driver(moves: bool) -> Any:
    """Return the loop that delivers what is known, and lets replicas work in between.

    Without ``moves`` no migration, beat or tick is ever due: users who wait need half
    as much compiled. Its ``requests`` are in the order in which they arrive or are
    asked; the k-th time that a user starts to think takes ``think_s[k]``. It returns
    why it stopped. DONE: nothing is known, and no replica's work matters to another.
    TIME: all that is known before ``until.known_s`` has been delivered, and no answer
    is left before ``until.s``. ROOM: row ``until.row`` is next, or the caller must make
    room for requests, results, migrations or the log.
    """

    def run(side, motion, users, requests, think_s, until, rebalance, dispatch):
        state = side.state
        couples = motion.settings[Setting.COUPLES] != 0
        while state.counts[Count.STUCK] == 0:
            moved = motion.counts[Index.MOVED] + motion.moves.shape[0]
            if (
                users.counts[User.DELIVERED] == until.row
                or not has_room(state)
                or moved > motion.moved.shape[0]
            ):
                return ROOM
            asks_s, reaches_s = next_asked_s(users, requests, until.asked_s)
            asked_s = min(asks_s, reaches_s)
            event_s = next_event_s(motion)
            beat_s = next_period_s(motion, Setting.BEAT_S, Index.BEAT, asked_s)
            tick_s = next_period_s(motion, Setting.PERIOD_S, Index.TICK, asked_s)
            known_s = min(min(asked_s, event_s), min(beat_s, tick_s))
            r, wake_s, others_s = first_to_wake(motion.wake_s)
            idles = min(known_s, wake_s) == math.inf
            rests = idles or (known_s >= until.known_s and wake_s >= until.s)
            look_s = side_look_s(side)
            if rests and look_s < until.s < math.inf:
                look_on(side, until.s)  # replicas may change then
            elif rests:
                return DONE if idles else TIME
            elif look_s < known_s and look_s <= wake_s:
                look_on(side, min(known_s, math.nextafter(wake_s, math.inf)))
            elif known_s > wake_s:
                until_step_s = min(min(known_s, others_s), min(look_s, until.s))
                step_one(side, r, until_step_s, users, think_s)
                motion.wake_s[r] = state.replicas[r].wake_s
                continue
            elif asks_s < reaches_s and asks_s == known_s:
                ask(users)
                continue
            elif reaches_s == known_s:
                deliver(side, motion, users, requests, known_s)
            elif moves:
                if event_s == known_s:
                    migrate(side, motion, known_s)
                elif beat_s == known_s:
                    beat(side, motion, known_s, dispatch)
                else:
                    tick(side, motion, known_s, rebalance)
            if couples:
                for other in range(state.replicas.shape[0]):
                    motion.wake_s[other] = state.replicas[other].wake_s
        return DONE

    run.__qualname__ = "run" if moves else "run_unmoved"
    return compiled(_RUN)(run)
