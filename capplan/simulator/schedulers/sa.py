"""SA scheduling: the queue in the order that anneals the most SLOs kept.

Huang et al., "SLO-Aware Scheduling for Large Language Model Inferences", arXiv
2504.14966; see ``annealing.py``. Everything else is vLLM V1's rule with one iteration
in flight: in the paper, requests are submitted to vLLM in the planned order. It plans
the oldest ``window`` requests of the queue, each time from their order of arrival;
preempted ones stay in front. The paper plans once, for requests that are all there at
the start; with arrivals we plan when a seat is free and a request has come since the
last plan. As in section 3, a class has limits on TTFT and TPOT, or one on the
end-to-end time; with all of them, all are to be kept.

Settings:

- ``accept``: ``metropolis``, or ``printed``, which never takes a worse plan;
- ``batches``: ``continuous``, only the order is kept, as in the paper's experiments;
  ``static``, the next batch is planned and starts when the one before has ended;
- ``hottest``, ``coldest``, ``decay``, ``moves``: of the annealing, section 4.3;
- ``early_return``: 1 takes the shortest first where that keeps all SLOs;
- ``window``: most requests planned at once, the oldest;
- ``plan_fixed_s``, ``plan_request_s``: time of a plan, a line through the paper's
  Table 1. The planner stands in front of the engine: nobody is admitted before the plan
  is ready, while those that run go on. A plan starts when its newest request has come,
  with static batches when the one before has ended.
"""

from capplan.simulator.engine.annealing import (
    BEST_ORDER,
    BEST_SIZES,
    E2E,
    OUTPUT,
    PROMPT,
    SLOTS,
    TPOT,
    TTFT,
    WAITED,
    Cooling,
    anneal,
)
from capplan.simulator.engine.batch import (
    admit,
    continue_running,
    iterations_until,
    same_batch,
)
from capplan.simulator.engine.jump import ROUNDING_S
from capplan.simulator.engine.queues import insert_waiting_before, remove_waiting
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.state import NONE, PLANNED, SCHEDULE, Phase, State

RULES = Rules(
    {
        "accept": Knob(0, choices=("metropolis", "printed")),
        "batches": Knob(0, choices=("continuous", "static")),
        "hottest": Knob(500.0, 1e-9),
        "coldest": Knob(20.0, 1e-9),
        "decay": Knob(0.95, 0.01, 0.99),
        "moves": Knob(100, 1, 10_000),
        "early_return": Knob(1, 0, 1),
        "window": Knob(256, 2, PLANNED),
        "plan_fixed_s": Knob(64e-6, 0.0, 1.0),
        "plan_request_s": Knob(43e-6, 0.0, 1.0),
    },
    request_columns=("batch",),
    replica_columns=("plans",),
    slos=("ttft", "tpot"),
)

_LATER = 2**40
"""Batch of a request that the newest plan left out."""
SETTING = indices(RULES.settings)
REQUEST = indices(RULES.request_columns)
"""``batch``: that the newest plan puts it in, from 1 on; 0: it was not planned."""
REPLICA = indices(RULES.replica_columns)
"""``plans``: made so far."""


@compiled()
def _rest_of_batch_s(state: State, r: int):
    """Return the time until the running requests end, as predicted. [s]"""
    replica = state.replicas[r]
    most = 0
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        generated = request.known_tokens - request.prompt_tokens
        if request.phase == Phase.DECODING:
            left = request.end_step - replica.step
            generated = request.output_tokens - left
        most = max(most, request.predicted_tokens - generated, 1)
        slot = request.next
    b = replica.running_count
    times = state.by_batch[b]
    return most * (times.decode_s + times.decode_context_s * replica.context_tokens)


@inlined()
def _sort_by_arrival(state: State, n):
    """Sort the slots by row: the plan before may have left them in another order."""
    slots = state.scratch[SLOTS]
    for k in range(1, n):
        slot = slots[k]
        row = state.requests[int(slot)].row
        position = k
        while position > 0 and state.requests[int(slots[position - 1])].row > row:
            slots[position] = slots[position - 1]
            position -= 1
        slots[position] = slot


@inlined()
def _describe(state: State, r: int, n):
    """Write what a plan reads of the requests in the slots, by arrival."""
    _sort_by_arrival(state, n)
    for k in range(n):
        request = state.requests[int(state.scratch[SLOTS, k])]
        limits_s = state.classes[request.request_class]
        state.scratch[PROMPT, k] = request.prompt_tokens
        state.scratch[OUTPUT, k] = request.predicted_tokens
        state.scratch[WAITED, k] = state.replicas[r].now_s - request.arrival_s
        state.scratch[TTFT, k] = limits_s[0]
        state.scratch[TPOT, k] = limits_s[1]
        state.scratch[E2E, k] = limits_s[3]


