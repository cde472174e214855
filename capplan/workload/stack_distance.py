"""Hit rate of an LRU prefix cache of every size, in one pass over a trace.

Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9
(1970): a block is hit by a cache of S blocks where fewer than S others were used since.
A prompt and its answer are used together, their first block last. Blocks that are used
together are a run, so that a turn costs as much as it touches runs, not blocks.
"""

from typing import NamedTuple

import numpy as np

from capplan.workload.forest import NONE, Forest


class HitCurve(NamedTuple):
    """Ranges of stack distances: a block was hit at each of first to last."""

    first: np.ndarray  # [blocks]
    last: np.ndarray
    block_tokens: int
    prompt_tokens: int  # of all prompts

    def share(self, cache_tokens: float) -> float:
        """Return the share of prompt tokens that a cache of so many tokens has."""
        size = np.floor(cache_tokens / self.block_tokens)
        hits = np.maximum(0, np.minimum(self.last, size) - self.first + 1).sum()
        return float(hits * self.block_tokens / self.prompt_tokens)


class _Runs:
    """Blocks [start, end) of a path that were last used at one time."""

    def __init__(self, nodes: int, turns: int) -> None:
        self.start, self.end, self.up = list[int](), list[int](), list[int]()
        self.time, self.children = list[int](), list[int]()
        self.anchor, self.own_end = [NONE] * nodes, [0] * nodes
        self.low = [0] * turns  # first block last used at a time
        self._sums = [0] * (turns + 1)  # a Fenwick tree of blocks last used by time
        self.total = 0

    def add(self, time: int, blocks: int) -> None:
        self.total += blocks
        at = time + 1
        while at < len(self._sums):
            self._sums[at] += blocks
            at += at & -at

    def used_after(self, time: int) -> int:
        found, at = self.total, time + 1
        while at > 0:
            found -= self._sums[at]
            at -= at & -at
        return found

    def new(self, start: int, end: int, up: int, time: int) -> int:
        for column, value in zip(
            (self.start, self.end, self.up, self.time, self.children),
            (start, end, up, time, 0),
            strict=True,
        ):
            column.append(value)
        if up >= 0:
            self.children[up] += 1
        return len(self.start) - 1

    def ending(self, run: int, blocks: int) -> int:
        """Return the run of a path that ends at a block, split where it goes on."""
        while self.start[run] >= blocks:
            run = self.up[run]
        if self.end[run] > blocks:  # those below keep the number, as others know it
            above = self.up[run]
            upper = self.new(self.start[run], blocks, above, self.time[run])
            if above >= 0:
                self.children[above] -= 1
            self.children[upper] = 1
            self.start[run], self.up[run] = blocks, upper
            return upper
        return run


def hit_curve(
    trees: Forest, prompt_tokens: np.ndarray, order: np.ndarray, block_tokens: int
) -> HitCurve:
    """Return the hits of a cache of every size by prompts in this order of rows."""
    parent, first = trees.parent.tolist(), trees.first_block.tolist()
    end = trees.end_block.tolist()
    most = ((prompt_tokens - 1) // block_tokens).tolist()  # the last token is computed
    runs = _Runs(len(parent), len(order))
    found: list[tuple[int, int]] = []
    for time, row in enumerate(order.tolist()):
        node, hits = row, end[row]
        while node >= 0 and runs.own_end[node] <= first[node]:
            hits, node = min(hits, first[node]), parent[node]
        hits = min(hits, runs.own_end[node]) if node >= 0 else 0
        run = runs.ending(runs.anchor[node], hits) if hits else NONE
        _use(runs, run, time, min(hits, most[row]), found)
        if end[row] > hits:
            if run >= 0 and not runs.children[run]:
                runs.end[run] = end[row]
            else:
                run = runs.new(hits, end[row], run, time)
        runs.add(time, end[row])
        limit, node = end[row], row
        while node >= 0 and runs.own_end[node] < limit:
            runs.anchor[node], runs.own_end[node] = run, limit
            limit, node = first[node], parent[node]
    ranges = np.array(found, np.int64).reshape(-1, 2)
    return HitCurve(ranges[:, 0], ranges[:, 1], block_tokens, int(prompt_tokens.sum()))


def _use(
    runs: _Runs, run: int, time: int, counted: int, found: list[tuple[int, int]]
) -> None:
    """Move a path to the top of the stack; note how deep its counted blocks were."""
    while run >= 0:
        before, end = runs.time[run], runs.end[run]
        deeper, low = runs.used_after(before), runs.low[before]
        if min(end, counted) > low:
            found.append((deeper + 1, deeper + min(end, counted) - low))
        runs.add(before, low - end)
        runs.low[before] = end
        while run >= 0 and runs.time[run] == before:
            runs.time[run], run = time, runs.up[run]
