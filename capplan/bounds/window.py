"""Find the window of a trace with the most work per second.

A request released at or after s and due by e does all its work inside [s, e]. Of the
requests of a window the ``droppable`` costliest may miss their SLO: the sum of the
``droppable`` largest w is the minimum over t of ``droppable * t + sum(max(w - t, 0))``,
so the rest is the maximum over t of ``sum(min(w, t)) - droppable * t``, and any t gives
a valid bound. Where groups of requests each have a target of their own, each has its
own ``droppable`` and t.
"""

from typing import NamedTuple

import numpy as np

_GRID = 128
_STARTS = 3
_ROUNDS = 8
_LEVELS = 8


class Window(NamedTuple):
    """A window of the trace and the work that must be done in it."""

    start_s: float
    end_s: float
    work_s: float  # without the costliest that may miss their SLO [s]
    requests: int  # requests inside, including those
    level_s: np.ndarray  # t: work above it is left out, shape (groups,) [s]

    @property
    def replicas(self) -> float:
        """Replica seconds of work per second of the window."""
        return self.work_s / (self.end_s - self.start_s)


def busiest_window(
    release_s: np.ndarray,
    deadline_s: np.ndarray,
    work_s: np.ndarray,
    droppable: int | np.ndarray,
    group: np.ndarray | None = None,
) -> Window | None:
    """Return the window with the most work per second; None when none holds any.

    A grid of windows is summed at once for several levels t; from the best of them the
    exact best start and end are found in turn, each in O(n log n). Columns have shape
    (n,) [s]; of each ``group`` (default: all are one), ``droppable`` requests, shape
    (groups,), may miss their SLO.
    """
    if group is None:
        group = np.zeros(len(work_s), np.int64)
    droppable = np.atleast_1d(np.asarray(droppable, np.int64))
    due = np.isfinite(deadline_s)
    if not due.any():
        return None
    columns = (release_s, deadline_s, work_s, group)
    requests = _Requests(*(column[due] for column in columns))
    starts = _quantiles(requests.release_s)
    ends = _quantiles(requests.deadline_s)
    # The window from start i to end j holds the requests with row >= i, column <= j.
    row = np.searchsorted(starts, requests.release_s, side="right") - 1
    column = np.searchsorted(ends, requests.deadline_s, side="left")
    length_s = ends[None, :] - starts[:, None]
    candidates: list[tuple[float, float, float]] = []
    for level_s in _levels(requests, droppable):
        kept_s = _work_inside(
            row, column, requests.capped_s(level_s), (len(starts), len(ends))
        )
        # Sum of min(w, t) less k * t: valid for any t, exact for the best.
        kept_s -= droppable @ level_s
        rate = np.where(length_s > 0, kept_s / np.where(length_s > 0, length_s, 1), 0.0)
        highest = np.sort(rate, axis=None)[-_STARTS:][0]
        for index in np.flatnonzero(rate >= highest)[-_STARTS:]:
            i, j = np.unravel_index(index, rate.shape)
            candidates.append((float(rate[i, j]), float(starts[i]), float(ends[j])))
    best: Window | None = None
    for _, start_s, end_s in sorted(candidates)[-_STARTS:]:
        window = _refine(requests, droppable, start_s, end_s)
        if window is not None and (best is None or window.replicas > best.replicas):
            best = window
    return best


class _Requests(NamedTuple):
    release_s: np.ndarray
    deadline_s: np.ndarray
    work_s: np.ndarray
    group: np.ndarray

    def capped_s(self, level_s: np.ndarray) -> np.ndarray:
        """Return the work of each, at most its group's level. [s]"""
        return np.minimum(self.work_s, level_s[self.group])


def _level(work_s: np.ndarray, droppable: int) -> float:
    """Return the level t that leaves out exactly the costliest. [s]"""
    if droppable >= len(work_s):
        return 0.0
    rank = len(work_s) - droppable - 1
    return float(np.partition(work_s, rank)[rank])


def _levels(requests: _Requests, droppable: np.ndarray) -> list[np.ndarray]:
    """Return levels for windows of all, a half, a quarter … of the requests. [s]"""
    levels = np.zeros((_LEVELS, len(droppable)))
    for group, dropped in enumerate(droppable):
        descending = np.sort(requests.work_s[requests.group == group])[::-1]
        if len(descending):
            # The k-th costliest of a half of them is about the 2k-th of all.
            ranks = np.minimum(dropped << np.arange(_LEVELS), len(descending) - 1)
            levels[:, group] = descending[ranks]
    return list(np.unique(levels, axis=0))


def _quantiles(times_s: np.ndarray) -> np.ndarray:
    """Return at most ``_GRID`` of the times by rank, with the first and last. [s]"""
    ascending = np.unique(times_s)
    if len(ascending) <= _GRID:
        return ascending
    ranks = np.linspace(0, len(ascending) - 1, _GRID).round().astype(np.int64)
    return np.asarray(ascending[ranks])


def _work_inside(
    row: np.ndarray, column: np.ndarray, work_s: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Return the work inside each window (from row i, up to column j). [s]"""
    flat = np.bincount(row * shape[1] + column, work_s, shape[0] * shape[1])
    sums = np.cumsum(flat.reshape(shape), axis=1)
    return np.cumsum(sums[::-1], axis=0)[::-1]


def _refine(
    requests: _Requests, droppable: np.ndarray, start_s: float, end_s: float
) -> Window | None:
    """Find the exact best end and start in turn until neither moves."""
    best = _window_at(requests, droppable, start_s, end_s)
    reverse = requests._replace(
        release_s=-requests.deadline_s, deadline_s=-requests.release_s
    )
    for _ in range(_ROUNDS):
        end_s = _best_end(requests, droppable, best.level_s, best.start_s)
        # The best start is the best end of the trace run backwards.
        start_s = -_best_end(reverse, droppable, best.level_s, -end_s)
        window = _window_at(requests, droppable, start_s, end_s)
        if window.work_s <= 0 or not window.replicas > best.replicas * (1 + 1e-12):
            break
        best = window
    return best if best.work_s > 0 else None


def _window_at(
    requests: _Requests, droppable: np.ndarray, start_s: float, end_s: float
) -> Window:
    """Return one window with the work that must be done in it."""
    inside = (requests.release_s >= start_s) & (requests.deadline_s <= end_s)
    work_s, group = requests.work_s[inside], requests.group[inside]
    level_s = np.array(
        [_level(work_s[group == index], int(n)) for index, n in enumerate(droppable)]
    )
    kept_s = np.minimum(work_s, level_s[group]).sum() - droppable @ level_s
    return Window(start_s, end_s, max(float(kept_s), 0.0), len(work_s), level_s)


def _best_end(
    requests: _Requests, droppable: np.ndarray, level_s: np.ndarray, start_s: float
) -> float:
    """Return the end with the most work per second for one start and level. [s]"""
    inside = requests.release_s >= start_s
    order = np.argsort(requests.deadline_s[inside], kind="stable")
    ends = requests.deadline_s[inside][order]
    kept_s = np.cumsum(requests.capped_s(level_s)[inside][order]) - droppable @ level_s
    return float(ends[int(np.argmax(kept_s / np.maximum(ends - start_s, 1e-12)))])
