"""An arrival at a group: which rank takes it, and what idle ranks did until then.

vLLM 0.32 with one API server. The rank is chosen by ``DPLBAsyncMPClient.
get_core_engine_for_request`` (v1/engine/core_client.py): it has exact counts of its
own requests in flight, and waiting and running ones and the use of KV as the engines
last reported. Ranks without work run dummy batches until they agree to pause, every
``dp_sync_interval`` steps (v1/engine/core.py, ``DPEngineCoreProc.run_busy_loop``).
"""

import math

from capplan.simulator.engine.ranks import dummy_time_s, look_at_ranks, wake_group
from capplan.simulator.engine.replica import join_queue
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import State

BALANCES = ("vllm", "vllm-0.1x", "round-robin", "shortest-queue")
"""Rules by which a rank is chosen; ``ENGINE.balance`` is the place of one.

``vllm-0.1x`` is vLLM's up to 0.1x, four times those waiting and those running, as
reported. The last two are SGLang's (data_parallel_controller.py).
"""


@inlined()
def _score(state: State, r: int, balance):
    """Return the load of a rank as the front end knows it."""
    rank = state.ranks[r]
    if balance == 1:
        return 4.0 * rank.seen_waiting + rank.seen_running
    if balance == 3:
        return float(rank.outstanding)
    score = float(max(rank.outstanding, rank.seen_waiting + rank.seen_running))
    if rank.seen_waiting > 0:
        score += rank.seen_waiting * 6.0 * max(0.0, rank.seen_kv_use - 0.5)
    return score


@inlined()
def choose_rank(state: State, g: int):
    """Return the row of the rank that takes the next request."""
    group = state.replicas[g]
    balance = state.engine[0].balance
    count = state.engine[0].ranks
    first = g * count
    turn = group.turn
    if balance != 1:
        group.turn = (turn + 1) % count
    if balance == 2:
        return first + turn
    if balance != 0:
        turn = 0
    best = first + turn
    least = _score(state, best, balance)
    for k in range(1, count):
        r = first + (turn + k) % count
        score = _score(state, r, balance)
        if score < least:
            best = r
            least = score
    state.ranks[best].seen_waiting += 1
    return best


@inlined()
def _end_vain(state: State, g: int):
    """Let idle ranks end what they compute and discard, and a dummy beside its result.

    See ``verifying.py``.
    """
    group = state.replicas[g]
    count = state.engine[0].ranks
    group.now_s = max(group.now_s, group.gpu_s)
    group.in_flight = 0
    for r in range(g * count, (g + 1) * count):
        state.ranks[r].in_flight = 0
    if count > 1:
        group.gpu_s += dummy_time_s(state)
        group.step += 1


@inlined()
def _idle_until(state: State, g: int, now_s):
    """Bring idle ranks to a moment: dummy batches, then a pause."""
    group = state.replicas[g]
    if group.in_flight > 0:
        _end_vain(state, g)
    done = group.step - group.wave_step
    left = -done % state.engine[0].sync_interval
    if done == 1:
        left = 0  # they agree after the first step too
    step_s = dummy_time_s(state)
    begun = 0
    if now_s > group.gpu_s:
        begun = min(left, math.ceil((now_s - group.gpu_s) / step_s))
    paused = begun * step_s < now_s - group.gpu_s  # and all begin at once
    if not paused:
        group.gpu_s += begun * step_s
        group.wave_step -= begun
    if paused or begun == left:
        group.wave_step = group.step
    group.now_s = max(group.now_s, now_s)


@compiled()
def enqueue_in_group(state: State, g: int, slot: int, now_s):
    """Add an arrival to the queue of one of the ranks; they stand at ``now_s``."""
    group = state.replicas[g]
    if group.outstanding == 0:
        _idle_until(state, g, now_s)
    elif group.now_s == math.inf:
        group.now_s = now_s
    look_at_ranks(state, g, now_s)
    ranks = state.by_rank
    join_queue(ranks, choose_rank(state, g), slot)
    wake_group(state, ranks, g)
