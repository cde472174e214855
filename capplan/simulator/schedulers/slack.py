"""How long each request can wait: AccelGen's T_r, S_b and what they are made of.

A request's SLOs are those of its class: TTFT and TBT where it has both, or else the
end-to-end time, its JCT. A JCT is shared out evenly over the iterations that the
request takes: Eq. 6 and the deadlines of the paper's section 4.2, late and early
iterations carried over, come to that where no time for preemptions is set aside (the
paper prints no value for it).
"""

import math

from capplan.simulator.engine.jump import ROUNDING_S
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.kvcache import ceil_div
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.state import Limit, Phase, State

RULES = Rules(
    {
        "s_pf": Knob(768),
        "t_pf_s": Knob(0.0, 0),
        "gamma_s": Knob(0.75, 0),
        "long_tokens": Knob(4096),
        "affine": Knob(0, 0, 1),
        "chunking": Knob(1, 0, 1),
        "ordering": Knob(1, 0, 1),
        "batching": Knob(1, 0, 1),
        "era": Knob(1, 0, 1),
        "overhead_s": Knob(0.0, 0),
        "bounded": Knob(0, 0, 1),
    },
    orders=True,
    pauses=True,
    request_columns=("deadline_s",),  # when all until its next token must start
    replica_columns=(
        "long_prompts",  # with KV, unfinished
        "long_ending",  # of these, ended by the newest iteration
        "paused_decodes",  # that sit out the newest iteration
    ),
    slos=("ttft", "tbt"),
)
"""Of AccelGen."""
SETTING = indices(RULES.settings)
REQUEST = indices(RULES.request_columns)
REPLICA = indices(RULES.replica_columns)


@inlined()
def longest_s(state: State):
    """Return the time of an iteration of S_pf prompt tokens: T_pf and T_max. [s]"""
    if state.settings[SETTING.t_pf_s] > 0:
        return state.settings[SETTING.t_pf_s]
    tokens = int(state.settings[SETTING.s_pf])
    attention = tokens * (0.5 * tokens)
    prompt_s = state.fused_s[tokens] + state.by_batch[0].fused_decode_s
    return prompt_s + state.engine[0].attention_s * attention


@inlined()
def tokens_within(state: State, limit_s):
    """Return the tokens of an iteration that keeps a limit, at least one: Eq. 6.

    The equation scales through 0; with ``affine`` it scales beyond the time of an
    iteration without tokens. It knows neither decodes nor attention: ``bounded`` does,
    see :func:`tokens_in_time`.
    """
    fixed_s = 0.0
    if state.settings[SETTING.affine] != 0:
        fixed_s = state.fused_s[0]
    span_s = max(longest_s(state) - fixed_s, 1e-12)
    tokens = state.settings[SETTING.s_pf] * (limit_s - fixed_s) / span_s
    return int(max(1.0, min(tokens, float(state.engine[0].max_num_batched_tokens))))


@inlined()
def _iteration_s(state: State, r: int, slot: int, chunk):
    """Return the time of the next iteration with a chunk of a prompt. [s]"""
    replica = state.replicas[r]
    b = replica.decode_count + replica.batch_extra_count
    context = replica.context_tokens + replica.batch_extra_tokens
    start = state.requests[slot].computed_tokens
    times = state.by_batch[b]
    return (
        state.fused_s[replica.batch_tokens + chunk + b]
        + times.fused_decode_s
        + times.fused_context_s * context
        + state.engine[0].attention_s
        * (replica.batch_attention + chunk * (start + 0.5 * chunk))
    )


@compiled()
def tokens_in_time(state: State, r: int, slot: int, most, limit_s):
    """Return how many of ``most`` tokens of a prompt keep the limit with what runs."""
    if limit_s == math.inf:
        return most
    low = 0
    high = most
    while low < high:
        middle = (low + high + 1) // 2
        if _iteration_s(state, r, slot, middle) <= limit_s + ROUNDING_S:
            low = middle
        else:
            high = middle - 1
    return low


@inlined()
def chunks(state: State, tokens):
    """Return in how many iterations a prompt is computed: N_ck, with L_c = S_pf."""
    return ceil_div(tokens, int(state.settings[SETTING.s_pf]))


@inlined()
def _has_gaps(state: State, request_class):
    """Return whether TTFT and TBT are the SLOs of a class, not its JCT."""
    slos = state.classes
    return (
        slos[request_class, Limit.TTFT] < math.inf
        and slos[request_class, Limit.TBT] < math.inf
    )


@inlined()
def _share_s(state: State, slot: int):
    """Return each iteration's share of the JCT. [s]"""
    request = state.requests[slot]
    count = chunks(state, request.prompt_tokens) + request.predicted_tokens
    return state.classes[request.request_class, Limit.E2E] / count


@compiled()
def limit_s(state: State, slot: int, generated):
    """Return the limit on the time to the next token, or a share of the JCT. [s]"""
    request_class = state.requests[slot].request_class
    if not _has_gaps(state, request_class):
        return _share_s(state, slot)
    return state.classes[request_class, Limit.TBT if generated > 0 else Limit.TTFT]


@compiled()
def latest_start_s(state: State, r: int, slot: int):
    """Return when all that is left until the next token must start: T_r is 0 then. [s]

    For a JCT it is the next iteration: it ends with its share of the JCT.
    """
    request = state.requests[slot]
    generated = request.known_tokens - request.prompt_tokens
    left = request.known_tokens - request.computed_tokens
    last_token_s = request.last_token_s
    if request.phase == Phase.DECODING:
        generated = request.run_tokens - (request.end_step - state.replicas[r].step)
        left = 1
        last_token_s = state.replicas[r].decoded_s
    count = chunks(state, left)
    if not _has_gaps(state, request.request_class):
        ends = chunks(state, request.prompt_tokens) + generated + 1 - count
        return request.arrival_s + ends * _share_s(state, slot) - longest_s(state)
    deadline_s = request.arrival_s + state.classes[request.request_class, Limit.TTFT]
    if generated > 0:
        deadline_s = last_token_s + state.classes[request.request_class, Limit.TBT]
    return deadline_s - count * longest_s(state)
