"""Find the window of a trace into which the most work must fall.

A request released at or after s whose last token is due by e does all its work
inside [s, e]. Of the requests of a window the costliest ``droppable`` may miss their
SLO, and the best choice of them is allowed for: the sum of the ``droppable`` largest
w is the minimum over t of ``droppable * t + sum(max(w - t, 0))``, so what is left is
the largest over t of ``sum(min(w, t)) - droppable * t``; any t gives a valid bound.
"""

from typing import NamedTuple

import numpy as np

_GRID = 128
_STARTS = 3
_ROUNDS = 8
_LEVELS = 8


class Window(NamedTuple):
    """A window of the trace and what must be done in it."""

    start_s: float
    end_s: float
    work_s: float  # what is left once the costliest are dropped [s]
    requests: int  # requests inside, with those dropped
    level_s: float  # t: work above it per request is left out [s]

    @property
    def replicas(self) -> float:
        """Replica seconds of work per second of the window."""
        return self.work_s / (self.end_s - self.start_s)


def busiest_window(
    release_s: np.ndarray, deadline_s: np.ndarray, work_s: np.ndarray, droppable: int
) -> Window | None:
    """Return the window with the most work per second, the best that is found.

    A grid of windows is summed at once for several levels t; from the best of them,
    start and end are made exact in turn, each over all requests, O(n log n).

    Parameters
    ----------
    release_s, deadline_s, work_s
        Of each request that counts, shape (n,). [s]
    droppable
        How many of them may be left out. [requests]

    Returns
    -------
    Window or None
        None when no window must hold any work.
    """
    inside = np.isfinite(deadline_s) & (work_s > 0)
    release_s, deadline_s, work_s = (
        column[inside] for column in (release_s, deadline_s, work_s)
    )
    if len(work_s) <= droppable:
        return None
    starts = _spread(release_s)
    ends = _spread(deadline_s)
    row = np.searchsorted(starts, release_s, side="right") - 1
    column = np.searchsorted(ends, deadline_s, side="left")
    length_s = ends[None, :] - starts[:, None]
    candidates: list[tuple[float, float, float]] = []
    for level_s in _levels(work_s, droppable):
        kept = _contained(
            row, column, np.minimum(work_s, level_s), (len(starts), len(ends))
        )
        kept -= droppable * level_s
        rate = np.where(length_s > 0, kept / np.where(length_s > 0, length_s, 1), 0.0)
        for place in np.argsort(rate, axis=None)[-_STARTS:]:
            i, j = np.unravel_index(place, rate.shape)
            candidates.append((float(rate[i, j]), float(starts[i]), float(ends[j])))
    best: Window | None = None
    for _, start_s, end_s in sorted(candidates)[-_STARTS:]:
        found = _climb(release_s, deadline_s, work_s, droppable, start_s, end_s)
        if found is not None and (best is None or found.replicas > best.replicas):
            best = found
    return best


def window_at(
    release_s: np.ndarray,
    deadline_s: np.ndarray,
    work_s: np.ndarray,
    droppable: int,
    start_s: float,
    end_s: float,
) -> Window:
    """Return the work that must be done in one window, the costliest dropped."""
    inside = (release_s >= start_s) & (deadline_s <= end_s)
    chosen = work_s[inside]
    level_s = _level(chosen, droppable)
    left_s = float(np.minimum(chosen, level_s).sum()) - droppable * level_s
    return Window(start_s, end_s, max(left_s, 0.0), len(chosen), level_s)


