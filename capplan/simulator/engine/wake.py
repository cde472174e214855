"""When a replica does something next, and when that matters to others."""

import math

from capplan.simulator.engine.decoding import decode_line
from capplan.simulator.engine.jump import decode_time_s
from capplan.simulator.jit import inlined
from capplan.simulator.kv.kvcache import iterations_that_fit
from capplan.simulator.state import NONE, State


@inlined()
def next_s(state: State, r: int):
    """Return when a replica next does something of its own; infinite when idle. [s]

    It collects a result when the pipeline is full, or schedules an iteration.
    """
    replica = state.replicas[r]
    if replica.in_flight == state.engine[0].depth or replica.stalled != 0:
        return replica.oldest_end_s
    return replica.now_s if replica.outstanding > 0 else math.inf


@inlined()
def only_decodes(state: State, r: int):
    """Return whether all requests of a replica decode, and none has its last token."""
    replica = state.replicas[r]
    return not (
        replica.oldest_finishing != NONE
        or replica.newest_finishing != NONE
        or replica.waiting_count > 0
        or replica.prefilling != NONE
        or replica.heap_count == 0
        or replica.running_count != replica.decode_count
    )


@inlined()
def iterations_to_change(state: State, r: int):
    """Return after how many iterations of decodes alone the batch may change."""
    replica = state.replicas[r]
    n = state.requests[state.ends[r, 0]].end_step - replica.step
    if state.engine[0].reserves == 0:
        # A preemption makes the iterations after it shorter.
        n = iterations_that_fit(state, r, replica.step + 1, n, replica.free_blocks - 1)
    return n


@inlined()
def before_end_s(start_s, span_s):
    """Return a little less than the end, so that rounding cannot make it late. [s]"""
    end_s = start_s + (1.0 - 1e-9) * span_s
    return end_s - 1e-15 * abs(end_s)


@inlined()
def set_wake(state: State, r: int):
    """Set the time before which no input for anyone else can come from the replica.

    That is the earliest time at which a request can finish: before then its counts of
    outstanding requests do not change, so a router that reads only counts need not
    have it advanced, and no user gets an answer. While the replica only decodes, it is
    the end of the first request to finish, in closed form, or of the iterations before
    one may be preempted; otherwise the next result.
    """
    replica = state.replicas[r]
    if replica.outstanding == 0:
        replica.wake_s = math.inf
        return
    replica.wake_s = replica.oldest_end_s if replica.in_flight else replica.now_s
    if not only_decodes(state, r):
        return
    if state.engine[0].keeps_batch == 0:
        replica.wake_s = max(replica.wake_s, replica.quiet_s)
        return
    n = iterations_to_change(state, r)
    first_s, slope_s = decode_line(state, r)
    end_s = before_end_s(replica.gpu_s, decode_time_s(first_s, slope_s, n))
    replica.wake_s = max(replica.wake_s, end_s)
