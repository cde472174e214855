"""Log every iteration, and its requests, where iterations are recorded."""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import Count


@inlined()
def log_entry(state, row, computed, scheduled):
    """Log one request of the iteration, if iterations are recorded."""
    if state.engine[0].recording == 0:
        return
    entry = state.entries[state.counts[Count.ENTRIES]]
    state.counts[Count.ENTRIES] += 1
    entry.row = row
    entry.computed = computed
    entry.scheduled = scheduled


@compiled()
def log_iteration(state, r, start_s, end_s, b, context, tokens):
    """Log the iteration whose entries have just been logged."""
    replica = state.replicas[r]
    index = state.counts[Count.ITERATIONS]
    iteration = state.iterations[index]
    before = state.iterations[index - 1].entries_end if index > 0 else 0
    state.counts[Count.ITERATIONS] += 1
    iteration.replica = r
    iteration.sched_s = replica.now_s
    iteration.start_s = start_s
    iteration.end_s = end_s
    iteration.ctx_reqs = state.counts[Count.ENTRIES] - before - b
    iteration.gen_reqs = b
    iteration.gen_ctx = context
    iteration.ctx_tokens = tokens
    iteration.running = replica.running_count
    iteration.waiting = replica.waiting_count
    iteration.free_blocks = replica.free_blocks
    iteration.preempted = replica.preempted
    iteration.entries_end = state.counts[Count.ENTRIES]


@inlined()
def log_has_room(state):
    """Return whether the log can take one more iteration, of a group on each rank."""
    if state.engine[0].recording == 0:
        return True
    ranks = max(1, state.engine[0].ranks)
    if state.counts[Count.ITERATIONS] + ranks > state.iterations.shape[0]:
        return False
    room = state.entries.shape[0] - state.counts[Count.ENTRIES]
    # An iteration may log its requests twice: those preempted while it is put together.
    return room >= 2 * ranks * state.engine[0].max_num_seqs
