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


def cut_answers(trace: Trace, settings: dict[str, float]) -> tuple[np.ndarray, str]:
    """Return the requests with answers above ``max_new``, where given, and why."""
    asked = int(settings["max_new"])
    cut = (trace.output_tokens > asked) & (asked > 0)
    return cut, f"its answer would be cut at max_new={asked} tokens"


def never_admitted(
    trace: Trace,
    engine: EngineSettings,
    settings: dict[str, float],
    spare_tokens: int,
    more: int = 0,
    clip: int | None = None,
) -> tuple[np.ndarray, str]:
    """Return the requests whose answers would be cut or that never run, and why.

    The limit is ``max_new``, 0: the answer itself, and what the KV leaves beside the
    prompt, ``spare_tokens`` less. With ``clip`` a request is admitted, also again with
    all but the last token of its answer, where it, what it may still generate, at most
    ``clip``, and ``more`` tokens are less than the KV.
    """
    prompts, answers = trace.prompt_tokens, trace.output_tokens
    size = engine.block_size
    blocks = engine.kv_blocks - 1
    bounded = engine.request_blocks(prompts + answers - 1)
    bounded = bounded + (1 - prompts - answers) // size
    held = (blocks - bounded) * size
    asked = int(settings["max_new"])
    limit = answers if asked == 0 else np.minimum(asked, held - spare_tokens - prompts)
    rows = (answers > limit) | (prompts + answers + spare_tokens > held)
    if clip is not None:
        left = np.minimum(limit - answers + 1, clip)
        first = np.minimum(limit, clip)
        rows |= prompts + np.maximum(answers - 1 + left, first) + more >= held
    cut, reason = cut_answers(trace, settings)  # of which all are in ``rows``
    if not np.any(cut):
        given = f", {asked} tokens," if asked else ""
        reason = (
            f"beside the longest answer that it may get{given} its prompt is never "
            f"admitted; a replica holds {engine.kv_capacity_tokens}"
        )
    return rows, reason
