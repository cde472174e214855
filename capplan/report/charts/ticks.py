"""Values of the ticks of an axis."""

import math


def linear_ticks(low: float, high: float) -> list[float]:
    """Return multiples of 1, 2 or 5 × 10^n from ``low`` to ``high``, about five.

    Examples
    --------
    >>> linear_ticks(0, 10)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    span = high - low
    if not span > 0:
        return [low]
    rough = span / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    # A tick at an end of the axis must not be lost to rounding.
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of every decade; fewer over many decades.

    Examples
    --------
    >>> log_ticks(0.01, 0.1)
    [0.01, 0.02, 0.05, 0.1]
    """
    # From all three steps down to whole decades, until about seven ticks are left.
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(inside) <= 7:
            break
    return [float(f"{tick:.6g}") for tick in inside]
