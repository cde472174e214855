"""The highest arrival rate that a fleet holds, by bisection."""

from collections.abc import Callable

STEP = 1.03
"""Ratio of neighbouring rates that are looked at: the tolerance of the answer."""
_STRIDE = 8
"""Steps to the next higher rate; downward, where a look is cheap, twice as far each."""
_FARTHEST = 120
"""Steps at which the search ends: 35 times the rate, or a 35th of it."""


def highest_rate(holds: Callable[[float], bool], rate_per_s: float) -> float | None:
    """Return the highest rate that is held; None where none is. [requests/s]

    Looks at ``rate_per_s`` and at rates that are a power of STEP from it: the next
    higher one is not held, unless all up to 35 times the rate are.

    Examples
    --------
    >>> round(highest_rate(lambda rate: rate < 5, 4.0), 3)
    4.919
    """

    def at(step: int) -> float:
        return float(rate_per_s * STEP**step)

    direction = 1 if holds(rate_per_s) else -1
    near, far = 0, _STRIDE
    while holds(at(direction * far)) == (direction > 0):
        near = far
        if far == _FARTHEST:
            return at(far) if direction > 0 else None
        far = min(_FARTHEST, (far if direction > 0 else 2 * far) + _STRIDE)
    held, missed = (near, far) if direction > 0 else (-far, -near)
    while missed - held > 1:
        middle = (held + missed) // 2
        if holds(at(middle)):
            held = middle
        else:
            missed = middle
    return at(held)
