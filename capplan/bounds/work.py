"""Work that a request costs under any schedule, in replica seconds.

With prices proven by :mod:`capplan.bounds.prices` and shares (x, y, z) >= 0 of the
fixed time, x + y + z = 1, requests that meet their SLO take at least, each,

    prefill * new tokens + attention + sum over decode steps of u
    + fixed * ( x * n * m² / (tpot - fixed)  +  y * n / B  +  z * K / M )

where n = output - 1 decode steps, u = decode + context * (context of the step), v the
same with the context at most a cap, m the mean of sqrt(v) over the steps, K the sum of
the contexts that the request does not share, B the most requests of an iteration and M
the KV tokens of a replica. ``docs/bounds.md`` has the proof.
"""

from typing import NamedTuple

import numpy as np

from capplan.bounds.prices import IterationPrices, engine_bounds
from capplan.deployment import EngineSettings

_ENDLESS_S = 1e15
"""Stands for no limit where infinity cannot be multiplied by 0. [s]"""
_TOLERANCE = 1 + 1e-9


class Requests(NamedTuple):
    """Requests and their limits, float64 columns with one row per request."""

    release_s: np.ndarray  # earliest time at which the engine sees it [s]
    prompt_tokens: np.ndarray  # [tokens]
    output_tokens: np.ndarray  # [tokens]
    cached_tokens: np.ndarray  # most prompt tokens that a prefix cache saves [tokens]
    ttft_s: np.ndarray  # limit from release; inf where there is none [s]
    tpot_s: np.ndarray  # limit [s]
    e2e_s: np.ndarray  # limit from release [s]


class Work(NamedTuple):
    """Work and deadline of each request, all shape (n,)."""

    work_s: np.ndarray  # replica seconds when it meets its SLO [s]
    base_s: np.ndarray  # replica seconds when it is served, maybe outside its SLO [s]
    possible: np.ndarray  # whether it can meet its SLO alone on a replica, bool
    deadline_s: np.ndarray  # when its last token is due [s]


def request_work(
    requests: Requests,
    prices: IterationPrices,
    engine: EngineSettings,
    mix: tuple[float, float, float],
    context_cap: float,
) -> Work:
    """Return the work of each request.

    Parameters
    ----------
    requests
        Requests and their limits.
    prices
        Prices proven for ``mix[0]`` and ``context_cap``.
    engine
        The replica.
    mix
        Shares x, y and z of the fixed time.
    context_cap
        Context above which a request spreads no fixed time. [tokens]
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
        # most u + per_room * (u + m²); both sides are linear in c.
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
        + mix[1] * prices.fixed_s * steps / engine_bounds(engine).batch
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
    """Return the longest mean iteration time while a request decodes. [s]

    The TPOT limit, or the end-to-end limit less the first token over the steps.
    """
    steps = np.maximum(requests.output_tokens - 1, 1)
    return np.minimum(requests.tpot_s, (requests.e2e_s - first_token_s) / steps)
