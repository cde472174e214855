"""The work a request costs whatever the schedule, in replica seconds.

Theorem (work of a request). Let prices be as :func:`capplan.bounds.prices.
proven` says, S a set of requests that keep their SLOs, and (x, y, z) >= 0 with
x + y + z = 1. In any schedule whatever the iterations in which requests of S take part
or are active (between their first and last token) last together at least the sum over
S of

    prefill * new tokens + attention + sum over decode steps of u
    + fixed * ( x * n * m² / (tpot - fixed)  +  y * n / B  +  z * K / M )

where n = output - 1 decode steps, u = decode + context * (context of the step), v the
same with the context at most a cap, m the mean of sqrt(v) over the steps, K the sum of
the contexts that the request holds alone, B the most requests of an iteration and M
the KV tokens of a replica.

Proof. Give request i the price l_i = x*fixed*m²/(tpot - fixed)². In iteration k of
time t let D and V be the sums of u and v over the requests that decode, A the sum of
l_i over the active requests of S, C the sum of sqrt(v_i l_i) over those of S that
decode, so C² <= V*A (Cauchy). Claim:

    t * (1 + A) >= D + fixed*A + 2 sqrt(x fixed) C + (y + z) fixed
                   + prefill * T + attention * Q.

Without prefill t >= fixed + D and x*fixed + D*A >= 2 sqrt(x fixed D A). With prefill
t = fixed + D + P + attention*Q; the left less all on the right but the prompt is least
at sqrt(A) = sqrt(x fixed V) / (D + P), where it is P + x*fixed*(1 - V / (D + P)), at
least prefill * T by the choice of the price.

The batch is at most B and its contexts fit in M, so fixed >= fixed * b / B and >= fixed
* (sum of contexts) / M. Sum the claim over k. The left is the time of all these
iterations plus the sum of l_i times how long i is active, at most tpot_i * n_i as i
keeps its SLO. On the right each request collects its prefill, its sum of u, its y and
z terms and n_i * (fixed * l_i + 2 sqrt(x fixed l_i) m_i). With the active time moved
over, n_i * (2 sqrt(x fixed l_i) m_i - (tpot_i - fixed) l_i) is the x term. QED.

A request that misses its SLO but is answered, in S with l_i = 0, collects all but
the x term. Only the mean over a request was used, so single iterations may exceed the
TPOT. An end-to-end limit bounds the mean too. A scheduler may also preempt a request
and compute its context again as prefill, which gives the same token: that costs
``prefill`` for each token of context, and a step that is charged more than this is
charged less (:func:`work`).
"""

from typing import NamedTuple

import numpy as np

from capplan.bounds.prices import Minorant, reach
from capplan.deployment import EngineSettings

_ENDLESS_S = 1e15
"""Stands for no limit where infinity cannot be multiplied by 0. [s]"""
_TOLERANCE = 1 + 1e-9


class Requests(NamedTuple):
    """Requests and their limits, one row each, all float64."""

    release_s: np.ndarray  # when the engine may first see it [s]
    prompt_tokens: np.ndarray  # [tokens]
    output_tokens: np.ndarray  # [tokens]
    cached_tokens: np.ndarray  # most that a prefix cache saves of its prompt [tokens]
    ttft_s: np.ndarray  # from release; inf where there is none [s]
    tpot_s: np.ndarray  # [s]
    e2e_s: np.ndarray  # from release [s]


class Work(NamedTuple):
    """What each request costs, all shape (n,)."""

    work_s: np.ndarray  # replica seconds when it keeps its SLO [s]
    base_s: np.ndarray  # replica seconds when it may miss it, but is answered [s]
    possible: np.ndarray  # whether the SLO can be kept alone on a replica, bool
    deadline_s: np.ndarray  # when its last token is due [s]


