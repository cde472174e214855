"""The highest arrival rate that a fleet holds, by bisection."""

import math
from collections.abc import Callable

from capplan.planning.count_ladder import fewest_between

STEP = 1.03
"""Ratio of neighbouring rates that are looked at: the tolerance of the answer."""
_STRIDE = 8
"""Steps to the first other rate; half as far again each, and downward twice as far."""
_LONGEST_STRIDE = 40
"""Steps upward at most, to 3.3 times the rate: far above capacity a look takes long."""
_LOWEST = 120
"""Steps down at which the search ends: a 35th of the rate."""
_HIGHEST = 480
"""Steps up at which it ends: 1,450,000 times the rate."""


def highest_rate(
    holds: Callable[[float], bool], rate_per_s: float, stride: int = _STRIDE
) -> float | None:
    """Return the highest rate that is held; None where none is. [requests/s]

    Looks at ``rate_per_s`` and at rates that are a power of STEP from it: the next
    higher one is not held. ``stride`` is the steps to the first other one: 1 where the
    answer is close. Infinite where a million times the rate is: so few requests
    that they could all arrive at once.

    Examples
    --------
    >>> round(highest_rate(lambda rate: rate < 5, 4.0), 3)
    4.919
    """

    def at(step: int) -> float:
        return float(rate_per_s * STEP**step)

    direction = 1 if holds(rate_per_s) else -1
    farthest = _HIGHEST if direction > 0 else _LOWEST
    near, far = 0, stride
    while holds(at(direction * far)) == (direction > 0):
        near = far
        if far == farthest:
            return math.inf if direction > 0 else None
        up = min(max(stride, far // 2), _LONGEST_STRIDE)
        more = up if direction > 0 else far + stride
        far = min(farthest, far + more)
    held, missed = (near, far) if direction > 0 else (-far, -near)
    return at(fewest_between(held, missed, lambda step: not holds(at(step))) - 1)


def highest_decided(
    seems_held: Callable[[float], bool],
    holds: Callable[[float], bool],
    rate_per_s: float,
    *,
    below: int = 0,
    near_per_s: float = math.inf,
) -> float | None:
    """Return the highest rate that is decided to be held; see ``highest_rate``.

    ``seems_held``, of one sample each, says where it is about; near it each is decided.
    Samples that start empty seem to hold more than is held, and what is too much takes
    longest to decide: so it may begin some steps ``below``, and no higher than
    ``near_per_s``, the answer to a question like this one.
    """
    about_per_s = highest_rate(seems_held, rate_per_s)
    if about_per_s is None or about_per_s == math.inf:
        return about_per_s
    return highest_rate(holds, min(about_per_s / STEP**below, near_per_s), stride=1)
