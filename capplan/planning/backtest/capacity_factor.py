"""What a factor on iteration times does to the load that a replica carries.

TPOT is flat in the batch: 10 % of it may be 40 % of the requests that are served at it.
"""

import math
from collections.abc import Callable

_MOST = 16.0
"""Times the measured load up to which as slow a one is sought."""
_PRECISION = 0.01


def capacity_factor(
    pace_s: Callable[[float, float], float], factor: float
) -> float | None:
    """Return the load with ``factor`` over that without at which both are as slow.

    ``pace_s`` returns the time between tokens under a factor, at times the measured
    load. None where no load makes a replica without the factor as slow, or as fast.
    """
    if abs(math.log(factor)) < 1e-6:
        return 1.0
    wanted_s = pace_s(factor, 1.0)
    low, high, reached = 1.0, 1.0, False
    while not reached:
        if high > _MOST or low < 1 / _MOST:
            return None
        if factor > 1:
            low, high = high, high * 1.5
            reached = pace_s(1.0, high) >= wanted_s
        else:
            low, high = low / 1.5, low
            reached = pace_s(1.0, low) <= wanted_s
    while high / low > 1 + _PRECISION:
        middle = math.sqrt(low * high)
        slower = pace_s(1.0, middle) >= wanted_s
        low, high = (low, middle) if slower else (middle, high)
    return 1 / math.sqrt(low * high)
