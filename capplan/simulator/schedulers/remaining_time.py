"""The predicted time that a request has left, and the level that it sets.

ALISE: ``T0 * prompt + n * (alpha * prompt + beta)`` with n predicted tokens left, and
no prompt once it is done. A level but the lowest holds ``ratio`` times the time of the
one above (ours; the paper's levels were not at hand). A prediction that was too short
is doubled (ours).

Settings, the first of its scheduler: ``levels``; ``base_s``, time left at the highest
level [s]; ``ratio``; ``t0_s``, ``alpha_s``, ``beta_s`` [s]: -1 takes them from the
latency tables, T0 from a full budget of prompt tokens over that of one, alpha from the
context term and beta from a decode of a batch of ``batch_size``, over it.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.jump import ROUNDING_S
from capplan.simulator.state import Setting

_LEVELS = Setting.OWN
_BASE_S = Setting.OWN + 1
_RATIO = Setting.OWN + 2
_T0_S = Setting.OWN + 3
_ALPHA_S = Setting.OWN + 4
_BETA_S = Setting.OWN + 5
_BATCH_SIZE = Setting.OWN + 6


@inlined()
def _prompt_token_s(state):
    """Return T0, the time of a prompt token. [s]"""
    if state.settings[_T0_S] >= 0.0:
        return state.settings[_T0_S]
    budget = state.engine[0].max_num_batched_tokens
    if budget == 1:
        return state.fused_s[1]
    return (state.fused_s[budget] - state.fused_s[1]) / (budget - 1)


@inlined()
def _token_s(state, prompt_tokens):
    """Return the time of a later token, alpha * prompt + beta. [s]"""
    engine = state.engine[0]
    b = min(int(state.settings[_BATCH_SIZE]), engine.max_num_seqs)
    alpha_s = state.settings[_ALPHA_S]
    if alpha_s < 0.0:
        alpha_s = state.by_batch[b].decode_context_s
    beta_s = state.settings[_BETA_S]
    if beta_s < 0.0:
        beta_s = state.by_batch[b].decode_s / b
    return alpha_s * prompt_tokens + beta_s


@compiled()
def rank(state, slot, generated, left):
    """Return the level for the time that a request has left.

    ``left`` are the prompt tokens to compute, 0 when the prompt is done.
    """
    request = state.requests[slot]
    tokens = max(0, state.plans[slot].predicted_tokens - generated)
    remaining_s = tokens * _token_s(state, request.prompt_tokens)
    if left > 0:
        remaining_s += left * _prompt_token_s(state)
    level = 0
    most_s = state.settings[_BASE_S] + ROUNDING_S
    while level + 1 < state.settings[_LEVELS] and remaining_s > most_s:
        level += 1
        most_s = state.settings[_BASE_S] * state.settings[_RATIO] ** level + ROUNDING_S
    return level


@inlined()
def predict_more(state, slot, generated):
    """Double a prediction that was too short; return whether it was."""
    plan = state.plans[slot]
    short = generated >= plan.predicted_tokens
    while generated >= plan.predicted_tokens:
        plan.predicted_tokens *= 2
    return short
