"""Aladdin's best fit: the fullest replica on which all SLOs are still met.

Nie et al., "Aladdin: Joint Placement and Scaling for SLO-Aware LLM Serving",
arXiv:2405.06856, Algorithm 1 with the constraints (b) to (e) of section 4.2.
The paper opens a replica when none fits; here their number is fixed, and such a
request goes to the emptiest. The decode limit (b) comes from the latency tables
at the batch size with the request. Constraint (b) ignores that prefill shares
iterations with decode, as it does in vLLM V1, so theta must be lower than for
prediction error alone: 0.4 to 0.5 on ShareGPT at a TPOT of 30 ms.
"""

import math
from collections.abc import Callable

from capplan import routing
from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.engine.speculation import tokens_before
from capplan.simulator.engine.wake import next_s
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import (
    ADVANCE_FIRST,
    NONE,
    ROUTE,
    ROUTER_SETTINGS,
    Count,
    Needs,
    Phase,
    Setting,
    State,
)

NEEDS = Needs.COUNTS  # of a candidate more: it is advanced first
RULES = Rules(
    {
        "theta": Knob(0.5, 0, 1),  # margin for prediction error
        "gamma": Knob(routing.GAMMA, 0, 1),  # share of predicted output in contexts
    }
)
SETTING = indices(RULES.settings, ROUTER_SETTINGS)

squared_norm: Callable[..., float] = inlined()(routing.squared_capacity_norm)


@inlined()
def prefill_time_s(state: State, tokens):
    """Return the time to prefill tokens, in iterations of the token budget."""
    budget = state.engine[0].max_num_batched_tokens
    rest = tokens % budget
    time_s = (tokens // budget) * state.fused_s[budget]
    if rest > 0:
        time_s += state.fused_s[rest]
    return time_s


@inlined()
def meets_decode_slo(state: State, r: int, slot: int):
    """Return whether (b) holds: an iteration with all contexts meets the TPOT SLO."""
    replica = state.replicas[r]
    request = state.requests[slot]
    b = replica.outstanding + 1
    if b > state.engine[0].max_num_seqs:
        return False
    spare_s = state.settings[Setting.TPOT_S] - state.by_batch[b].decode_s
    prompts = replica.outstanding_prompt_tokens + request.prompt_tokens
    outputs = replica.outstanding_output_tokens + request.predicted_tokens
    context = prompts + state.settings[SETTING.gamma] * outputs
    theta = state.settings[SETTING.theta]
    return state.by_batch[b].decode_context_s * context <= theta * spare_s


@compiled()
def remaining_tokens(state: State, r: int, slot: int):
    """Return the tokens a request holds now and those it is expected to add."""
    request = state.requests[slot]
    held = request.known_tokens
    generated = held - request.prompt_tokens
    if request.phase == Phase.DECODING or request.phase == Phase.DRAINING:
        left = max(0, request.end_step - state.replicas[r].step)
        generated = request.run_tokens - left
        held = request.prompt_tokens + generated
        if state.engine[0].verifies != 0 and left > 0:
            held = tokens_before(state, slot, state.replicas[r].step + 1) + 1
            generated = held - request.prompt_tokens
    return held, max(1, request.predicted_tokens - generated)


@compiled()
def meets_prefill_slos(state: State, r: int, slot: int, now_s):
    """Return whether (c) and (d) hold: prefill delays no request beyond its SLO.

    (c) bounds it by the TTFT SLO, (d) by the time that each decoding request is
    ahead of its TPOT SLO.
    """
    replica = state.replicas[r]
    tokens = replica.prefill_tokens + state.requests[slot].prompt_tokens
    time_s = prefill_time_s(state, tokens)
    if time_s > state.settings[Setting.TTFT_S]:
        return False
    tpot_s = state.settings[Setting.TPOT_S]
    if math.isinf(tpot_s):
        return True
    theta = state.settings[SETTING.theta]
    for k in range(replica.heap_count):  # all that decode; a list is slower to follow
        other = state.requests[state.ends[r, k]]
        held = remaining_tokens(state, r, state.ends[r, k])[0]
        generated = held - other.prompt_tokens
        saved_s = tpot_s * generated - (now_s - other.first_token_s)
        if time_s > theta * saved_s:
            return False
    return True


@compiled()
def _holding_after(state: State, r: int, slot: int, iterations):
    """Return what those hold now that will not have completed, and how many they are.

    With the new request. [KV tokens]
    """
    held = holders = 0
    block_size = state.engine[0].block_size
    for head in (state.replicas[r].running_head, state.replicas[r].waiting_head):
        other = head
        while other != NONE:
            tokens, left = remaining_tokens(state, r, other)
            if left >= iterations:
                held += tokens + state.requests[other].bounded_blocks * block_size
                holders += 1
            other = state.requests[other].next
    request = state.requests[slot]
    if request.predicted_tokens >= iterations:
        held += request.prompt_tokens + request.bounded_blocks * block_size
        holders += 1
    return held, holders


@compiled()
def fits_kv(state: State, r: int, slot: int):
    """Return whether (e) holds: KV stays within capacity in all future iterations.

    The sum of all peaks is compared first: it needs no loop. It is no
    upper bound where running requests outlived their predictions.
    """
    replica = state.replicas[r]
    request = state.requests[slot]
    engine = state.engine[0]
    capacity = engine.kv_blocks * engine.block_size
    most = replica.outstanding_prompt_tokens + replica.outstanding_output_tokens
    most += request.prompt_tokens + request.predicted_tokens
    if engine.bounded_groups > 0:
        most = capacity
    # Requests that outlived their predictions hold more than predicted, or will when
    # they are computed again.
    if most + replica.outstanding <= capacity and replica.preempted_draining == 0:
        used = (engine.kv_blocks - replica.free_blocks) * engine.block_size
        used += replica.prefill_tokens
        if used + request.prompt_tokens + request.predicted_tokens <= most:
            return True
    iterations = 1
    while True:
        held, holders = _holding_after(state, r, slot, iterations)
        if holders == 0:
            return True
        if held + holders * iterations > capacity:
            return False
        # Each holds a token more after each; before so many, KV suffices for them all.
        iterations = (capacity - held) // holders + 1


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica of the largest capacity norm that meets (b) to (e)."""
    n = state.counts[Count.OPEN]
    gamma = state.settings[SETTING.gamma]
    emptiest = 0
    for r in range(n):
        replica = state.replicas[r]
        context = replica.outstanding_prompt_tokens
        load = context + gamma * replica.outstanding_output_tokens
        state.scratch[0, r] = math.sqrt(squared_norm(float(replica.outstanding), load))
        if state.scratch[0, r] < state.scratch[0, emptiest]:
            emptiest = r
    least = state.scratch[0, emptiest]
    for r in range(n):  # counts alone rule most out
        if not meets_decode_slo(state, r, slot):
            state.scratch[0, r] = -1.0
    for _ in range(n):
        best = 0
        for r in range(1, n):
            if state.scratch[0, r] > state.scratch[0, best]:
                best = r
        if state.scratch[0, best] < least:
            break
        if next_s(state, best) < now_s:
            return ADVANCE_FIRST - best
        if meets_prefill_slos(state, best, slot, now_s) and fits_kv(state, best, slot):
            return best
        state.scratch[0, best] = -1.0
    return emptiest
