"""Prices that undercut every iteration time, however the iteration is put together.

A bound on work needs a price per iteration, decoding request, context token and
prompt token. Iteration times may be staircases, concave or kinked, so the prices are
proposed by a small linear program and then proven by evaluating every batch and every
number of tokens of the tables: an error of the program cannot matter.
"""

from typing import NamedTuple

import numpy as np

from capplan.deployment import EngineSettings
from capplan.latency.contract import LatencyTables

_LEAST_CONTEXT = 2
"""A decoding request has at least one prompt token and one answered. [tokens]"""
_EXACT_TOKENS = 24
_COARSE = 2
"""Pieces of the context range in a sample."""
_MARGIN_S = 1e-12


class Minorant(NamedTuple):
    """Prices of work; what they undercut is said in :func:`proven`.

    An iteration has b decoding requests of together L context tokens and prefill
    chunks of together T tokens and attention work Q.
    """

    fixed_s: float  # of an iteration [s]
    decode_s: float  # of a decoding request [s]
    context_s: float  # of a token of its context [s/token]
    prefill_s: float  # of a new prompt token [s/token]
    attention_s: float  # of a pair of new and earlier token [s/token²]


class Reach(NamedTuple):
    """Iterations an engine can form: b <= batch, L <= context, T + b <= tokens."""

    batch: int
    context: float
    tokens: int


