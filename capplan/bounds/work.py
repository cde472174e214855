"""Work that a request costs under any schedule, in replica seconds.

Each output token after the first, at context c, comes from a decode step or from
recomputing the preempted request. With shares (x, y, z) of the fixed time a request
that meets its SLO takes at least

    prefill * new tokens + attention + fixed * (y * n / B + z * K / M)
    + sum over n steps of min(u + s, r) - n * (tpot - fixed) * l

where u = decode + context * c is a decode step, r = prefill * c + attention * c² / 2 a
recomputation, l = x * fixed * m² / (tpot - fixed)² the price of the time between the
first and the last token, s = 2 sqrt(x * fixed * l * v), v is u with c at most a cap, m
the mean of sqrt(v), B the most requests of an iteration, M the KV tokens of a replica
and K the sum of c without shared tokens. ``docs/internals/bounds.md`` has the proof.
"""

from typing import NamedTuple

import numpy as np

from capplan.bounds.prices import IterationPrices, engine_bounds
from capplan.deployment.engine import EngineSettings

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
    # 1 where other replicas compute its prompt, whose KV comes from there
    handed: np.ndarray = np.zeros(1)


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
    """Return the work of each request, with shares ``mix`` of the fixed time.

    ``prices`` are proven for ``mix[0]`` and ``context_cap``, the context above which a
    request spreads no fixed time. [tokens]
    """
    prompt = requests.prompt_tokens
    cached = requests.cached_tokens * engine.prefix_caching
    steps = requests.output_tokens - 1
    new, here = prompt - cached, 1 - requests.handed
    prefill_s = prices.prefill_s * new + prices.attention_s * new * (cached + new / 2)
    prefill_s *= here
    # Not their sum: the price of a prompt may hold a share of the fixed time.
    first_token_s = np.maximum(prefill_s, prices.fixed_s) * here
    # A limit on the end-to-end time limits the mean step too.
    e2e_limit_s = (requests.e2e_s - first_token_s) / np.maximum(steps, 1)
    tpot_s = np.minimum(np.minimum(requests.tpot_s, e2e_limit_s), _ENDLESS_S)
    room_s = tpot_s - prices.fixed_s
    usable = (steps > 0) & (room_s > 0)
    per_room = np.zeros(len(prompt))  # x * fixed / (tpot - fixed)
    np.divide(mix[0] * prices.fixed_s, room_s, out=per_room, where=usable)

    decode_s = np.full(len(prompt), prices.decode_s)
    context_s = np.full(len(prompt), prices.context_s)
    recompute_s = prices.prefill_s + prices.attention_s * (prompt + 1) / 2
    if engine.prefix_caching:
        # A step may be the prefill of one token after a hit of all others; it has
        # attention c - 1/2 >= c * (prompt + 1/2) / (prompt + 1) at context c.
        hit_s = prices.attention_s * (prompt + 0.5) / (prompt + 1)
        decode_s = np.minimum(decode_s, prices.prefill_s)
        context_s = np.minimum(context_s, hit_s)
        recompute_s = np.full(len(prompt), _ENDLESS_S)
    square_s = _mean_root(decode_s, context_s, prompt, steps, context_cap) ** 2

    def recomputing_saves_s(
        added_s: np.ndarray | float, factor: np.ndarray | float
    ) -> np.ndarray:
        """Return by how much steps of ``added + factor * u`` exceed recomputation."""
        return _sum_above(
            added_s + factor * decode_s, recompute_s - factor * context_s, prompt, steps
        )

    # Contexts of the steps are prompt + 1 to prompt + steps: sums in closed form.
    steps_s = steps * (decode_s + context_s * (prompt + (steps + 1) / 2))
    held = steps * (new + (steps + 1) / 2)
    decoded_s = (
        prefill_s
        + steps_s
        + mix[1] * prices.fixed_s * steps / engine_bounds(engine).batch
        + mix[2] * prices.fixed_s * held / engine.kv_capacity_tokens
    )
    # With l = 0, which holds whether the SLO is met or not.
    base_s = decoded_s - recomputing_saves_s(0.0, 1.0)
    # The x term of a step is 2 * per_room * m * sqrt(v) <= per_room * (m² + u).
    spread_s = per_room * steps * square_s
    spread_s -= recomputing_saves_s(per_room * square_s, 1 + per_room)
    # Recomputation takes fixed + P, and P >= prefill * tokens - x * fixed.
    least_s = steps_s - recomputing_saves_s(mix[0] * prices.fixed_s, 1.0)
    least_s = steps * prices.fixed_s + np.maximum(least_s, 0.0)
    possible = first_token_s <= requests.ttft_s * _TOLERANCE
    possible &= first_token_s + least_s <= requests.e2e_s * _TOLERANCE
    possible &= least_s <= steps * tpot_s * _TOLERANCE
    # An infinite TPOT times no step would be nan.
    decode_limit_s = np.where(steps > 0, requests.tpot_s, 0.0) * steps
    return Work(
        work_s=np.maximum(base_s, decoded_s + spread_s),
        base_s=base_s,
        possible=possible,
        deadline_s=requests.release_s
        + np.minimum(requests.ttft_s + decode_limit_s, requests.e2e_s),
    )


def _sum_above(
    height_s: np.ndarray, slope_s: np.ndarray, prompt: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Return the sum over contexts c of the steps of max(height - slope * c, 0).

    Heights are >= 0, so slopes are positive where not every step counts.
    """
    some = slope_s * (prompt + steps) > height_s
    above = np.array(steps)
    np.divide(height_s, slope_s, out=above, where=some)
    above[some] = np.clip(np.floor(above[some]) - prompt[some], 0, None)
    return np.asarray(above * (height_s - slope_s * (prompt + (above + 1) / 2)))


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
    below = np.clip(np.floor(context_cap) - prompt, 0, steps)
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
    # Then no step is above the cap, and 0 * inf would be nan.
    if np.isinf(context_cap):
        return mean
    capped = np.sqrt(decode_s + context_s * context_cap)
    return np.asarray((below * mean + (steps - below) * capped) / np.maximum(steps, 1))
