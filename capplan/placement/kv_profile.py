"""KV of requests in the future iterations in which it can bind.

Aladdin's constraint (e) limits the KV of a replica in every future iteration. A request
holds one token more in each iteration and nothing after its last, so between two
completions the sum only rises: the iterations in which some request generates its
last token are enough.
"""

from typing import NamedTuple

import numpy as np


class KvProfile(NamedTuple):
    """KV of some requests in the iterations that can bind."""

    iterations: np.ndarray  # (k,) int64, ascending, counted from now
    tokens: np.ndarray  # (n, k) int64 [tokens]


def binding_profile(
    now_tokens: np.ndarray, remaining_tokens: np.ndarray, block_tokens: int = 1
) -> KvProfile:
    """Return each request's KV just before each completion.

    Parameters
    ----------
    now_tokens
        Tokens in the KV of each request now, shape (n,). [tokens]
    remaining_tokens
        Tokens each request still generates, shape (n,). [tokens]
    block_tokens
        Size of a KV block. [tokens]

    Examples
    --------
    >>> binding_profile([4, 1], [1, 4]).tokens.tolist()  # Aladdin's Figure 3
    [[5, 0], [2, 5]]
    """
    iterations = np.unique(np.asarray(remaining_tokens, np.int64))
    tokens = kv_at(now_tokens, remaining_tokens, iterations, block_tokens)
    return KvProfile(iterations, tokens)


def kv_at(
    now_tokens: np.ndarray,
    remaining_tokens: np.ndarray,
    iterations: np.ndarray,
    block_tokens: int = 1,
) -> np.ndarray:
    """Return each request's KV in some iterations, shape (n, k). [tokens]"""
    now = np.asarray(now_tokens, np.int64)[:, None]
    ahead = np.asarray(iterations, np.int64)[None, :]
    tokens = now + ahead
    if block_tokens > 1:
        tokens = -(-tokens // block_tokens) * block_tokens
    return np.where(ahead <= np.asarray(remaining_tokens)[:, None], tokens, 0)
