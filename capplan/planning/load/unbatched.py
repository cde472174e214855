"""Latency of each request alone on a replica: a bound that no deployment beats."""

from dataclasses import dataclass

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.latency.rank_bounds import convex_below, least_beyond
from capplan.workload.trace import Trace

_CONTEXTS = 65
"""At which the time of a token is looked up, between the shortest and the longest."""


@dataclass(frozen=True, eq=False)
class Unbatched:
    """Latency that each request waits for on a replica at least, shape (n,) each.

    That of the request alone, unless the tables hold iterations with others that take
    less.
    """

    ttft_s: np.ndarray  # API server and prefill, in chunks of the token budget [s]
    tpot_s: np.ndarray  # mean of decode iterations; 0 for one token [s]
    tbt_s: np.ndarray  # the last decode iteration, which is the longest; else 0 [s]
    e2e_s: np.ndarray  # arrival to last token [s]


def unbatched(trace: Trace, tables: LatencyTables, engine: EngineSettings) -> Unbatched:
    """Return the least latency of each request of a trace on a replica.

    ``tables`` are those of ``widest_iterations``.

    With prefix caching, a shared prefix is computed by the first request of its group;
    a turn finds all that it shares with its parent.
    """
    prompt, output = trace.prompt_tokens, trace.output_tokens
    hits = _prefix_hits(trace, engine)
    budget = engine.max_num_batched_tokens
    new = prompt - hits
    # Of drafts, one last token may be of a decode iteration (``_chunk_s``).
    prefilled = (prompt - (engine.speculation is not None)).astype(float)
    attention = (prefilled**2 - hits.astype(float) ** 2) / 2
    prefill_s = _in_chunks(new, tables, engine)
    prefill_s += tables.attention_s * attention
    # A prompt leaves the last stage as much later as its longest chunk takes on the
    # others, which is no shorter than the mean one; a token passes all stages.
    stages = engine.pipeline_parallel_size
    prefill_s *= 1 + (stages - 1) / np.maximum(-(-new // budget), 1)
    ttft_s = prefill_s + tables.request_s + tables.prompt_token_s * prompt

    # With drafts fewer iterations may have its tokens, each at least one token later.
    steps = output - 1
    if engine.speculation is not None:
        steps = engine.speculation.least_iterations(output)
    first_s, last_s = stages * _token_s(
        tables, engine, np.stack([prompt + 1, prompt + steps])
    )
    # The time of a token is concave in its context: the mean is above that of the ends.
    decoded_s = (first_s + last_s) / 2 * steps
    tpot_s = decoded_s / np.maximum(output - 1, 1)
    tbt_s = np.where(output > 1, last_s, 0.0)
    return Unbatched(ttft_s, tpot_s, tbt_s, ttft_s + decoded_s)


def _chunk_s(
    tables: LatencyTables, engine: EngineSettings, tokens: np.ndarray
) -> np.ndarray:
    """Return the least time of iterations with so many prompt tokens of a request. [s]

    Others' prompts and decodes beside them may take less than nothing where the tables
    fall or the share of decodes is negative. Of drafts, one token is padded to those
    that a decode verifies, for iterations of decodes alone (vLLM 0.32,
    ``pad_spec_decode``).
    """
    last = engine.max_num_batched_tokens
    fused_s = least_beyond(tables.fused_s[: last + 1])
    least_s = fused_s[tokens]
    share_s = tables.fused_decode_s[: engine.max_num_seqs]
    for b in np.flatnonzero(share_s < 0):
        beside_s = fused_s[np.minimum(tokens + b, last)] + share_s[b]
        np.minimum(least_s, beside_s, out=least_s)
    if engine.speculation is not None:
        decode_s = tables.decode_s[1 : engine.max_num_seqs + 1].min()
        least_s[tokens == 1] = np.minimum(least_s[tokens == 1], decode_s)
    return np.maximum(least_s, 0.0)


def _token_s(
    tables: LatencyTables, engine: EngineSettings, context: np.ndarray
) -> np.ndarray:
    """Return the least time of a token of requests at these contexts. [s]

    Of all batches, alone or beside a prompt, in which no other request has a context
    below the shortest; or of two iterations, one that a preempted request is not in and
    one that computes its last token again. Each is linear in the request's own context,
    the least of them concave, and what is interpolated is below it.
    """
    b = np.arange(1, engine.max_num_seqs + 1)
    fixed_s, slope_s = tables.decode_s[b], tables.decode_context_s[b]
    budget = engine.max_num_batched_tokens
    least_s = least_beyond(tables.fused_s[: budget + 1])
    mixed = b[b < budget]
    beside_s = least_s[mixed + 1] + tables.fused_decode_s[mixed]
    fixed_s = np.concatenate([fixed_s, beside_s])
    slope_s = np.concatenate([slope_s, tables.fused_context_s[mixed]])
    shortest, longest = float(context.min()), float(context.max())
    others = (np.concatenate([b, mixed]) - 1) * shortest
    at = np.unique(np.geomspace(shortest, longest, _CONTEXTS))
    batched_s = fixed_s[:, None] + slope_s[:, None] * (at + others[:, None])
    least_s = batched_s.min(axis=0)
    again_s = _chunk_s(tables, engine, np.ones(1, np.int64))
    without_s = np.minimum(least_s[0], again_s)
    again_s = without_s + again_s + tables.attention_s * (at - 1)
    return np.interp(context, at, np.minimum(least_s, again_s))


def _in_chunks(
    tokens: np.ndarray, tables: LatencyTables, engine: EngineSettings
) -> np.ndarray:
    """Return the least time of prompts, whole or in chunks of any size. [s]

    Chunks that end with a block or a page may be more even than those of the whole
    budget. No number of them takes less than as many of equal size on a convex curve
    below.
    """
    largest = min(engine.max_num_batched_tokens, int(tokens.max()))
    sizes = np.arange(1, largest + 1)
    chunk_s = _chunk_s(tables, engine, sizes)
    whole_s = np.where(
        tokens <= largest, chunk_s[np.minimum(tokens, largest) - 1], np.inf
    )
    least_s = convex_below(chunk_s, sizes - 1)
    best = sizes[np.argmin(least_s / sizes)]
    count = np.maximum(np.maximum(-(-tokens // largest), tokens / best), 2)
    return np.minimum(whole_s, count * np.interp(tokens / count, sizes, least_s))


def _prefix_hits(trace: Trace, engine: EngineSettings) -> np.ndarray:
    """Return the most prompt tokens that each request can find cached. [tokens]"""
    if not engine.prefix_caching:
        return np.zeros(len(trace), np.int64)
    texts = np.flatnonzero(trace.prefix_group >= 0)
    _, first = np.unique(trace.prefix_group[texts], return_index=True)
    # Whole blocks; the last prompt token is always computed.
    cached = np.minimum(trace.prefix_tokens, trace.prompt_tokens - 1)
    hits = cached // engine.block_size * engine.block_size
    hits = cached if engine.has_tier else hits  # which may hold the last block too
    hits[texts[first]] = 0
    return np.where((trace.prefix_group >= 0) | (trace.parent >= 0), hits, 0)
