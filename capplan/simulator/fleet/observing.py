"""What the autoscaler sees of a fleet at a tick; compiled where there is one."""

import math

from numba import types

from capplan.simulator.engine.log import log_has_room
from capplan.simulator.fleet.serve import bring_up
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.rebalancers.llumnix import freeness, wanted_blocks
from capplan.simulator.state import SCHEDULES, STATE, Count, State


@inlined()
def freeness_of(state: State, r: int):
    """Return the freeness of a replica, of a group that of all its ranks together."""
    count = state.engine[0].ranks
    if count == 0:
        return freeness(state, r, False, 0.0, 0.0)
    ranks = state.by_rank
    requests = 0
    free = 0.0
    for row in range(r * count, (r + 1) * count):
        rank = ranks.replicas[row]
        requests += rank.running_count + int(rank.waiting_count > 0)
        free += rank.free_blocks - wanted_blocks(ranks, row, False)
    return free / requests if requests > 0 else math.inf


@compiled(types.boolean(STATE, types.float64, SCHEDULES, types.float64[:, ::1]))
def observe(state: State, now_s, schedule, seen):
    """Bring all replicas up to a moment and write what is seen of the open ones.

    Returns whether the log had room. Rows of ``seen``: running, waiting, share of KV in
    use, freeness.
    """
    bring_up(state, now_s, schedule)
    for r in range(state.counts[Count.OPEN]):
        replica = state.replicas[r]
        seen[0, r] = replica.running_count
        seen[1, r] = replica.waiting_count
        seen[2, r] = 1.0 - replica.free_blocks / state.engine[0].kv_blocks
        seen[3, r] = freeness_of(state, r)
    return log_has_room(state)