def work(
    requests: Requests,
    prices: Minorant,
    engine: EngineSettings,
    mix: tuple[float, float, float],
    context_cap: float,
) -> Work:
    """Return the work of each request; see the theorem above.

    Parameters
    ----------
    requests
        Requests and their limits.
    prices
        As proven for ``mix[0]`` and ``context_cap``.
    engine
        The replica.
    mix
        x, y and z of the theorem.
    context_cap
        The cap of the theorem. [tokens]
    """
    prompt, cached = requests.prompt_tokens, requests.cached_tokens
    steps = requests.output_tokens - 1
    new = prompt - cached
    prefill_s = prices.prefill_s * new + prices.attention_s * new * (cached + new / 2)
    first_token_s = np.maximum(prefill_s, prices.fixed_s)
    tpot_s = np.minimum(mean_limit_s(requests, first_token_s), _ENDLESS_S)
    room_s = tpot_s - prices.fixed_s
    usable = (steps > 0) & (room_s > 0)
    per_room = np.zeros(len(prompt))  # x * fixed / (tpot - fixed)
    np.divide(mix[0] * prices.fixed_s, room_s, out=per_room, where=usable)

    decode_s = np.full(len(prompt), prices.decode_s)
    context_s = np.full(len(prompt), prices.context_s)
    if engine.prefix_caching:  # a recomputed step may take a single new token
        decode_s = np.minimum(decode_s, prices.prefill_s)
        context_s = np.minimum(context_s, prices.attention_s)
    mean_root = _mean_root(decode_s, context_s, prompt, steps, context_cap)
    if not engine.prefix_caching:
        # Recomputing pays when prefill * c < u + 2 sqrt(x fixed u l), which is at
        # most u + per_room * (u + m²); both sides are straight in c.
        cheaper = np.zeros(len(prompt), bool)
        for context in (prompt + 1, prompt + np.maximum(steps, 1)):
            step_s = decode_s + context_s * context
            charged_s = step_s + per_room * (step_s + mean_root**2)
            cheaper |= (steps > 0) & (prices.prefill_s * context < charged_s)
        if cheaper.any():
            context_s[cheaper] = min(prices.context_s, prices.prefill_s)
            spare_s = (prices.prefill_s - context_s[cheaper]) * (prompt[cheaper] + 1)
            decode_s[cheaper] = np.minimum(decode_s[cheaper], spare_s)
            per_room[cheaper] = 0.0

    steps_s = steps * (decode_s + context_s * (prompt + (steps + 1) / 2))
    held = steps * (new + (steps + 1) / 2)
    base_s = (
        prefill_s
        + steps_s
        + mix[1] * prices.fixed_s * steps / reach(engine).batch
        + mix[2] * prices.fixed_s * held / engine.kv_capacity_tokens
    )
    possible = first_token_s <= requests.ttft_s * _TOLERANCE
    possible &= (
        first_token_s + steps_s + steps * prices.fixed_s <= requests.e2e_s * _TOLERANCE
    )
    possible &= (steps == 0) | (steps_s <= steps * room_s * _TOLERANCE)
    decode_limit_s = np.where(steps > 0, requests.tpot_s, 0.0) * steps
    return Work(
        work_s=base_s + per_room * steps * mean_root**2,
        base_s=base_s,
        possible=possible,
        deadline_s=requests.release_s
        + np.minimum(requests.ttft_s + decode_limit_s, requests.e2e_s),
    )


def _mean_root(
    decode_s: np.ndarray,
    context_s: np.ndarray,
    prompt: np.ndarray,
    steps: np.ndarray,
    context_cap: float,
) -> np.ndarray:
    """Return at most the mean of sqrt(v) over contexts prompt + 1 … prompt + steps.

    The root is concave, so its sum over contexts below the cap is at least its
    integral from half a step before the first to half a step after the last.
    """
    below = np.clip(context_cap - prompt, 0, steps)
    first_s = decode_s + context_s * (prompt + 0.5)
    last_s = decode_s + context_s * (prompt + 0.5 + below)
    root = 3 * (np.sqrt(first_s) + np.sqrt(last_s))
    mean = np.zeros(len(prompt))
    np.divide(
        2 * (first_s + np.sqrt(first_s * last_s) + last_s),
        root,
        out=mean,
        where=root > 0,
    )
    if np.isinf(context_cap):
        return mean
    capped = np.sqrt(decode_s + context_s * context_cap)
    return np.asarray((below * mean + (steps - below) * capped) / np.maximum(steps, 1))


def mean_limit_s(requests: Requests, first_token_s: np.ndarray) -> np.ndarray:
    """Return the most an iteration may last on average while a request decodes.

    The TPOT limit, or what the end-to-end limit leaves after the first token. [s]
    """
    steps = np.maximum(requests.output_tokens - 1, 1)
    return np.minimum(requests.tpot_s, (requests.e2e_s - first_token_s) / steps)
