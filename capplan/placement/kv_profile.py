"""KV of requests in future iterations.

Aladdin's constraint (e) limits the KV of a replica in every future iteration. A request
holds one token more in each iteration and nothing after its last, so between two
completions the sum only rises: the iterations in which some request generates its
last token are enough.
"""

import numpy as np


def kv_at(
    now_tokens: np.ndarray,
    remaining_tokens: np.ndarray,
    iterations: np.ndarray,
    block_tokens: int = 1,
) -> np.ndarray:
    """Return the KV of each request in some iterations from now, shape (n, k). [tokens]

    Examples
    --------
    >>> kv_at([4, 1], [1, 4], [1, 4]).tolist()  # Aladdin's Figure 3
    [[5, 0], [2, 5]]
    """
    now = np.asarray(now_tokens, np.int64)[:, None]
    ahead = np.asarray(iterations, np.int64)[None, :]
    tokens = now + ahead
    if block_tokens > 1:
        # An engine gives KV in whole blocks, the last one partly used.
        tokens = -(-tokens // block_tokens) * block_tokens
    return np.where(ahead <= np.asarray(remaining_tokens)[:, None], tokens, 0)