def busiest_end(
    release_s: np.ndarray,
    base_s: np.ndarray,
    extra_s: np.ndarray,
    droppable: int,
    end_s: float,
) -> Window | None:
    """Return the window up to ``end_s`` with the most work when all is done by then.

    Parameters
    ----------
    release_s
        Of each request, shape (n,). [s]
    base_s
        Its work when it misses its SLO, shape (n,). [s]
    extra_s
        What keeping the SLO adds, shape (n,). [s]
    droppable
        How many may miss it. [requests]
    end_s
        When all requests are answered. [s]
    """
    best: Window | None = None
    level_s = _level(extra_s, droppable)
    for _ in range(_ROUNDS):
        capped_s = base_s + np.minimum(extra_s, level_s)
        toll_s = droppable * level_s
        start_s = -_best_end(
            np.full(len(release_s), -end_s), -release_s, capped_s, toll_s, -end_s
        )
        inside = release_s >= start_s
        level_s = _level(extra_s[inside], droppable)
        kept_s = np.minimum(extra_s[inside], level_s).sum() - droppable * level_s
        found = Window(
            start_s,
            end_s,
            float(base_s[inside].sum() + max(kept_s, 0.0)),
            int(inside.sum()),
            level_s,
        )
        if not end_s > start_s:
            return best
        if best is not None and not found.replicas > best.replicas * (1 + 1e-12):
            return best
        best = found
    return best


def _level(work_s: np.ndarray, droppable: int) -> float:
    """Return the level t at which dropping the costliest is exact. [s]"""
    if len(work_s) == 0:
        return 0.0
    if droppable == 0:
        return float(work_s.max())
    if droppable >= len(work_s):
        return 0.0
    place = len(work_s) - droppable - 1
    return float(np.partition(work_s, place)[place])


def _levels(work_s: np.ndarray, droppable: int) -> list[float]:
    """Return levels that suit windows of all, a half, a quarter … of the requests."""
    ordered = np.sort(work_s)[::-1]
    if droppable == 0:
        return [float(ordered[0])]
    places = [min(droppable << k, len(ordered) - 1) for k in range(_LEVELS)]
    return sorted({float(ordered[place]) for place in places})


def _spread(moments_s: np.ndarray) -> np.ndarray:
    """Return at most ``_GRID`` of the moments, by rank, with the first and last."""
    ordered = np.unique(moments_s)
    if len(ordered) <= _GRID:
        return ordered
    places = np.linspace(0, len(ordered) - 1, _GRID).round().astype(np.int64)
    return np.asarray(ordered[places])


def _contained(
    row: np.ndarray, column: np.ndarray, weight: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Return the weight inside each window (row i on, up to column j)."""
    flat = np.bincount(row * shape[1] + column, weight, shape[0] * shape[1])
    sums = np.cumsum(flat.reshape(shape), axis=1)
    return np.cumsum(sums[::-1], axis=0)[::-1]


def _climb(
    release_s: np.ndarray,
    deadline_s: np.ndarray,
    work_s: np.ndarray,
    droppable: int,
    start_s: float,
    end_s: float,
) -> Window | None:
    """Make start and end exact in turn until neither moves."""
    best = window_at(release_s, deadline_s, work_s, droppable, start_s, end_s)
    for _ in range(_ROUNDS):
        capped = np.minimum(work_s, best.level_s)
        toll = droppable * best.level_s
        end_s = _best_end(release_s, deadline_s, capped, toll, best.start_s)
        # The best start is the best end of the trace run backwards.
        start_s = -_best_end(-deadline_s, -release_s, capped, toll, -end_s)
        found = window_at(release_s, deadline_s, work_s, droppable, start_s, end_s)
        if found.work_s <= 0 or not found.replicas > best.replicas * (1 + 1e-12):
            break
        best = found
    return best if best.work_s > 0 else None


def _best_end(
    release_s: np.ndarray,
    deadline_s: np.ndarray,
    capped_s: np.ndarray,
    toll: float,
    start_s: float,
) -> float:
    inside = release_s >= start_s
    order = np.argsort(deadline_s[inside], kind="stable")
    ends = deadline_s[inside][order]
    rate = (np.cumsum(capped_s[inside][order]) - toll) / np.maximum(
        ends - start_s, 1e-12
    )
    return float(ends[int(np.argmax(rate))])
