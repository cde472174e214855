"""Mooncake's traces: JSON lines, stamps in ms, prompts as hashed 512-token blocks.

Qin et al., "Mooncake: A KVCache-centric Disaggregated Architecture for LLM
Serving", FAST 2025; https://github.com/kvcache-ai/Mooncake. Equal leading
``hash_ids`` mean an equal beginning of the prompt, which becomes prefix groups
(see ``prefix_paths``). The conversation trace rounds its stamps to buckets of
3 s: where that is so, requests are spread evenly inside their bucket.
"""

from pathlib import Path

import numpy as np

from capplan.workload.readers.json_lines import (
    first_object,
    iterate_lines,
    shared_prefixes,
)
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.trace import Trace

BLOCK_TOKENS = 512
_LEAST_BUCKET_S = 1.0
"""Stamps shared by several requests and usually this far apart are buckets. [s]"""


def sniff(head: bytes) -> bool:
    """Return whether the first line is an object with Mooncake's fields."""
    first = first_object(head)
    return (
        {"timestamp", "input_length", "output_length"} <= first.keys()
        and type(first["timestamp"]) is int
        and isinstance(first.get("hash_ids", []), list)
        and "chat_id" not in first
    )


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a Mooncake trace; the first arrives at 0 s."""
    notes = Notes(path)
    lines = list(iterate_lines(path))
    stamp_ms = np.array([line.stamp("timestamp") for line in lines])
    prompt_tokens = np.array([line.tokens("input_length") for line in lines])
    blocks = [line.blocks("hash_ids") for line in lines]
    return ordered_trace(
        notes,
        _arrivals_s(stamp_ms, options.seed, notes),
        prompt_tokens=prompt_tokens,
        output_tokens=np.array([line.tokens("output_length") for line in lines]),
        **shared_prefixes(notes, stamp_ms, prompt_tokens, blocks, BLOCK_TOKENS),
    )


def _arrivals_s(stamp_ms: np.ndarray, seed: int, notes: Notes) -> np.ndarray:
    arrival_s = (stamp_ms - stamp_ms.min()) / 1e3
    stamps = np.unique(stamp_ms)
    if 2 * len(stamps) > len(stamp_ms) or len(stamps) < 2:
        return arrival_s
    bucket_s = float(np.median(np.diff(stamps))) / 1e3
    if bucket_s < _LEAST_BUCKET_S:
        return arrival_s
    notes.add(
        f"stamps come in buckets of {bucket_s:g} s: requests are spread evenly "
        f"inside theirs (seed {seed})"
    )
    spread_s = np.random.default_rng(seed).random(len(arrival_s)) * bucket_s
    placed_s = np.empty(len(arrival_s))
    placed_s[np.argsort(arrival_s, kind="stable")] = np.sort(arrival_s + spread_s)
    return placed_s
