"""Linear programs of a few variables, by the simplex method.

SciPy's solvers take 0.4 s to import and a hundred times as long for so few.
"""

import numpy as np

_MOST_PIVOTS = 1_000
_TOLERANCE = 1e-11


def maximized(
    gain: np.ndarray, rows: np.ndarray, limits: np.ndarray
) -> np.ndarray | None:
    """Return x >= 0 with ``rows @ x <= limits`` and the largest ``gain @ x``.

    ``gain`` has shape (n,), ``rows`` (m, n), ``limits`` (m,), all >= 0. None where no x
    is the best. Each pivot of the tableau (Dantzig, "Linear Programming and
    Extensions", chapter 5) lets a variable or a slack of n that are 0 change places
    with one of m that are not.
    """
    n = len(gain)
    if limits.min() < 0:
        return None
    # Rows and variables in units in which limits and largest coefficients are 1.
    rows = rows / np.where(limits > 0, limits, 1)[:, None]
    unit = rows.max(axis=0)
    unit[unit == 0] = 1
    table = np.vstack([rows / unit, gain / unit])
    table = np.column_stack([table, np.append(limits > 0, 0.0)])
    at_zero, others = np.arange(n), np.arange(n, n + len(rows))
    for _ in range(_MOST_PIVOTS):
        column = int(np.argmax(table[-1, :-1]))
        if table[-1, column] <= _TOLERANCE * np.abs(table[-1]).max():
            break
        falls = table[:-1, column] > _TOLERANCE
        if not falls.any():
            return None
        most = np.full(len(rows), np.inf)
        np.divide(table[:-1, -1], table[:-1, column], out=most, where=falls)
        row = int(np.argmin(most))
        pivot = table[row, column]
        across, down = table[row] / pivot, table[:, column].copy()
        table -= np.outer(down, across)
        table[row], table[:, column] = across, -down / pivot
        table[row, column] = 1 / pivot
        at_zero[column], others[row] = others[row], at_zero[column]
    else:
        return None
    # The same corner from the numbers given: pivots round.
    found = np.zeros(n)
    tight, free = at_zero[at_zero >= n] - n, np.sort(others[others < n])
    corner = (rows / unit)[np.ix_(tight, free)]
    found[free] = np.linalg.solve(corner, (limits > 0)[tight].astype(float))
    return found / unit
