"""Outputs of the past requests most like a request, by what is known before its answer.

ALISE retrieves by the text of the prompt; a trace has none, so here by session or
prefix group, class and prompt length.
"""

import numpy as np

from capplan.workload.slo import base_classes
from capplan.workload.trace import Trace

_OTHER_GROUP = 1e3  # beside differences of logarithms: all of its group come first
_LAST_RESORT = 1e6
_BLOCK_REQUESTS = 65_536


def neighbour_outputs(trace: Trace, past: Trace, k: int) -> np.ndarray:
    """Return the outputs of at most k neighbours, NaN beyond, shape (n, k). [tokens]

    Neighbours are past requests of the class by the distance of the logarithms of the
    prompt lengths; a class that no other request has takes all of them. A trace that
    is its own past also tells prefix groups: those before a request in its group come
    first, later ones of its group last; itself is left out. Looked at are the k before
    it in its group and, of the class, 2 k shorter and as many longer prompts.
    """
    outputs = np.full((len(trace), k), np.nan)
    names, base = base_classes(trace.class_names)
    past_names, past_base = base_classes(past.class_names)
    of_request, of_past = base[trace.request_class], past_base[past.request_class]
    groups = _Groups(trace, of_request, k) if past is trace else None
    for index, name in enumerate(names):
        rows = np.flatnonzero(of_request == index)
        known = past_names.index(name) if name in past_names else -1
        of_class = np.flatnonzero(of_past == known)
        if len(of_class) <= (past is trace):
            of_class = np.arange(len(past))
        by_length = of_class[np.argsort(past.prompt_tokens[of_class], kind="stable")]
        for first in range(0, len(rows), _BLOCK_REQUESTS):
            block = rows[first : first + _BLOCK_REQUESTS]
            near = _near(
                past.prompt_tokens[by_length], trace.prompt_tokens[block], 2 * k + 1
            )
            candidates = np.where(near < 0, -1, by_length[near])
            if groups is not None:
                before = groups.before[block]
                candidates = groups.without_repeats(block, candidates)
                candidates = np.hstack([before, candidates])
            lengths = past.prompt_tokens[candidates] / trace.prompt_tokens[block, None]
            distance = np.abs(np.log(lengths))
            if groups is not None:
                distance += groups.distance(block, candidates)
            distance[candidates < 0] = np.inf
            nearest = np.argsort(distance, axis=1, kind="stable")[:, :k]
            chosen = np.take_along_axis(candidates, nearest, axis=1)
            found = np.where(chosen < 0, np.nan, past.output_tokens[chosen])
            outputs[block, : found.shape[1]] = found
    return outputs


def _near(lengths: np.ndarray, prompt_tokens: np.ndarray, reach: int) -> np.ndarray:
    """Return places around each prompt in sorted lengths, -1 beyond, (n, 2 reach)."""
    place = np.searchsorted(lengths, prompt_tokens)
    at = place[:, None] + np.arange(-reach, reach)
    return np.where((at >= 0) & (at < len(lengths)), at, -1)


class _Groups:
    """Prefix groups of a trace by class: who comes before whom in the same one."""

    def __init__(self, trace: Trace, request_class: np.ndarray, k: int) -> None:
        self._k = k
        order = np.lexsort((request_class, trace.prefix_group))  # stable
        group, of = trace.prefix_group[order], request_class[order]
        # A request of no group is one of its own.
        begins = (group[1:] != group[:-1]) | (of[1:] != of[:-1]) | (group[1:] < 0)
        self._group = np.empty(len(trace), np.int64)
        self._group[order] = np.concatenate([[0], np.cumsum(begins)])
        self._rank = np.empty(len(trace), np.int64)
        self._rank[order] = np.arange(len(trace))
        back = self._rank[:, None] - np.arange(1, k + 1)
        rows = np.where(back >= 0, order[np.maximum(back, 0)], -1)
        alike = self._group[rows] == self._group[:, None]
        self.before = np.where((rows >= 0) & alike, rows, -1)  # (n, k)

    def without_repeats(self, rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Return candidates with -1 for themselves and those of ``before``."""
        back = self._rank[rows, None] - self._rank[candidates]
        alike = self._group[candidates] == self._group[rows, None]
        return np.where(alike & (back >= 0) & (back <= self._k), -1, candidates)

    def distance(self, rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Return what the groups add to the distance."""
        alike = self._group[candidates] == self._group[rows, None]
        later = np.where(candidates > rows[:, None], _LAST_RESORT, 0.0)
        return np.where(alike, later, _OTHER_GROUP)
