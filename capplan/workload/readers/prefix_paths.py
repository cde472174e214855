"""Turn prompts given as block hashes into prefix groups.

A prefix group is one path of the tree of prompts with equal leading blocks. A request
joins the path that shares most of its blocks, or begins a new one where the blocks that
later requests would hit there outnumber those that it gives up itself.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np


class PrefixPaths(NamedTuple):
    """The path that each prompt follows."""

    group: np.ndarray  # -1 when a prompt shares with nobody, shape (n,), int64
    shared_blocks: np.ndarray  # leading blocks on the path, shape (n,), int64
    kept: float  # blocks hit on the paths over those hit in the tree; 1 without hits


def prefix_paths(prompts: Sequence[Sequence[int | str]]) -> PrefixPaths:
    """Return a path for each prompt, given their block hashes in order of arrival.

    Two blocks are equal when their hashes and all hashes before them are.

    Examples
    --------
    >>> paths = prefix_paths([[1, 2], [1, 2, 3], [9]])
    >>> paths.group.tolist(), paths.shared_blocks.tolist(), paths.kept
    ([0, 0, -1], [2, 2, 0], 1.0)
    """
    paths = _nodes(prompts)
    later_uses = Counter(block for blocks in paths for block in blocks)
    path_of: dict[int, int] = {}
    last_block: list[int] = []  # of each path
    seen: set[int] = set()
    group = np.full(len(prompts), -1, np.int64)
    shared_blocks = np.zeros(len(prompts), np.int64)
    tree_hits = path_hits = 0
    for row, blocks in enumerate(paths):
        later_uses.subtract(blocks)
        tree_hits += _leading(blocks, seen)
        seen.update(blocks)
        on_path = _leading(blocks, path_of)
        path = path_of[blocks[on_path - 1]] if on_path else -1
        reused = sum(1 for _ in takewhile(lambda block: later_uses[block] > 0, blocks))
        if reused > on_path:
            extends = path >= 0 and last_block[path] == blocks[on_path - 1]
            gain = sum(later_uses[block] for block in blocks[on_path:reused])
            if extends or gain > on_path:
                if not extends:
                    path, on_path = len(last_block), 0
                    last_block.append(-1)
                for block in blocks[on_path:reused]:
                    path_of[block] = path
                last_block[path] = blocks[reused - 1]
                shared_blocks[row] = reused
        path_hits += on_path
        group[row] = path
        shared_blocks[row] = max(shared_blocks[row], on_path)
    kept = path_hits / tree_hits if tree_hits else 1.0
    return PrefixPaths(group, shared_blocks, kept)


def _nodes(prompts: Sequence[Sequence[int | str]]) -> list[list[int]]:
    """Return the node of each block in the tree of all prompts."""
    node_of: dict[tuple[int, int | str], int] = {}
    paths = []
    for blocks in prompts:
        node = -1
        path = []
        for block in blocks:
            node = node_of.setdefault((node, block), len(node_of))
            path.append(node)
        paths.append(path)
    return paths


def _leading(blocks: Sequence[int], known: set[int] | dict[int, int]) -> int:
    return sum(1 for _ in takewhile(known.__contains__, blocks))
