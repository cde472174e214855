"""The replica of the placement problem: KV capacity, decode table, prefill time."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from capplan.errors import InputError, check_at_least
from capplan.latency.contract import LatencyTables
from capplan.latency.rank_bounds import upper_hull


@dataclass(frozen=True, eq=False)
class PlacementReplica:
    """A replica in Aladdin's placement problem (sections 3 and 4.2).

    A decode iteration of b requests with L tokens of context takes ``decode_s[b] +
    decode_context_s[b] * L`` (Eq. 3 when both are affine). A prefill of prompts p takes
    ``prefill_fixed_s + sum(prefill_s_per_token * p + prefill_s_per_token2 * p**2)``
    (Eq. 2, with attention's quadratic term).
    """

    kv_capacity_tokens: int  # M of the paper [tokens]
    decode_s: np.ndarray  # by batch size from 0 [s]
    decode_context_s: np.ndarray  # by batch size from 0 [s/token]
    prefill_fixed_s: float = 0.0  # time of an empty prefill [s]
    prefill_s_per_token: float = 0.0  # [s/token]
    prefill_s_per_token2: float = 0.0  # [s/token²]
    block_tokens: int = 1  # size of a KV block [tokens]

    def __post_init__(self) -> None:
        """Check every value."""
        counts = "kv_capacity_tokens", "block_tokens"
        check_at_least(1, self, *counts, where="replica: ")
        for name in ("decode_s", "decode_context_s"):
            table = np.ascontiguousarray(getattr(self, name), np.float64)
            if table.ndim != 1 or len(table) < 2:
                raise InputError(
                    f"replica: {name} has shape {table.shape}; expected a time for "
                    "each batch size from 0 to at least 1"
                )
            if not (np.isfinite(table) & (table >= 0)).all():
                raise InputError(f"replica: {name} holds a time that is not >= 0")
            object.__setattr__(self, name, table)
        if len(self.decode_s) != len(self.decode_context_s):
            raise InputError(
                f"replica: decode_s ends at batch {len(self.decode_s) - 1}, "
                f"decode_context_s at {len(self.decode_context_s) - 1}; expected equal"
            )
        times = "prefill_fixed_s", "prefill_s_per_token", "prefill_s_per_token2"
        check_at_least(0, self, *times, where="replica: ")

    @property
    def max_batch(self) -> int:
        """Largest batch the decode table reaches. [requests]"""
        return len(self.decode_s) - 1

    def prefill_work_s(self, prompt_tokens: np.ndarray) -> np.ndarray:
        """Return each prompt's share of a prefill, without the fixed time. [s]"""
        tokens = np.asarray(prompt_tokens, np.float64)
        return (self.prefill_s_per_token + self.prefill_s_per_token2 * tokens) * tokens

    def context_limit_tokens(self, tpot_s: float) -> np.ndarray:
        """Return l_d(b) of Eq. 4 for every batch size. [tokens]

        The context at which an iteration of b requests lasts ``tpot_s``: infinite
        where context takes no time, negative where the batch alone is too slow, 0 for
        b = 0. Where a fitted table has a larger batch faster, an engine could pad the
        batch, so the limit of the larger batch holds.
        """
        room_s = tpot_s - self.decode_s
        limit = np.where(room_s >= 0, np.inf, -np.inf)
        sloped = self.decode_context_s > 0
        if np.isfinite(tpot_s):
            limit[sloped] = room_s[sloped] / self.decode_context_s[sloped]
        # Each batch the largest limit of those from it on, to which it can be padded.
        limit[:] = np.maximum.accumulate(limit[::-1])[::-1]
        limit[0] = 0.0
        return limit


def affine_replica(
    kv_capacity_tokens: int,
    *,
    fixed_s: float,
    request_s: float,
    context_s: float,
    max_batch: int,
    **others: Any,
) -> PlacementReplica:
    """Return the replica of Aladdin's Eq. 2 and 3.

    A decode iteration takes c3 = ``fixed_s`` [s], c2 = ``request_s`` per request [s]
    and k2 = ``context_s`` per token of context [s/token].

    Examples
    --------
    >>> replica = affine_replica(
    ...     9, fixed_s=0.01, request_s=0.001, context_s=1e-5, max_batch=4
    ... )
    >>> replica.context_limit_tokens(0.02).round().tolist()
    [0.0, 900.0, 800.0, 700.0, 600.0]
    """
    batch = np.arange(max_batch + 1)
    return PlacementReplica(
        kv_capacity_tokens,
        fixed_s + request_s * batch,
        np.full(max_batch + 1, context_s),
        **others,
    )


def replica_of_tables(
    tables: LatencyTables,
    kv_capacity_tokens: int,
    *,
    block_tokens: int = 1,
    max_batch: int | None = None,
    typical_prefill_tokens: int = 1024,
) -> PlacementReplica:
    """Return the replica that a latency profile describes.

    The decode table is taken as is. Prefill times must add up, so the prefill table is
    replaced by a line nowhere below it: the edge of its upper hull at
    ``typical_prefill_tokens``, or, if steeper, the line with the time per token of a
    full iteration, which also covers prefills of several iterations. ``max_batch``
    is the largest batch, if less than the tables reach.
    """
    tokens = np.arange(1, len(tables.fused_s), dtype=np.float64)
    prefill_s = np.asarray(tables.fused_s[1:], np.float64)
    slope, fixed = _lowest_line_above(tokens, prefill_s, typical_prefill_tokens)
    size = len(tables.decode_s) if max_batch is None else max_batch + 1
    return PlacementReplica(
        kv_capacity_tokens,
        tables.decode_s[:size],
        tables.decode_context_s[:size],
        prefill_fixed_s=fixed,
        prefill_s_per_token=slope,
        # Attention of a token to all before it: half of the prompt, in the mean.
        prefill_s_per_token2=0.5 * tables.attention_s,
        block_tokens=block_tokens,
    )


def _lowest_line_above(x: np.ndarray, y: np.ndarray, at: float) -> tuple[float, float]:
    """Return (slope, value at 0) of a line above the points and their multiples."""
    hull = upper_hull(x, y)
    right = min(max(int(np.searchsorted(x[hull], at)), 1), len(hull) - 1)
    a, b = hull[max(right - 1, 0)], hull[right]
    edge = (y[b] - y[a]) / (x[b] - x[a]) if b != a else 0.0
    # A prompt of several full iterations takes y[-1] / x[-1] a token.
    slope = max(float(edge), float(y[-1] / x[-1]), 0.0)
    return slope, max(float(np.max(y - slope * x)), 0.0)
