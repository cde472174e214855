"""Queries that each replica was sent in a window of time, in holders of their own.

vLLM production-stack (a6c01db0), src/vllm_router/stats/request_stats.py and
``_qps_routing``: queries of exactly the window's age count, and an engine that never
had one comes before those that had none lately.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.memory.prefix_memory import drop_before, remember_own
from capplan.simulator.state import Count, State


@inlined()
def note_query(state: State, holder, now_s, window_s):
    """Note that a query was sent; forget those that have left the window."""
    drop_before(state, holder, now_s - window_s)
    remember_own(state, holder, 1, now_s)
    state.runs[holder].count += 1


@compiled()
def fewest_queries(state: State, first_holder, now_s, window_s):
    """Return the replica with the fewest queries in the window, the first of equals.

    Those of replica r are of holder ``first_holder + r``.
    """
    fewest = 0
    for r in range(state.counts[Count.OPEN]):
        head = state.runs[first_holder + r]
        if head.count == 0:
            return r
        drop_before(state, first_holder + r, now_s - window_s)
        if head.high < state.runs[first_holder + fewest].high:
            fewest = r
    return fewest
