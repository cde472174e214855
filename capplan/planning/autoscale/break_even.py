"""The cold start at which an autoscaler stops paying, by bisection."""

from collections.abc import Callable

LEAST_S = 15.0
"""Resolution of the answer, at least. [s]"""
RELATIVE = 0.1
"""Its resolution as a share of the cold start."""
MOST_S = 3600.0
"""Longest cold start looked at. [s]"""


def break_even(
    pays: Callable[[float], bool],
    pays_first: bool,
    first_s: float,
    most_s: float = MOST_S,
) -> tuple[float | None, float | None]:
    """Return the longest cold start at which it pays, and one at which it does not.

    The two are apart by 15 s, or 10 % of the longer. None for the first: not even
    without a cold start; for the second: at all that were looked at, up to ``most_s``.
    ``pays_first`` says whether it pays at ``first_s``. [s]

    Examples
    --------
    >>> low, high = break_even(lambda cold_s: cold_s < 500, True, 240.0)
    >>> round(low), round(high)
    (480, 510)
    """
    low, high = (first_s, first_s) if pays_first else (0.0, first_s)
    if pays_first:
        while low == high or pays(high):
            if high >= most_s:
                return high, None
            low, high = high, min(most_s, max(2 * high, LEAST_S))
    elif first_s == 0 or not pays(0.0):
        return None, 0.0
    while high - low > max(LEAST_S, RELATIVE * high):
        middle = (low + high) / 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    return low, high
