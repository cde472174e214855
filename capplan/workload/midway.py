"""Sessions that are found in the middle: what is left of them, and what they have."""

import numpy as np

from capplan.workload.forest import NONE, rows_left, session_of
from capplan.workload.trace import Trace

_CHANGED = ("prefix_tokens", "prefix_group", "output_tokens", "think_s")


def midway(trace: Trace, start_s: np.ndarray, at_s: np.ndarray) -> Trace:
    """Return sessions of which the first are found at a moment of theirs. [s]

    ``start_s`` is that of each row, ``at_s`` that moment of each of the first sessions,
    of which rows stand one behind the other.
    """
    label = session_of(trace)
    count = int(np.searchsorted(label, len(at_s)))
    ends = np.searchsorted(label[:count], np.arange(len(at_s)), side="right")
    at = _Midway(trace, start_s)
    low = 0
    for end, moment_s in zip(ends.tolist(), at_s.tolist(), strict=True):
        at.find(low, end, moment_s)
        low = end
    return at.trace()


class _Midway:
    """Changes the rows of sessions that are found at a moment."""

    def __init__(self, trace: Trace, start_s: np.ndarray) -> None:
        self._trace, self._start_s = trace, start_s.tolist()
        think_s = np.zeros(len(trace)) if trace.think_s is None else trace.think_s
        self._columns = {
            name: getattr(trace, name).tolist()
            for name in (
                *("parent", "prefix_tokens", "prefix_group", "after"),
                *("output_tokens", "prompt_tokens", "agent"),
            )
        } | {"think_s": think_s.tolist()}
        self._gone: set[int] = set()
        self._joins: dict[int, list[int]] = {}
        for row, other in trace.joins.tolist():
            self._joins.setdefault(row, []).append(other)

    def find(self, low: int, end: int, moment_s: float) -> None:
        """Let a session, rows ``low`` to ``end``, be found at a moment."""
        start_s, columns = self._start_s, self._columns
        rows = range(low, end)
        moment_s = min(moment_s, max(start_s[row] for row in rows))
        past = [row for row in rows if start_s[row] < moment_s]
        if not past:
            return
        running = {columns["agent"][row] for row in rows if start_s[row] >= moment_s}
        last: dict[int, int] = {}
        for row in sorted(past, key=lambda row: (start_s[row], row)):
            if columns["agent"][row] in running:
                last[columns["agent"][row]] = row
        kept = sorted(last.values())
        self._gone.update(set(past) - set(kept))
        for row in kept:
            columns["output_tokens"][row] = 1
            columns["after"][row], columns["think_s"][row] = NONE, 0.0
            self._joins.pop(row, None)
        for row in rows:
            if row not in self._gone:
                self._share(row, kept)
            if start_s[row] >= moment_s:
                self._wait(row, last, moment_s)

    def _wait(self, row: int, last: dict[int, int], moment_s: float) -> None:
        """Let a row that comes after past ones wait for the rest of its time."""
        columns, start_s = self._columns, self._start_s
        waited = [columns["after"][row], *self._joins.pop(row, [])]
        later = [other for other in waited if other >= 0 and start_s[other] >= moment_s]
        if later or waited == [NONE]:
            columns["after"][row] = (later or waited)[0]
            if later[1:]:
                self._joins[row] = later[1:]
            return
        first = next(iter(last.values()), NONE)
        columns["after"][row] = last.get(columns["agent"][row], first)
        columns["think_s"][row] = start_s[row] - moment_s

    def _share(self, row: int, kept: list[int]) -> None:
        """Let a row whose parent is gone share with those kept what it has of them."""
        columns, parent = self._columns, self._columns["parent"]
        before = parent[row]
        if before in kept:  # whose answer is one token now
            most = columns["prompt_tokens"][before] + 1
            columns["prefix_tokens"][row] = min(columns["prefix_tokens"][row], most)
            return
        if before not in self._gone and row not in kept:
            return
        path = self._path(row)
        best, tokens = NONE, 0
        for other in kept:
            if other < row and (common := self._common(path, other)) > tokens:
                best, tokens = other, common
        if best != NONE:
            parent[row], columns["prefix_tokens"][row] = best, tokens
            return
        root, of_root = path[-1]
        group = columns["prefix_group"][root]
        parent[row], columns["prefix_group"][row] = NONE, group
        text = min(of_root, columns["prefix_tokens"][root]) if root != row else of_root
        columns["prefix_tokens"][row] = text if group >= 0 else 0

    def _path(self, row: int) -> list[tuple[int, int]]:
        """Return a row and those it begins with: as read, with the tokens shared."""
        parent, prefix = self._trace.parent, self._trace.prefix_tokens
        tokens = int(self._trace.prompt_tokens[row])
        path = [(row, tokens)]
        while parent[row] >= 0:
            tokens = min(tokens, int(prefix[row]))
            row = int(parent[row])
            path.append((row, tokens))
        return path if len(path) > 1 else [(row, int(prefix[row]))]

    def _common(self, path: list[tuple[int, int]], other: int) -> int:
        """Return the tokens that a row and another begin with."""
        theirs = dict(self._path(other))
        theirs[other] = int(self._trace.prompt_tokens[other]) + 1
        return next(
            (min(tokens, theirs[row]) for row, tokens in path[1:] if row in theirs), 0
        )

    def trace(self) -> Trace:
        """Return the rows that are left."""
        kept = np.ones(len(self._trace), bool)
        kept[list(self._gone)] = False
        rows = np.flatnonzero(kept)
        columns = {name: np.array(values) for name, values in self._columns.items()}
        joins = [(row, other) for row, of in self._joins.items() for other in of]
        links = columns.pop("parent"), columns.pop("after")
        left = rows_left(rows, *links, np.array(joins, np.int64).reshape(-1, 2))
        changed = {name: columns[name][rows] for name in _CHANGED}
        return self._trace.rows_of(rows, **left, **changed)
