"""Extend the fused terms to iterations that were not measured, from decode terms."""

import numpy as np

from capplan.latency.terms import DecodeTerms, FusedTerms

_BATCH = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024]


def few_tokens_like_decode(fused: FusedTerms, decode: DecodeTerms) -> FusedTerms:
    """Return fused terms with knots added below the fewest tokens measured.

    They follow the decode curve, scaled to meet the first knot: with few tokens
    both kinds of iteration mostly read all weights. Terms without knots are returned
    unchanged.
    """
    if not fused.tokens or fused.tokens[0] <= 1:
        return fused
    first = fused.tokens[0]
    few = [batch for batch in _BATCH if batch < first]
    base_s = decode.base_s(np.array([*few, first], np.float64))
    share = np.minimum(np.maximum.accumulate(base_s) / base_s.max(), 1.0)
    low_s = (fused.tokens_s[0] * share[:-1]).tolist()
    tokens, tokens_s = [*few, *fused.tokens], [*low_s, *fused.tokens_s]
    return fused.model_copy(update={"tokens": tokens, "tokens_s": tokens_s})


def decode_beside_prefill(
    fused: FusedTerms, decode: DecodeTerms, largest_batch: int
) -> FusedTerms:
    """Return fused terms in which decoding requests cost as much as without prefill.

    Their context costs the same, and an iteration never takes less than a decode
    iteration of its decoding requests. ``largest_batch`` is the largest measured.
    """
    knots = [batch for batch in _BATCH if batch < largest_batch] + [largest_batch]
    batch = np.array(knots, np.float64)
    beside_s = np.maximum(decode.base_s(batch) - fused.tokens_time_s(batch), 0)
    context_s = decode.context_s(batch).tolist()
    return fused.model_copy(
        update={
            "batch": [0, *knots],
            "batch_s": [0.0, *np.maximum.accumulate(beside_s).tolist()],
            "batch_context_s": [context_s[0], *context_s],
        }
    )
