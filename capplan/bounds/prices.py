"""Prices that no iteration time of the tables is below.

Iteration times may be staircases, concave or kinked. A linear program on sampled
iterations proposes the prices; every batch size and every number of tokens is then
evaluated and the prices lowered where needed: the solver's tolerances do not matter.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from capplan.bounds.simplex import maximized
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables

_LEAST_CONTEXT = 2
"""A decoding request has at least one prompt and one output token. [tokens]"""
_EXACT_TOKENS = 24
_ENDLESS_CONTEXT = 1e12
"""Stands for an unlimited context where infinity cannot be multiplied by 0. [tokens]"""
_MARGIN_S = 1e-12
_AT_ONCE = 2**14
"""Iterations that are evaluated at once."""


class IterationPrices(NamedTuple):
    """Linear lower bound on the time of an iteration.

    An iteration has b decoding requests with L context tokens in total, and prefill
    chunks with T new tokens and attention work Q in total.
    """

    fixed_s: float  # per iteration [s]
    decode_s: float  # per decoding request [s]
    context_s: float  # per context token of the decoding requests [s/token]
    prefill_s: float  # per new prompt token [s/token]
    attention_s: float  # per pair of new and earlier token [s/token²]


class EngineBounds(NamedTuple):
    """Largest iteration of an engine: b <= batch, L <= context, T + b <= tokens."""

    batch: int
    context: float
    tokens: int


def engine_bounds(engine: EngineSettings) -> EngineBounds:
    """Return the largest batch, context and number of tokens of an iteration."""
    tokens = engine.max_num_batched_tokens
    batch = min(engine.max_num_seqs, tokens)
    if engine.prefix_caching:  # contexts may share blocks, so L is unlimited
        return EngineBounds(batch, np.inf, tokens)
    context = engine.kv_capacity_tokens
    return EngineBounds(max(min(batch, context // _LEAST_CONTEXT), 1), context, tokens)


def fit_prices(
    tables: LatencyTables,
    bounds: EngineBounds,
    batch: float,
    context_per_request: float,
    prefill_s: float,
) -> IterationPrices:
    """Return prices below all iteration times, highest at one decode batch.

    Every iteration takes at least ``fixed_s + decode_s*b + context_s*L + prefill_s*T +
    attention_s*Q``. The decode batch has ``batch`` requests of ``context_per_request``
    tokens; the price of a prompt token is at most ``prefill_s``. [s/token]
    """
    batch = min(max(batch, 1.0), bounds.batch)
    rows, times_s = _sample_iterations(tables, bounds)
    rows = np.vstack((rows, (0.0, 0.0, 0.0, 1.0)))
    times_s = np.append(times_s, prefill_s)
    if np.isinf(bounds.context):  # no higher than the slope of the times in L
        highest_context_s = min(
            tables.decode_context_s[1 : bounds.batch + 1].min(),
            tables.fused_context_s[1 : bounds.batch + 1].min(),
        )
        rows = np.vstack((rows, (0.0, 0.0, 1.0, 0.0)))
        times_s = np.append(times_s, highest_context_s)
    context = min(bounds.context, batch * context_per_request)
    least_s = float(min(tables.decode_s[1 : bounds.batch + 1].min(), tables.fused_s[1]))
    # In batches of one fixed and decode price are worth the same: the first can be
    # lowered, if it is not 0.
    gain = np.array([1 + 1e-9 * (bounds.batch == 1), batch, context, 1e3])
    # A fixed price of 0 cannot be lowered: if it must be, ask for some of it.
    for least_fixed_s in (0.0, 0.05 * least_s):
        best_s = maximized(gain, rows, times_s - least_fixed_s * rows[:, 0])
        if best_s is None:
            continue
        best_s[0] += least_fixed_s
        # A little less, so that no sample is above its time by rounding.
        prices_s = np.maximum(best_s * (1 - 1e-6), 0.0)
        prices = IterationPrices._make([*prices_s.tolist(), tables.attention_s])
        # Iterations between the samples may take less: lower the fixed price to them.
        fixed_s = prices.fixed_s + least_slack_s(tables, bounds, prices) - _MARGIN_S
        if fixed_s >= 0:
            return prices._replace(fixed_s=fixed_s)
    # The shortest iteration as fixed price is always valid.
    flat = IterationPrices(0.0, 0.0, 0.0, 0.0, tables.attention_s)
    slack_s = least_slack_s(tables, bounds, flat)
    return flat._replace(fixed_s=max(slack_s - _MARGIN_S, 0.0))


def _sample_iterations(
    tables: LatencyTables, bounds: EngineBounds
) -> tuple[np.ndarray, np.ndarray]:
    """Return sampled iterations (1, b, L, T) and their times without attention."""
    batches = np.unique(np.geomspace(1, bounds.batch, 16).round().astype(int))
    tokens = np.unique(np.geomspace(1, bounds.tokens, 16).round().astype(int))
    context = bounds.context if np.isfinite(bounds.context) else 0.0
    b = np.repeat(batches, 2)
    total = np.where(np.arange(len(b)) % 2, context, _LEAST_CONTEXT * b)
    times_s = [tables.decode_s[b] + tables.decode_context_s[b] * total]
    rows = [np.stack([np.ones(len(b)), b, total, np.zeros(len(b))], axis=1)]
    b, total = np.append(b, 0), np.append(total, 0.0)
    row = np.tile(np.arange(len(b)), len(tokens))
    n = np.repeat(tokens, len(b))
    # A mixed iteration has a prompt token beside its decodes.
    row, n = row[n > b[row]], n[n > b[row]]
    b, total = b[row], total[row]
    times_s.append(
        tables.fused_s[n] + tables.fused_decode_s[b] + tables.fused_context_s[b] * total
    )
    rows.append(np.stack([np.ones(len(b)), b, total, n - b], axis=1))
    return np.concatenate(rows), np.concatenate(times_s)


def least_slack_s(
    tables: LatencyTables, bounds: EngineBounds, prices: IterationPrices
) -> float:
    """Return the least that any iteration takes above its prices; < 0 if below. [s]

    Every batch size and every number of tokens is evaluated. Times are linear in L, so
    the ends of its range decide; times and prices have the same attention term.
    """
    b = np.arange(bounds.batch + 1)
    low = _LEAST_CONTEXT * b.astype(np.float64)
    high = np.minimum(bounds.context, _ENDLESS_CONTEXT) * (b > 0)

    def context_slack_s(per_token_s: np.ndarray) -> np.ndarray:
        slope_s = per_token_s[: bounds.batch + 1] - prices.context_s
        return np.minimum(slope_s * low, slope_s * high)

    decode_s = (
        tables.decode_s[: bounds.batch + 1]
        + context_slack_s(tables.decode_context_s)
        - prices.fixed_s
        - prices.decode_s * b
    )[1:]
    tokens = np.arange(bounds.tokens + 1)
    over_s = tables.fused_s[: bounds.tokens + 1] - prices.prefill_s * tokens
    least_over_s = np.minimum.accumulate(over_s[::-1])[::-1]  # over n' >= n
    mixed = b < bounds.tokens
    fused_s = (
        least_over_s[b[mixed] + 1]
        + prices.prefill_s * b[mixed]
        + tables.fused_decode_s[b[mixed]]
        + context_slack_s(tables.fused_context_s)[mixed]
        - prices.fixed_s
        - prices.decode_s * b[mixed]
    )
    return float(min(decode_s.min(), fused_s.min()))


def prove_prefill_price(
    tables: LatencyTables,
    bounds: EngineBounds,
    prices: IterationPrices,
    tpot_share: float,
    context_cap: float,
    *,
    token_step: float | None = 1.05,
    pieces: int = 2,
) -> IterationPrices:
    """Return prices with the highest price of a prompt token that can be proven.

    In an iteration with prefill let D = decode_s*b + context_s*L, V the same with L at
    most ``context_cap`` a request, and P = time - fixed_s - D - attention_s*Q >= 0.
    ``prefill_s`` is valid when in every such iteration

        P + tpot_share * fixed_s * (1 - V / (D + P)) >= prefill_s * T:

    prefill lengthens the iteration of the requests that decode in it and so spends
    their TPOT (``docs/internals/bounds.md``); ``tpot_share`` is x of
    :mod:`capplan.bounds.work`.

    Every batch size is evaluated; numbers of tokens in blocks that grow by
    ``token_step`` and contexts in ``pieces`` ranges, each with its least left side and
    largest T. The result may be low by about a step and is never too high.
    ``token_step`` None evaluates a sample only: an estimate without proof.
    """
    # With prefix caching the proof needs the first price: step 6 of
    # docs/internals/bounds.md.
    if np.isinf(bounds.context):
        return prices
    largest = min(bounds.batch, bounds.tokens - 1)
    if token_step is None:
        batches = np.append(0, _spread(largest, 16))
        first = last = _spread(bounds.tokens, 24)
        at = np.unique(np.minimum(batches[:, None] + first, bounds.tokens))
    else:
        batches = np.arange(largest + 1)
        edges = _token_blocks(bounds.tokens, token_step)
        first, last = edges[:-1], edges[1:] - 1
        at = np.arange(bounds.tokens + 1)
    base_s = np.empty(bounds.tokens + 1)
    between_s = np.minimum.reduceat(tables.fused_s[: bounds.tokens + 1], at)
    base_s[at] = np.minimum.accumulate(between_s[::-1])[::-1]  # over n' >= n
    least_s = np.inf
    # What does not fit the processor's cache takes thrice as long: a part at a time.
    parts = -(-len(batches) * len(first) // _AT_ONCE)
    for b in np.array_split(batches, parts):
        # Beside b decodes there is room for tokens - b of prompts.
        most = np.minimum(last[None, :], (bounds.tokens - b)[:, None])
        own_s = tables.fused_decode_s[b] - prices.fixed_s - prices.decode_s * b
        without_context_s = (
            base_s[np.minimum(b[:, None] + first[None, :], bounds.tokens)]
            + own_s[:, None]
        )
        slope_s = tables.fused_context_s[b] - prices.context_s
        without_context_s[first[None, :] > most] = np.inf  # no such iteration
        tokens = np.maximum(most, 1).astype(np.float64)
        for low, high, above_cap in _context_ranges(b, bounds, context_cap, pieces):
            context_slack_s = np.minimum(slope_s * low, slope_s * high)
            over_s = without_context_s + context_slack_s[:, None]
            np.maximum(over_s, 0.0, out=over_s)
            spread_s = prices.decode_s * b + prices.context_s * (
                np.minimum(high, b * context_cap)
            )
            # Below the cap V = D, and 1 - V / (D + P) falls with D; above, it rises.
            decode_s = prices.decode_s * b + prices.context_s * (
                low if above_cap else high
            )
            # In place: value = over + tpot_share * fixed * max(1 - spread / total, 0)
            value_s = np.maximum(decode_s[:, None] + over_s, 1e-300)
            np.divide(spread_s[:, None], value_s, out=value_s)
            np.subtract(1, value_s, out=value_s)
            np.maximum(value_s, 0.0, out=value_s)
            value_s *= tpot_share * prices.fixed_s
            value_s += over_s
            value_s /= tokens
            least_s = min(least_s, float(value_s.min()))
    return prices._replace(prefill_s=max(least_s * (1 - 1e-9), prices.prefill_s))


@cache
def _spread(most: int, count: int) -> np.ndarray:
    """Return whole numbers from 1 to a most, at about equal ratios."""
    found = np.geomspace(1, max(1, most), count).astype(int)
    return np.unique(found[found <= most])


def _context_ranges(
    b: np.ndarray, bounds: EngineBounds, context_cap: float, pieces: int
) -> list[tuple[np.ndarray, np.ndarray, bool]]:
    """Return ranges (low, high, above the cap) that cover every possible L."""
    least = _LEAST_CONTEXT * b.astype(np.float64)
    largest = np.maximum(float(bounds.context), least)
    middle = np.clip(context_cap * b, least, largest)
    ranges = []
    for start, end, above_cap in ((least, middle, False), (middle, largest, True)):
        ratio = np.where(b > 0, end / np.maximum(start, 1e-300), 1.0)
        for piece in range(pieces):
            low = start * ratio ** (piece / pieces)
            high = start * ratio ** ((piece + 1) / pieces)
            ranges.append((low, high, above_cap))
    return ranges


def _token_blocks(tokens: int, step: float) -> np.ndarray:
    """Return the first number of tokens of each block, then one past the last."""
    edges = list(range(1, min(_EXACT_TOKENS, tokens) + 1))
    while edges[-1] < tokens:
        edges.append(min(max(edges[-1] + 1, int(edges[-1] * step)), tokens))
    return np.array([*edges, tokens + 1])
