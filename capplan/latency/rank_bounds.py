"""Iteration times that no schedule of ranks that step together is below.

The parts that all share are taken at the least of what is possible: as many tokens as
were computed or more, of prompts or not. What a rank does alone is the longest of all
ranks, so at least the mean of them; no mean of a convex curve is below its value at the
mean (Jensen), where all ranks are equal.
"""

import numpy as np

from capplan.latency.contract import LatencyTables
from capplan.latency.rank_tables import RankTables


def alone(tables: RankTables) -> LatencyTables:
    """Return the least time of an iteration by the work of one of its ranks.

    The others compute a dummy token each, or more. Of drafts that requests verify, the
    shared parts are those of one token each.
    """
    experts_s, exchange_s = _least_of_all(tables)
    experts_prefill_s = least_beyond(tables.experts_prefill_s)
    exchange_prefill_s = least_beyond(tables.exchange_prefill_s)
    rank, dummies = tables.rank, tables.ranks - 1
    batch = np.arange(len(rank.decode_s))
    tokens = np.arange(len(rank.fused_s))
    return rank._replace(
        decode_s=rank.decode_s
        + _at(experts_s, batch + dummies)
        + _at(exchange_s, batch),
        fused_s=rank.fused_s
        + _at(experts_prefill_s, tokens + dummies)
        + _at(exchange_prefill_s, tokens),
    )


def equal(tables: RankTables) -> LatencyTables:
    """Return the times of iterations by the work of each rank, where all have as much.

    No bound: uneven ranks may take less for the same work of one of them.
    """
    rank, ranks = tables.rank, tables.ranks
    batch = np.arange(len(rank.decode_s)) * tables.tokens_per_request
    tokens = np.arange(len(rank.fused_s))
    return rank._replace(
        decode_s=rank.decode_s
        + _at(tables.experts_s, ranks * np.maximum(batch, 1))
        + _at(tables.exchange_s, batch),
        fused_s=rank.fused_s
        + _at(tables.experts_prefill_s, ranks * np.maximum(tokens, 1))
        + _at(tables.exchange_prefill_s, tokens),
    )


def as_one(tables: RankTables, max_batch: int, max_tokens: int) -> LatencyTables:
    """Return the least times of iterations by the work of all ranks together.

    Of drafts that requests verify, the shared parts are those of one token each.

    They are those of one engine with the seats, the budget and the KV of all; a rank
    has ``max_batch`` seats and a budget of ``max_tokens``.
    """
    rank, ranks = tables.rank, tables.ranks
    experts_s, exchange_s = _least_of_all(tables)
    experts_prefill_s = least_beyond(tables.experts_prefill_s)
    exchange_prefill_s = least_beyond(tables.exchange_prefill_s)
    batch = np.arange(ranks * max_batch + 1)
    tokens = np.arange(ranks * max_tokens + 1)
    decoding_s = rank.decode_s[: max_batch + 1]
    context_s = _least_so_far(rank.decode_context_s[: max_batch + 1])
    fused_context_s = _least_so_far(rank.fused_context_s[: max_batch + 1])
    in_batch = np.minimum(batch, max_batch)
    return rank._replace(
        decode_s=convex_below(decoding_s, batch / ranks)
        + _at(experts_s, np.maximum(batch, ranks))
        + _at(exchange_s, -(-batch // ranks)),
        decode_context_s=context_s[in_batch] / ranks,
        fused_s=convex_below(_least_rank_s(rank, max_batch, max_tokens), tokens / ranks)
        + _at(experts_prefill_s, np.maximum(tokens, ranks))
        + _at(exchange_prefill_s, -(-tokens // ranks)),
        fused_decode_s=np.zeros(len(batch)),
        fused_context_s=np.minimum(context_s, fused_context_s)[in_batch] / ranks,
        attention_s=rank.attention_s / ranks,
    )


def _least_rank_s(rank: LatencyTables, max_batch: int, max_tokens: int) -> np.ndarray:
    """Return the least that a rank takes alone for its tokens, prompts or not. [s]"""
    beside_s = np.minimum.accumulate(rank.fused_decode_s[: max_batch + 1])
    tokens = np.arange(max_tokens + 1)
    least_s = rank.fused_s[: max_tokens + 1] + _at(beside_s, tokens)
    few = min(max_batch, max_tokens) + 1
    least_s[:few] = np.minimum(least_s[:few], rank.decode_s[:few])
    return np.maximum(least_s, 0.0)


def _least_of_all(tables: RankTables) -> tuple[np.ndarray, np.ndarray]:
    """Return the least times of experts and exchange, with a prompt somewhere or not.

    A rank that decodes may do so beside the prompt of another.
    """
    return (
        least_beyond(np.minimum(tables.experts_s, tables.experts_prefill_s)),
        least_beyond(np.minimum(tables.exchange_s, tables.exchange_prefill_s)),
    )


def least_beyond(times_s: np.ndarray) -> np.ndarray:
    """Return the least time of so many tokens or more, as padding may make them."""
    return np.minimum.accumulate(times_s[::-1])[::-1]


def _least_so_far(per_token_s: np.ndarray) -> np.ndarray:
    """Return the least slope of a batch of at most so many, of one at least. [s]"""
    least_s = per_token_s.copy()
    least_s[1:] = np.minimum.accumulate(per_token_s[1:])
    return least_s


def _at(times_s: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return np.asarray(times_s[np.minimum(tokens, len(times_s) - 1)])


def convex_below(times_s: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the largest convex curve below times by whole numbers, at any. [s]"""
    corners = upper_hull(np.arange(len(times_s)), -times_s)
    return np.interp(at, corners, times_s[corners])


def upper_hull(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Return the points of the upper convex hull, from left to right.

    By Andrew's monotone chain.
    """
    hull: list[int] = []
    xs, ys = x.tolist(), y.tolist()  # read thrice as fast as arrays
    for row, (here, height) in enumerate(zip(xs, ys, strict=True)):
        while len(hull) >= 2:
            a, b = hull[-2], hull[-1]
            if (ys[b] - ys[a]) * (here - xs[a]) > (height - ys[a]) * (xs[b] - xs[a]):
                break
            hull.pop()
        hull.append(row)
    return hull
