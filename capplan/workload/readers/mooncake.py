"""Mooncake's traces: JSON lines, stamps in ms, prompts as hashed 512-token blocks.

Qin et al., "Mooncake: A KVCache-centric Disaggregated Architecture for LLM
Serving", FAST 2025; https://github.com/kvcache-ai/Mooncake. Prompts with equal
leading ``hash_ids`` begin alike and form prefix groups (see ``prefix_paths``). The
conversation trace rounds its stamps to buckets of 3 s: such requests are spread
uniformly over their bucket.
"""

from pathlib import Path

import numpy as np

from capplan.errors import InputError
from capplan.workload.readers.json_lines import (
    first_request,
    read_requests,
    shared_prefixes,
)
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.trace import Trace

BLOCK_TOKENS = 512
_FEW = 20
"""Requests whose stamps do not show their unit."""
_MOST_PER_S, _MANY_PER_S = 500.0, 50.0
"""Rates that no file of Mooncake's has, and that are told: stamps may be seconds.
[requests/s]"""
_LEAST_BUCKET_S = 1.0
"""Stamps are buckets when requests share them and they are this far apart. [s]"""


def sniff(head: bytes) -> bool:
    """Return whether the first line has Mooncake's fields."""
    first = first_request(head)
    return (
        type(first.get("timestamp")) in (int, float)
        and isinstance(first.get("hash_ids", []), list)
        and "chat_id" not in first
    )


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a Mooncake trace; the first arrives at 0 s."""
    notes = Notes(path)
    requests = read_requests(path, notes)
    return ordered_trace(
        notes,
        _arrivals_s(requests.stamp, options.seed, notes),
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        **shared_prefixes(notes, requests, BLOCK_TOKENS),
    )


def _check_unit(arrival_s: np.ndarray, notes: Notes) -> None:
    """Refuse stamps that are seconds by their rate; say of those that may be."""
    n, duration_s = len(arrival_s), float(arrival_s.max())
    if n < _FEW or not duration_s > 0:
        return
    per_s = (n - 1) / duration_s
    told = (
        f"timestamps read as milliseconds make {per_s:,.4g} requests/s, as seconds "
        f"{per_s / 1e3:.3g}"
    )
    if per_s > _MOST_PER_S:
        raise InputError(
            f"{notes.path}: {told}; expected milliseconds: multiply seconds by 1,000"
        )
    notes.add(told, warn=per_s > _MANY_PER_S)


def _arrivals_s(stamp_ms: np.ndarray, seed: int, notes: Notes) -> np.ndarray:
    arrival_s = (stamp_ms - stamp_ms.min()) / 1e3
    _check_unit(arrival_s, notes)
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