def reach(engine: EngineSettings) -> Reach:
    """Return the largest batch, context and token count of an iteration."""
    tokens = engine.max_num_batched_tokens
    batch = min(engine.max_num_seqs, tokens)
    if engine.prefix_caching:  # contexts may share blocks, so L knows no limit
        return Reach(batch, np.inf, tokens)
    context = engine.kv_capacity_tokens
    return Reach(max(min(batch, context // _LEAST_CONTEXT), 1), context, tokens)


def plane(
    tables: LatencyTables,
    span: Reach,
    batch: float,
    context_per_request: float,
    prefill_s: float,
) -> Minorant:
    """Return a plane under all iteration times, high at one decode batch.

    Any iteration takes at least ``fixed_s + decode_s*b + context_s*L + prefill_s*T +
    attention_s*Q``.

    Parameters
    ----------
    tables, span
        The replica.
    batch, context_per_request
        Decode iteration at which the plane should be high. [requests], [tokens]
    prefill_s
        Slope in T; the result's is less where no plane is so steep. [s/token]
    """
    from scipy.optimize import linprog

    scale = 1e3  # milliseconds: the solver's tolerances are absolute
    batch = min(max(batch, 1.0), span.batch)
    rows, times_s = _samples(tables, span)
    dearest_context_s = None
    if np.isinf(span.context):  # the plane may not outgrow the times in L
        dearest_context_s = scale * float(
            min(
                tables.decode_context_s[1 : span.batch + 1].min(),
                tables.fused_context_s[1 : span.batch + 1].min(),
            )
        )
    context = min(span.context, batch * context_per_request)
    least_s = float(min(tables.decode_s[1 : span.batch + 1].min(), tables.fused_s[1]))
    for least_fixed_s in (0.0, 0.05 * least_s):
        found = linprog(
            -np.array([1.0, batch, context, 1e3]),
            A_ub=rows,
            b_ub=times_s * scale,
            bounds=[
                (least_fixed_s * scale, None),
                (0, None),
                (0, dearest_context_s),
                (0, prefill_s * scale),
            ],
        )
        if found.status != 0:
            continue
        prices_s = np.maximum(np.asarray(found.x) * (1 - 1e-6) / scale, 0.0)
        prices = Minorant._make([*prices_s.tolist(), tables.attention_s])
        # Between the samples the plane may stick out: move it down until it does not.
        fixed_s = prices.fixed_s + slack_s(tables, span, prices) - _MARGIN_S
        if fixed_s >= 0:
            return prices._replace(fixed_s=fixed_s)
    flat = Minorant(0.0, 0.0, 0.0, 0.0, tables.attention_s)
    return flat._replace(fixed_s=max(slack_s(tables, span, flat) - _MARGIN_S, 0.0))


def _samples(tables: LatencyTables, span: Reach) -> tuple[np.ndarray, np.ndarray]:
    """Return sampled iterations (1, b, L, T) and their times, Q left out."""
    batches = np.unique(np.geomspace(1, span.batch, 16).round().astype(int))
    tokens = np.unique(np.geomspace(1, span.tokens, 16).round().astype(int))
    context = span.context if np.isfinite(span.context) else 0.0
    b = np.repeat(batches, 2)
    total = np.where(np.arange(len(b)) % 2, context, _LEAST_CONTEXT * b)
    rows = [np.stack([np.ones(len(b)), b, total, np.zeros(len(b))], axis=1)]
    times_s = [tables.decode_s[b] + tables.decode_context_s[b] * total]
    b = np.append(b, 0)
    total = np.append(total, 0.0)
    pair_b, pair_n = (grid.ravel() for grid in np.meshgrid(b, tokens))
    pair_total = np.tile(total, len(tokens))
    real = pair_n > pair_b
    pair_b, pair_n, pair_total = pair_b[real], pair_n[real], pair_total[real]
    rows.append(
        np.stack([np.ones(len(pair_b)), pair_b, pair_total, pair_n - pair_b], axis=1)
    )
    times_s.append(
        tables.fused_s[pair_n]
        + tables.fused_decode_s[pair_b]
        + tables.fused_context_s[pair_b] * pair_total
    )
    return np.concatenate(rows), np.concatenate(times_s)


def slack_s(tables: LatencyTables, span: Reach, prices: Minorant) -> float:
    """Return the least by which any iteration exceeds a plane; >= 0 when under. [s]

    Every batch and every number of tokens is evaluated. The time is linear in L,
    so its ends decide; the attention term is in both alike.
    """
    b = np.arange(span.batch + 1)
    low = _LEAST_CONTEXT * b.astype(np.float64)
    high = np.minimum(span.context, 1e12) * (b > 0)

    def context_part_s(per_token_s: np.ndarray) -> np.ndarray:
        extra_s = per_token_s[: span.batch + 1] - prices.context_s
        return np.minimum(extra_s * low, extra_s * high)

    decode_s = (
        tables.decode_s[: span.batch + 1]
        + context_part_s(tables.decode_context_s)
        - prices.fixed_s
        - prices.decode_s * b
    )[1:]
    tokens = np.arange(span.tokens + 1)
    over_s = tables.fused_s[: span.tokens + 1] - prices.prefill_s * tokens
    cheapest_s = np.minimum.accumulate(over_s[::-1])[::-1]  # over n' >= n
    mixed = b < span.tokens
    fused_s = (
        cheapest_s[b[mixed] + 1]
        + prices.prefill_s * b[mixed]
        + tables.fused_decode_s[b[mixed]]
        + context_part_s(tables.fused_context_s)[mixed]
        - prices.fixed_s
        - prices.decode_s * b[mixed]
    )
    return float(min(decode_s.min(), fused_s.min()))


def proven(
    tables: LatencyTables,
    span: Reach,
    prices: Minorant,
    tpot_share: float,
    context_cap: float,
    *,
    token_step: float = 1.05,
    pieces: int = 2,
) -> Minorant:
    """Return a plane's prices with the dearest prefill that the TPOT proves.

    In an iteration with prefill let D = decode_s*b + context_s*L, V the same with L at
    most ``context_cap`` a request, and P = time - fixed_s - D - attention_s*Q, >= 0 as
    the prices are a plane. Prefill may be charged ``prefill_s`` a token when in every
    such iteration

        P + tpot_share * fixed_s * (1 - V / (D + P)) >= prefill_s * T,

    and ``P + fixed_s >= prefill_s * T`` without decoding requests: prefill that
    stretches an iteration also spends the TPOT budget of those that decode in it
    (see :mod:`capplan.bounds.work`).

    Parameters
    ----------
    tables, span
        The replica.
    prices
        A plane under all its iteration times.
    tpot_share
        x of the theorem: the share of the fixed time that the TPOT spreads.
    context_cap
        Context of a request beyond which it spreads no fixed time. [tokens]
    token_step, pieces
        Every batch is evaluated, tokens in blocks that grow by ``token_step`` and
        contexts in ``pieces`` with the least left side and the largest T of each, so
        the result may be too low by about a step and is never too high.
    """
    if np.isinf(span.context):
        return prices
    b = np.arange(min(span.batch, span.tokens - 1) + 1)
    edges = _token_blocks(span.tokens, token_step)
    value_s = _per_token_s(
        tables,
        span,
        prices,
        tpot_share,
        _pieces(b, span, context_cap, pieces),
        b,
        edges[:-1],
        edges[1:] - 1,
        context_cap,
    )
    return prices._replace(prefill_s=max(value_s * (1 - 1e-9), prices.prefill_s))


def sampled(
    tables: LatencyTables,
    span: Reach,
    prices: Minorant,
    tpot_share: float,
    context_cap: float,
) -> Minorant:
    """Return about what :func:`proven` would, from a few iterations; proves nothing."""
    if np.isinf(span.context):
        return prices
    most = min(span.batch, span.tokens - 1)
    b = np.unique(np.append(0, np.geomspace(1, most, 16).astype(int)))
    first = np.unique(np.geomspace(1, span.tokens, 24).astype(int))
    value_s = _per_token_s(
        tables,
        span,
        prices,
        tpot_share,
        _pieces(b, span, context_cap, _COARSE),
        b,
        first,
        first,
        context_cap,
    )
    return prices._replace(prefill_s=max(value_s, prices.prefill_s))


def _per_token_s(
    tables: LatencyTables,
    span: Reach,
    prices: Minorant,
    tpot_share: float,
    contexts: list[tuple[np.ndarray, np.ndarray, bool]],
    b: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    context_cap: float,
) -> float:
    """Return the least left side per token, over batches and blocks of tokens. [s]"""
    base_s = tables.fused_s[: span.tokens + 1]
    base_s = np.minimum.accumulate(base_s[::-1])[::-1]  # over n' >= n
    last = np.minimum(last[None, :], (span.tokens - b)[:, None])
    real = first[None, :] <= last
    own_s = tables.fused_decode_s[b] - prices.fixed_s - prices.decode_s * b
    without_context_s = (
        base_s[np.minimum(b[:, None] + first[None, :], span.tokens)] + own_s[:, None]
    )
    extra_s = tables.fused_context_s[b] - prices.context_s
    best_s = np.inf
    for from_context, to_context, capped in contexts:
        part_s = np.minimum(extra_s * from_context, extra_s * to_context)
        over_s = np.maximum(without_context_s + part_s[:, None], 0.0)
        spread_s = prices.decode_s * b + prices.context_s * (
            np.minimum(to_context, b * context_cap)
        )
        # V = D below the cap, where 1 - V / (D + P) falls with D; above it rises.
        decode_s = prices.decode_s * b + prices.context_s * (
            from_context if capped else to_context
        )
        whole_s = np.maximum(decode_s[:, None] + over_s, 1e-300)
        left = np.where(b[:, None] > 0, 1 - spread_s[:, None] / whole_s, 1.0)
        share = np.where(b > 0, tpot_share, 1.0)[:, None]
        value_s = over_s + share * prices.fixed_s * np.maximum(left, 0.0)
        per_token_s = np.where(real, value_s / np.maximum(last, 1), np.inf)
        best_s = min(best_s, float(per_token_s.min()))
    return best_s


def _pieces(
    b: np.ndarray, span: Reach, context_cap: float, pieces: int
) -> list[tuple[np.ndarray, np.ndarray, bool]]:
    """Return ranges of L that cover all an engine can hold, split at the cap."""
    low = _LEAST_CONTEXT * b.astype(np.float64)
    high = np.maximum(float(span.context), low)
    middle = np.clip(context_cap * b, low, high)
    found = []
    for start, end, capped in ((low, middle, False), (middle, high, True)):
        ratio = end / np.maximum(start, 1e-300)
        ratio = np.where(b > 0, ratio, 1.0)
        for piece in range(pieces):
            found.append(
                (
                    start * ratio ** (piece / pieces),
                    start * ratio ** ((piece + 1) / pieces),
                    capped,
                )
            )
    return found


def _token_blocks(tokens: int, step: float) -> np.ndarray:
    """Return the first token count of each block, and one past the last."""
    edges = list(range(1, min(_EXACT_TOKENS, tokens) + 1))
    while edges[-1] < tokens:
        edges.append(min(max(edges[-1] + 1, int(edges[-1] * step)), tokens))
    return np.array([*edges, tokens + 1])
