"""Note iterations: in time bins, and each with its requests where they are recorded."""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import Count, State


@inlined()
def log_entry(state: State, row, computed, scheduled):
    """Log one request of the iteration, if iterations are recorded."""
    if state.engine[0].recording == 0:
        return
    entry = state.entries[state.counts[Count.ENTRIES]]
    state.counts[Count.ENTRIES] += 1
    entry.row = row
    entry.computed = computed
    entry.scheduled = scheduled


@compiled()
def unlog_entry(state: State, row):
    """Take what was last logged of a request out again, if iterations are recorded."""
    if state.engine[0].recording == 0:
        return
    last = state.counts[Count.ENTRIES] - 1
    state.counts[Count.ENTRIES] = last
    k = last
    while state.entries[k].row != row:
        k -= 1
    for j in range(k, last):
        entry, following = state.entries[j], state.entries[j + 1]
        entry.row = following.row
        entry.computed = following.computed
        entry.scheduled = following.scheduled


@compiled()
def log_iteration(state: State, r: int, start_s, end_s, b, context, tokens):
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
def log_has_room(state: State):
    """Return whether the log can take one more iteration, of a group on each rank."""
    if state.engine[0].recording == 0:
        return True
    ranks = max(1, state.engine[0].ranks)
    if state.counts[Count.ITERATIONS] + ranks > state.iterations.shape[0]:
        return False
    room = state.entries.shape[0] - state.counts[Count.ENTRIES]
    # An iteration may log its requests twice: those preempted while it is put together.
    return room >= 2 * ranks * state.engine[0].max_num_seqs


@inlined()
def add_to_bins(state: State, start_s, end_s, batch, waiting, used_blocks):
    """Add the interval of an iteration or jump to the time bins that it overlaps."""
    bins = state.bins
    width_s = state.engine[0].bin_width_s
    last = bins.shape[0] - 1
    index = int((start_s - state.engine[0].bins_start_s) / width_s)
    index = min(max(index, 0), last)
    while True:
        edge_s = state.engine[0].bins_start_s + (index + 1) * width_s
        span_s = (end_s if index == last else min(end_s, edge_s)) - start_s
        time_bin = bins[index]
        time_bin.busy_s += span_s
        time_bin.batch_s += span_s * batch
        time_bin.waiting_s += span_s * waiting
        time_bin.kv_block_s += span_s * used_blocks
        if index == last or end_s <= edge_s:
            break
        start_s = edge_s
        index += 1
