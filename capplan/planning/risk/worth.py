"""What it is worth to know more: expected value of perfect information on an input."""

import numpy as np

FEWEST_DRAWS = 50
"""Draws from which the worth of an input is told: ten in each fifth of them."""
_GROUPS = 5


def losses(
    needed: np.ndarray, unused_usd: float, missing_usd: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the choices, and what each loses in each draw, shape (draws, choices). [$]

    ``needed`` are the nodes that the draws need, shape (draws,). A choice is a number
    of nodes that a draw needs, since the best is one: each node that a draw does not
    need costs ``unused_usd``, each one that it lacks ``missing_usd``.

    Examples
    --------
    >>> losses(np.array([1, 3]), 10.0, 30.0)[1].tolist()
    [[0.0, 20.0], [60.0, 0.0]]
    """
    choices = np.unique(needed)
    above = choices[None, :] - needed[:, None]
    return choices, np.where(above > 0, unused_usd * above, missing_usd * abs(above))


def worth_of_all(lost_usd: np.ndarray) -> float:
    """Return what knowing the draw is worth, what the best choice loses (EVPI). [$]"""
    return float(lost_usd.mean(axis=0).min())


def worth_of(values: np.ndarray, lost_usd: np.ndarray) -> float:
    """Return what it is worth to know one input before choosing (EVPPI). [$]

    The draws are grouped by fifths of the input's values, shape (draws,). In each the
    choice is made by one half of its draws and its loss read off the other: the same
    draws for both would find something in any input, however little it matters.
    Never less than 0, nor more than :func:`worth_of_all`.
    """
    order = np.argsort(values, kind="stable")
    known = 0.0
    for group in np.array_split(order, _GROUPS):
        halves = np.sort(group)[::2], np.sort(group)[1::2]
        for chosen_by, read_off in (halves, halves[::-1]):
            if len(chosen_by) and len(read_off):
                choice = int(lost_usd[chosen_by].mean(axis=0).argmin())
                known += float(lost_usd[read_off, choice].sum())
            else:
                known += float(lost_usd[read_off].sum(axis=0).min())
    return max(0.0, worth_of_all(lost_usd) - known / len(values))
