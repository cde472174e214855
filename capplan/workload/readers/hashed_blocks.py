"""Prompts as hashed blocks, as Mooncake's and Qwen-Bailian's traces have them.

Qin et al., "Mooncake: A KVCache-centric Disaggregated Architecture for LLM
Serving", FAST 2025; https://github.com/kvcache-ai/Mooncake and
https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon. Prompts with equal leading
``hash_ids`` begin alike and form prefix groups (see ``prefix_paths``).
"""

from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.input_file import has_more_than
from capplan.workload.readers.ordering import Notes
from capplan.workload.readers.prefix_paths import prefix_paths
from capplan.workload.readers.recorded import NO_JOINS, Waits
from capplan.workload.readers.stamps import by_unit
from capplan.workload.readers.table import Table

_MOST_BYTES = 2**29
_FEW = 20
"""Requests whose stamps do not show their unit."""
_MOST_PER_S, _MANY_PER_S = 500.0, 50.0
"""Rates that no file of Mooncake's has, and that are told: stamps may be seconds.
[requests/s]"""
_LEAST_BUCKET_S = 1.0
"""Stamps are buckets when requests share them and they are this far apart. [s]"""


def refuse_too_large(path: str | Path) -> None:
    """Refuse a file whose blocks would take several times as much memory."""
    if has_more_than(path, _MOST_BYTES):
        raise InputError(
            f"{path}: more than {_MOST_BYTES / 2**20:g} MiB of JSON; expected a part "
            "of it, or a CSV"
        )


def shared_prefixes(
    table: Table,
    notes: Notes,
    stamps: np.ndarray,
    prompt_tokens: np.ndarray,
    block_tokens: int,
) -> dict[str, Any]:
    """Return the prefix columns of prompts given as block hashes (``hash_ids``)."""
    # A block is shared with prompts that arrived before.
    order = np.argsort(stamps, kind="stable")
    blocks = hashed_prompts(table)
    paths = prefix_paths([blocks[row] for row in order])
    group, shared_blocks = np.empty_like(order), np.empty_like(order)
    group[order], shared_blocks[order] = paths.group, paths.shared_blocks
    if group.max() >= 0:
        notes.add(
            f"prefix groups keep {100 * paths.kept:.1f} % of the blocks that an "
            "endless prefix cache would find",
            warn=False,
        )
    prefix_tokens = np.minimum(shared_blocks * block_tokens, prompt_tokens)
    return {"prefix_group": group, "prefix_tokens": prefix_tokens}


def hashed_prompts(table: Table) -> list[list[int | str]]:
    """Return the hashes of each prompt's blocks (``hash_ids``)."""
    blocks = [[] if cell is None else cell for cell in table.frame["hash_ids"]]
    right = [
        isinstance(cell, list) and all(type(block) in (int, str) for block in cell)
        for cell in blocks
    ]
    table.require(np.array(right), "hash_ids", "a list of block hashes")
    return blocks


def chat_sessions(table: Table, stamps: np.ndarray) -> np.ndarray:
    """Return the session of each chat: that of its parent, also one not in the file."""
    import pandas as pd

    chats = table.frame["chat_id"].astype(str)
    parents = table.frame["parent_chat_id"].astype(object).fillna("-1").astype(str)
    first: dict[str, str] = {}  # chat of a session
    rows = list(zip(chats, parents, strict=True))
    for row in np.argsort(stamps, kind="stable"):
        chat, parent = rows[row]
        first[chat] = chat if parent == "-1" else first.setdefault(parent, parent)
    return pd.factorize(chats.map(first))[0]


def chat_waits(table: Table, start_s: np.ndarray | None) -> Waits:
    """Return for whose answers chats waited: the one that they go on with."""
    last: dict[str, int] = {}
    after = np.full(len(table), -1)
    parents = table.frame["parent_chat_id"].astype(object).fillna("-1").astype(str)
    for row, (chat, parent) in enumerate(
        zip(table.frame["chat_id"].astype(str), parents, strict=True)
    ):
        after[row] = last.get(parent, -1)
        last[chat] = row
    begin_s = np.zeros(len(table)) if start_s is None else start_s
    return Waits(after, NO_JOINS, np.maximum(0, begin_s - begin_s[after]), after)


def arrivals_in_buckets(stamp_ms: np.ndarray, seed: int, notes: Notes) -> np.ndarray:
    """Return arrivals from the first on, spread inside stamps that are buckets. [s]

    Mooncake's conversation trace rounds its stamps to buckets of 3 s.
    """
    arrival_s = (stamp_ms - stamp_ms.min()) / 1e3
    rate, told = by_unit(stamp_ms)
    if rate * 1e3 > _MOST_PER_S and len(stamp_ms) >= _FEW:
        raise InputError(
            f"{notes.path}: timestamp: {told}; expected milliseconds: multiply seconds "
            "by 1,000"
        )
    if rate and len(stamp_ms) >= _FEW:
        said = f"timestamp is read as milliseconds: {told}"
        notes.add(said, warn=rate * 1e3 > _MANY_PER_S)
    stamps = np.unique(stamp_ms)
    if 2 * len(stamps) > len(stamp_ms) or len(stamps) < 2:
        return np.asarray(arrival_s)
    bucket_s = float(np.median(np.diff(stamps))) / 1e3
    if bucket_s < _LEAST_BUCKET_S:
        return np.asarray(arrival_s)
    notes.add(
        f"stamps come in buckets of {bucket_s:g} s: requests are spread evenly "
        f"inside theirs (seed {seed})"
    )
    spread_s = np.random.default_rng(seed).random(len(arrival_s)) * bucket_s
    placed_s = np.empty(len(arrival_s))
    placed_s[np.argsort(arrival_s, kind="stable")] = np.sort(arrival_s + spread_s)
    return placed_s
