"""Requests that a scheduler would never finish, for ``refused`` of its file."""

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.workload.trace import Trace


def none(
    trace: Trace, engine: EngineSettings, settings: dict[str, float]
) -> tuple[np.ndarray, str]:
    """Return that all requests are served which a replica can hold."""
    return np.zeros(len(trace), bool), ""


def beyond_room(
    trace: Trace, engine: EngineSettings, max_len: int
) -> tuple[np.ndarray, str]:
    """Return the requests longer than the room that each reserves, and why.

    All of them where the replica has fewer blocks than one takes.
    """
    tokens = trace.prompt_tokens + trace.output_tokens
    bounded = engine.request_blocks(tokens - 1) + (1 - tokens) // engine.block_size
    taken = -(-max_len // engine.block_size) + bounded
    reason = (
        f"each reserves KV for max_len={max_len} tokens, which it must not exceed and "
        f"of which a replica holds {engine.kv_capacity_tokens}"
    )
    return (tokens > max_len) | (taken > engine.kv_blocks - 1), reason


def above_watermark(
    trace: Trace, engine: EngineSettings, more: int = 0
) -> tuple[np.ndarray, str]:
    """Return the requests that leave less than 1 % of the blocks free, and why.

    ``more`` is 1 where one must be free beside those of the request. [blocks]
    """
    blocks = engine.kv_blocks - 1
    held = engine.request_blocks(trace.prompt_tokens + trace.output_tokens - 1)
    spare = blocks // 100 + more
    reason = (
        f"an admission, also after a preemption, leaves {spare} of {blocks} blocks free"
    )
    return held > blocks - spare, reason


def never_admitted(
    trace: Trace,
    engine: EngineSettings,
    spare_tokens: int,
    more: int = 0,
    clip: int | None = None,
) -> tuple[np.ndarray, str]:
    """Return the requests that never run, or not to their end, and why.

    The limit of an answer is the trace's ``max_new_tokens``, at most what the KV leaves
    beside the prompt, ``spare_tokens`` less. With ``clip`` a request is admitted, also
    again with all but the last token of its answer, where it, what it may still
    generate, at most ``clip``, and ``more`` tokens are less than the KV.
    """
    prompts, answers = trace.prompt_tokens, trace.output_tokens
    size = engine.block_size
    blocks = engine.kv_blocks - 1
    bounded = engine.request_blocks(prompts + answers - 1)
    bounded = bounded + (1 - prompts - answers) // size
    held = (blocks - bounded) * size
    limit = np.minimum(trace.most_output_tokens, held - spare_tokens - prompts)
    rows = (answers > limit) | (prompts + answers + spare_tokens > held)
    if clip is not None:
        left = np.minimum(limit - answers + 1, clip)
        first = np.minimum(limit, clip)
        rows |= prompts + np.maximum(answers - 1 + left, first) + more >= held
    reason = (
        "beside the longest answer that it may get its prompt is never admitted; a "
        f"replica holds {engine.kv_capacity_tokens}"
    )
    return rows, reason