@compiled()
def _plan(state: State, r: int):
    """Put the oldest of the queue in the best order found; return when it is. [s]"""
    replica = state.replicas[r]
    settings = state.settings
    begins_s = replica.now_s
    if settings[SETTING.batches] == 0:
        newest = state.requests[replica.waiting_tail]
        begins_s = newest.arrival_s + state.engine[0].request_s
    n = 0
    slot = replica.waiting_head
    while slot != NONE and state.requests[slot].preemptions > 0:
        state.request_memory[slot, REQUEST.batch] = 1
        slot = state.requests[slot].next
    # Those planned before stand in front of all that came after them: the first of the
    # queue are the oldest, in some order.
    while slot != NONE and n < int(settings[SETTING.window]):
        state.scratch[SLOTS, n] = slot
        slot = state.requests[slot].next
        n += 1
    if n == 0:
        return replica.now_s
    _describe(state, r, n)
    state.replica_memory[r, REPLICA.plans] += 1
    plans = int(state.replica_memory[r, REPLICA.plans])
    mixed = state.engine[0].seed * 1_000_003 + r * 8_191 + plans
    seed = mixed % 2147483646 + 1
    delay_s = _rest_of_batch_s(state, r) if replica.running_count > 0 else 0.0
    cooling = Cooling(
        settings[SETTING.hottest],
        settings[SETTING.coldest],
        settings[SETTING.decay],
        int(settings[SETTING.moves]),
        settings[SETTING.accept] == 0,
        settings[SETTING.early_return] != 0,
    )
    anneal(state, n, state.engine[0].max_num_seqs, delay_s, seed, cooling)
    _relink(state, r, n, slot)
    if slot != NONE:  # behind the window, in order of arrival
        state.request_memory[replica.waiting_tail, REQUEST.batch] = _LATER
    return (
        begins_s + settings[SETTING.plan_fixed_s] + settings[SETTING.plan_request_s] * n
    )


@inlined()
def _relink(state: State, r: int, n, rest):
    """Let the planned requests wait in order, before ``rest`` and those behind it."""
    for k in range(n):
        remove_waiting(state, r, int(state.scratch[SLOTS, k]))
    batch = 0
    left = state.scratch[BEST_SIZES, 0]
    for k in range(n):
        if left == 0:
            batch += 1
            left = state.scratch[BEST_SIZES, k]
        left -= 1
        slot = int(state.scratch[SLOTS, int(state.scratch[BEST_ORDER, k])])
        state.request_memory[slot, REQUEST.batch] = batch + 1
        insert_waiting_before(state, r, slot, rest)


@inlined()
def _wants_plan(state: State, r: int):
    """Return whether there is a seat, and a request that has not been planned."""
    replica = state.replicas[r]
    if state.settings[SETTING.batches] != 0:
        return replica.running_count == 0
    seat = replica.running_count < state.engine[0].max_num_seqs
    return seat and state.request_memory[replica.waiting_tail, REQUEST.batch] == 0


@inlined()
def _may_start(state: State, r: int):
    """Return whether the head of the queue may be admitted by the newest plan."""
    replica = state.replicas[r]
    batch = state.request_memory[replica.waiting_head, REQUEST.batch]
    if state.settings[SETTING.batches] != 0:
        return batch == 1
    return batch > 0 or state.request_memory[replica.waiting_tail, REQUEST.batch] > 0


@inlined()
def _plan_and_admit(state: State, r: int, budget):
    """Plan where it is time, and admit by a plan that is ready.

    ``idle_until_s`` is when a plan is ready by which nobody was admitted yet, or 0.
    """
    replica = state.replicas[r]
    if replica.idle_until_s == 0 and _wants_plan(state, r):
        replica.idle_until_s = _plan(state, r)
    if replica.now_s + ROUNDING_S < replica.idle_until_s:
        return
    replica.idle_until_s = 0.0
    while budget > 0 and replica.waiting_count > 0 and _may_start(state, r):
        chunk = admit(state, r, budget)
        if chunk == 0:
            break
        budget -= chunk


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Serve as vLLM V1 does, from a queue that is planned."""
    replica = state.replicas[r]
    budget = continue_running(state, r, 0)
    if replica.preempted == 0 and replica.waiting_count > 0 and budget > 0:
        _plan_and_admit(state, r, budget)
    most = same_batch(state, r, 0, replica.preempted > 0)
    if most <= 1:
        return most
    ready_s = replica.idle_until_s
    if ready_s > 0:
        return iterations_until(state, r, ready_s - ROUNDING_S, most)
    if replica.waiting_count > 0 and budget > 0 and _wants_plan(state, r):
        return 1  # some came while the plan was made that has just been used
    return most
