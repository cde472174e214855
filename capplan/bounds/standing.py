"""Replicas that must stand, and be paid, a cold start before they are needed.

A window with more work than r - 1 replicas do in its length has r at some moment of it.
Each of these was ordered a cold start earlier, or was there from the beginning, so that
r are paid in all of the time from a cold start before the window's end to its begin:
``docs/internals/bounds.md``.
"""

import numpy as np

_ROUNDING = 1e-9


def standing_s(
    index: np.ndarray, work_s: np.ndarray, length_s: float, ahead: int, droppable: int
) -> float:
    """Return a lower bound on the time of all replicas. [s]

    ``index`` is the window of each request, of windows of ``length_s`` that follow one
    another, and ``work_s`` its work, shape (n,). What a window needs is paid in
    ``ahead`` whole windows before it; ``droppable`` requests may be left out.

    Examples
    --------
    >>> standing_s(np.array([2, 2]), np.array([7.0, 6.0]), 10.0, 2, 0)
    40.0
    >>> standing_s(np.array([2, 2]), np.array([7.0, 6.0]), 10.0, 2, 1)
    10.0
    """
    levels = _drops_by_level(index, work_s, length_s)
    budget = droppable * ahead
    return length_s * sum(_covered(drops, ahead, budget) for drops in levels)


def _drops_by_level(
    index: np.ndarray, work_s: np.ndarray, length_s: float
) -> list[np.ndarray]:
    """Return for r = 1, 2, …: the requests to leave out so that r - 1 replicas do.

    Of each window, shape (windows,); 0 where they do without.
    """
    order = np.lexsort((-work_s, index))
    index, work_s = index[order], work_s[order]
    windows, first = np.unique(index, return_index=True)
    ends = np.append(first[1:], len(index))
    levels: list[np.ndarray] = []
    for window, start, end in zip(
        windows.tolist(), first.tolist(), ends.tolist(), strict=True
    ):
        left_s = np.append(0.0, np.cumsum(work_s[start:end][::-1]))[::-1]
        count = int(np.ceil(left_s[0] / length_s * (1 - _ROUNDING)))
        while len(levels) < count:
            levels.append(np.zeros(int(windows[-1]) + 1, np.int64))
        allowed_s = np.arange(count) * length_s * (1 + _ROUNDING)
        # left_s falls: leaving out k leaves left_s[k].
        drops = len(left_s) - np.searchsorted(left_s[::-1], allowed_s, side="right")
        for level, dropped in enumerate(drops.tolist()):
            levels[level][window] = dropped
    return levels


def _covered(drops: np.ndarray, ahead: int, budget: int) -> float:
    """Return the windows in which a replica is paid, whatever is left out, at least.

    A window is not covered only where all that need it, up to ``ahead`` later ones, are
    left out. A request that is left out is counted by the ``ahead`` windows before
    its own, so that those not covered count ``budget`` at most.
    """
    padded = np.append(drops, np.zeros(ahead, drops.dtype))
    sums = np.cumsum(np.append(0, padded))
    n = len(drops)
    counts = sums[np.arange(n) + 1 + ahead] - sums[np.arange(n) + 1]
    counts = np.sort(counts[counts > 0])
    spent = np.cumsum(counts)
    free = int(np.searchsorted(spent, budget, side="right"))
    if free == len(counts):
        return 0.0
    left = budget - (spent[free - 1] if free else 0)
    return len(counts) - free - float(left) / float(counts[free])
