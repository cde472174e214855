"""The predicted time that a request has left, and the level that it sets.

ALISE: ``T0 * prompt + n * (alpha * prompt + beta)`` with n predicted tokens left, and
no prompt once it is done. A level but the lowest holds ``ratio`` times the time of the
one above (ours; the paper's levels were not at hand). A prediction that was too short
is doubled (ours).

Settings: ``levels``; ``base_s``, time left at the highest
level [s]; ``ratio``; ``t0_s``, ``alpha_s``, ``beta_s`` [s]: -1 takes them from the
latency tables, T0 from a full budget of prompt tokens over that of one, alpha from the
context term and beta from a decode of a batch of ``batch_size``, over it.
"""

from capplan.simulator.engine.jump import ROUNDING_S
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.schedulers import Knob, indices
from capplan.simulator.state import State

SETTINGS = {
    "levels": Knob(5, 1, 1000),
    "base_s": Knob(0.2, 1e-6),
    "ratio": Knob(2.0, 1.0, 1e3),
    "t0_s": Knob(-1.0, -1.0),
    "alpha_s": Knob(-1.0, -1.0),
    "beta_s": Knob(-1.0, -1.0),
    "batch_size": Knob(1),
}
SETTING = indices(SETTINGS)
REQUEST_COLUMNS = ("predicted_tokens",)  # output expected now; more when it was short
REQUEST = indices(REQUEST_COLUMNS)


@inlined()
def _prompt_token_s(state: State):
    """Return T0, the time of a prompt token. [s]"""
    if state.settings[SETTING.t0_s] >= 0.0:
        return state.settings[SETTING.t0_s]
    budget = state.engine[0].max_num_batched_tokens
    if budget == 1:
        return state.fused_s[1]
    return (state.fused_s[budget] - state.fused_s[1]) / (budget - 1)


@inlined()
def _token_s(state: State, prompt_tokens):
    """Return the time of a later token, alpha * prompt + beta. [s]"""
    engine = state.engine[0]
    b = min(int(state.settings[SETTING.batch_size]), engine.max_num_seqs)
    alpha_s = state.settings[SETTING.alpha_s]
    if alpha_s < 0.0:
        alpha_s = state.by_batch[b].decode_context_s
    beta_s = state.settings[SETTING.beta_s]
    if beta_s < 0.0:
        beta_s = state.by_batch[b].decode_s / b
    return alpha_s * prompt_tokens + beta_s


@inlined()
def predicted_tokens(state: State, slot: int):
    """Return the output tokens that are expected of a request now."""
    return int(state.request_memory[slot, REQUEST.predicted_tokens])


@compiled()
def rank(state: State, slot: int, generated, left):
    """Return the level for the time that a request has left.

    ``left`` are the prompt tokens to compute, 0 when the prompt is done.
    """
    request = state.requests[slot]
    tokens = max(0, predicted_tokens(state, slot) - generated)
    remaining_s = tokens * _token_s(state, request.prompt_tokens)
    if left > 0:
        remaining_s += left * _prompt_token_s(state)
    level = 0
    base_s = state.settings[SETTING.base_s]
    ratio = state.settings[SETTING.ratio]
    most_s = base_s + ROUNDING_S
    while level + 1 < state.settings[SETTING.levels] and remaining_s > most_s:
        level += 1
        most_s = base_s * ratio**level + ROUNDING_S
    return level


@inlined()
def predict_more(state: State, slot: int, generated):
    """Double a prediction that was too short; return whether it was."""
    short = generated >= predicted_tokens(state, slot)
    while generated >= predicted_tokens(state, slot):
        state.request_memory[slot, REQUEST.predicted_tokens] *= 2
    return short
