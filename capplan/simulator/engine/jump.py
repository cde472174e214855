"""Time of n decode iterations in closed form, and how many fit a span of time.

Every context grows by one token an iteration, so each iteration takes a fixed time
longer than the one before.
"""

import math

from capplan.simulator.jit import inlined

SMALLEST_STEP_S = 1e-12
"""Keeps a division by the time of an iteration finite. [s]"""
ROUNDING_S = 1e-9
"""Times are compared to this, so that rounding decides nothing. [s]"""


@inlined()
def decode_time_s(first_s, slope_s, n):
    """Return the time of n decode iterations, each ``slope_s`` longer than the last."""
    return n * first_s + 0.5 * slope_s * n * (n - 1)


@inlined()
def iterations_before(first_s, slope_s, span_s, most):
    """Return the fewest iterations, one or more, that take ``span_s``, or ``most``.

    The root of the quadratic ``decode_time_s`` is an estimate, which is corrected
    by the same formula: the rounding of the square root cannot change the count.
    """
    if span_s <= 0:
        return 1
    if not decode_time_s(first_s, slope_s, most) >= span_s:
        return most
    half = 0.5 * slope_s
    linear = first_s - half
    root = linear + math.sqrt(linear * linear + 4.0 * half * span_s)
    n = int(min(2.0 * span_s / max(root, SMALLEST_STEP_S), most - 1.0))
    n = max(1, n)
    while n > 1 and decode_time_s(first_s, slope_s, n - 1) >= span_s:
        n -= 1
    while n < most and decode_time_s(first_s, slope_s, n) < span_s:
        n += 1
    return n


@inlined()
def jump_length(depth, first_s, slope_s, span_s, horizon):
    """Return how many iterations are scheduled in a span of time, ``horizon`` at most.

    With depth 1 an iteration is scheduled when the one before ends, with depth 2 when
    it starts: one more is scheduled in the span.
    """
    if horizon <= 1:
        return 1
    if depth == 1:
        return iterations_before(first_s, slope_s, span_s, horizon)
    if not span_s > 0:
        return 1
    return iterations_before(first_s, slope_s, span_s, horizon - 1) + 1
